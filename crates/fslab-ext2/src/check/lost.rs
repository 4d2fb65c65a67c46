//! Attaches files and directories without a name to `lost+found` as `#NUMBER`. Creates `lost+found`
//! if it is missing.
//!
//! `lost+found` is converted to linear form and grows as needed. Its blocks are filled in order,
//! and full blocks are not searched again.

use std::collections::HashSet;

use fslab_vfs::{FileKind, Permissions, Timestamp};

use super::image::{Directory, Image, Known};
use super::pointers;
use crate::cache::Role;
use crate::dir;
use crate::dir::entry::{self, Entries};
use crate::error::Result;
use crate::format::{INODE_INDEX, MAP_ENTRIES, RawInode};
use crate::geometry::Geometry;
use crate::inode::Inode;
use crate::pointer_tree::{PointerPath, Slot};
use crate::types::{BlockNo, FileBlock, InodeNo};

/// The name of the directory, which is in the root directory.
const NAME: &[u8] = b"lost+found";

/// The state of `lost+found` during one round of repair.
pub(super) struct LostAndFound {
    /// `None` until the first use; the inner `None` means that the directory cannot be used or
    /// created.
    opened: Option<Option<Opened>>,
    /// The creation time of the directory, if it must be created.
    now: Timestamp,
}

struct Opened {
    no: InodeNo,
    /// The existing names that begin with `#`. New names, which also begin with `#`, must differ
    /// from them.
    taken: HashSet<Vec<u8>>,
    /// The index of the first directory block that may have room.
    first: usize,
}

impl LostAndFound {
    pub(super) fn new(now: Timestamp) -> Self {
        Self { opened: None, now }
    }

    /// Gives an inode a name in `lost+found`; returns `false` if there is no `lost+found` or no
    /// space for the name.
    pub(super) fn attach(&mut self, image: &mut Image, no: InodeNo) -> Result<bool> {
        let Some(kind) = image.kind(no) else { return Ok(false) };
        if self.opened.is_none() {
            self.opened = Some(Opened::lost_and_found(image, self.now)?);
        }
        let Some(Some(opened)) = &mut self.opened else { return Ok(false) };
        if opened.no == no {
            return Ok(false);
        }
        let name = opened.free_name(no);
        let done = opened.put(image, &name, no, kind)?;
        opened.taken.insert(name);
        Ok(done)
    }
}

impl Opened {
    fn lost_and_found(image: &mut Image, now: Timestamp) -> Result<Option<Self>> {
        let found = match find(image)? {
            Some((no, Some(FileKind::Directory))) => Some(no),
            // `lost+found` exists but is not a directory.
            Some(_) => None,
            None => make(image, now)?,
        };
        found.map_or(Ok(None), |no| Self::new(image, no))
    }

    /// Opens a directory and makes it linear; `None` if the inode is not a directory.
    fn new(image: &mut Image, no: InodeNo) -> Result<Option<Self>> {
        let mut taken = HashSet::new();
        let Some(directory) = image.directories.get_mut(&no) else { return Ok(None) };
        let was_indexed = std::mem::take(&mut directory.indexed);
        for block in directory.blocks.clone() {
            let bytes = image.cache.read(block)?;
            let names = Entries::of(&bytes).flatten().map(|entry| entry.name.to_vec());
            taken.extend(names.filter(|name| name.starts_with(b"#")));
        }
        if was_indexed {
            let clear = |raw: &mut RawInode| {
                raw.i_flags = (raw.i_flags.get() & !INODE_INDEX).into();
            };
            image.change_inode(no, clear)?;
        }
        Ok(Some(Self { no, taken, first: 0 }))
    }

    fn free_name(&self, no: InodeNo) -> Vec<u8> {
        let plain = format!("#{no}").into_bytes();
        let numbered = (1_u32..).map(|number| format!("#{no}.{number}").into_bytes());
        std::iter::once(plain.clone())
            .chain(numbered)
            .find(|name| !self.taken.contains(name))
            .unwrap_or(plain)
    }

    fn put(
        &mut self,
        image: &mut Image,
        name: &[u8],
        target: InodeNo,
        kind: FileKind,
    ) -> Result<bool> {
        let told = image.rules().told(kind.into());
        loop {
            let blocks = image.directories.get(&self.no).map(|one| &one.blocks);
            let Some(block) = blocks.and_then(|blocks| blocks.get(self.first)).copied() else {
                if grow(image, self.no)? {
                    continue;
                }
                return Ok(false);
            };
            let done = image.cache.modify(block, Role::Directory, |bytes| {
                let room = entry::Wanted::new(name).scan(bytes).ok()?.room?;
                entry::insert(bytes, room as usize, name, target, told).ok()
            })?;
            if done.is_some() {
                return Ok(true);
            }
            self.first += 1;
        }
    }
}

/// Returns the inode and kind of the entry `lost+found` in the root directory.
fn find(image: &Image) -> Result<Option<(InodeNo, Option<FileKind>)>> {
    let Some(root) = image.directories.get(&InodeNo::ROOT) else { return Ok(None) };
    for block in &root.blocks {
        let bytes = image.cache.read(*block)?;
        let found = Entries::of(&bytes).flatten().find(|entry| entry.name == NAME);
        if let Some(no) = found.and_then(|entry| entry.inode) {
            return Ok(Some((no, image.kind(no))));
        }
    }
    Ok(None)
}

/// Creates `lost+found`; `None` if there is no root, no free inode or no space for it.
fn make(image: &mut Image, now: Timestamp) -> Result<Option<InodeNo>> {
    let Some(mut root) = Opened::new(image, InodeNo::ROOT)? else { return Ok(None) };
    let Some(no) = free_inode(image)? else { return Ok(None) };
    let Some(block) = image.take_unclaimed() else { return Ok(None) };
    if !root.put(image, NAME, no, FileKind::Directory)? {
        return Ok(None);
    }
    let rules = image.rules();
    image.cache.create(block);
    image.cache.modify(block, Role::Map, |bytes| dir::create(bytes, &rules, no, InodeNo::ROOT))?;
    image.store_inode(&new_directory(image.geometry(), no, block, now))?;
    image.change_inode(InodeNo::ROOT, |raw| raw.i_links_count += 1)?;
    image.inodes[no.0 as usize] = Known { kind: Some(FileKind::Directory), stored: 2, counted: 2 };
    let root = Some(InodeNo::ROOT);
    let made = Directory { blocks: vec![block], indexed: false, dotdot: root, parent: root };
    image.directories.insert(no, made);
    Ok(Some(no))
}

/// Builds the inode of a new `lost+found`, with the same fields as in mkfs.
fn new_directory(geometry: &Geometry, no: InodeNo, block: BlockNo, now: Timestamp) -> Inode {
    let mut map = [0; MAP_ENTRIES];
    map[0] = block.0;
    Inode {
        size: geometry.block_size.bytes_u64(),
        sectors: geometry.block_size.sectors(),
        map,
        ..Inode::new(no, FileKind::Directory, Permissions::new(0o700), (0, 0), 2, now)
    }
}

/// Returns an inode that is not in use. It may contain bytes of a deleted file.
fn free_inode(image: &Image) -> Result<Option<InodeNo>> {
    let geometry = image.geometry();
    for no in (geometry.first_inode.0..=geometry.inodes()).map(InodeNo) {
        if image.kind(no).is_none()
            && image.raw_inode(no)?.is_some_and(|raw| raw.i_links_count.get() == 0)
        {
            return Ok(Some(no));
        }
    }
    Ok(None)
}

/// Appends an empty block to the directory. Returns `false` if there is no space, or if the
/// directory's size or pointers are damaged.
fn grow(image: &mut Image, no: InodeNo) -> Result<bool> {
    let Some(raw) = image.raw_inode(no)? else { return Ok(false) };
    let Some(count) = image.directories.get(&no).map(|one| one.blocks.len() as u32) else {
        return Ok(false);
    };
    let block_bytes = image.geometry().block_size.bytes_u32();
    let size = u64::from(raw.i_size_high.get()) << 32 | u64::from(raw.i_size_lo.get());
    let grown = size + u64::from(block_bytes);
    if size != u64::from(count) * u64::from(block_bytes) || grown > u64::from(u32::MAX) {
        return Ok(false);
    }
    let Some(block) = image.take_unclaimed() else { return Ok(false) };
    image.cache.create(block);
    image.cache.modify(block, Role::Map, |bytes| entry::clear(bytes, 0))?;
    let Some(tables) = map(image, no, count, block)? else { return Ok(false) };
    image.change_inode(no, |raw| {
        raw.i_size_lo = (grown as u32).into();
        raw.i_blocks_lo += (1 + tables) * (block_bytes / 512);
    })?;
    if let Some(directory) = image.directories.get_mut(&no) {
        directory.blocks.push(block);
    }
    Ok(true)
}

/// Maps a block of a directory to a device block. Returns the number of added indirect blocks.
/// `None` if there is no space for them, or if an indirect block on the path does not belong to the
/// directory.
fn map(image: &mut Image, no: InodeNo, index: u32, block: BlockNo) -> Result<Option<u32>> {
    let path = PointerPath::to(image.geometry().block_size, FileBlock(index));
    let Some(path) = path else { return Ok(None) };
    let (mut slot, mut added) = (Slot::Inode(path.steps()[0]), 0);
    for index in &path.steps()[1..] {
        let table = match pointers::get(image, no, slot)? {
            0 => {
                let Some(new) = image.take_unclaimed() else { return Ok(None) };
                image.cache.create(new);
                image.tables.insert(new, no);
                pointers::set(image, no, slot, new.0)?;
                added += 1;
                new
            }
            pointer => BlockNo(pointer),
        };
        if image.tables.get(&table) != Some(&no) {
            return Ok(None);
        }
        slot = Slot::Indirect(table, *index);
    }
    pointers::set(image, no, slot, block.0)?;
    Ok(Some(added))
}
