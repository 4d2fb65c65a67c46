//! Names for files and directories that have none: `#NUMBER` in `lost+found`.
//!
//! The directory is used as a linear one, and grows. Its blocks are filled in their order, and one
//! that was full is not looked at again, so that any number of names costs a look at each block.

use std::collections::HashSet;

use fslab_vfs::FileKind;

use super::image::Image;
use super::pointers::{self, Slot};
use super::repair::{change_inode, inode};
use crate::block_map::Way;
use crate::cache::Role;
use crate::dir::entry::{self, Entries};
use crate::error::Result;
use crate::format::{INODE_INDEX, RawInode};
use crate::kinds::entry_kind;
use crate::numbers::{BlockNo, FileBlock, InodeNo};

/// The name of the directory in the root.
const NAME: &[u8] = b"lost+found";

/// The directory, as far as it is known in one round of repair.
#[derive(Default)]
pub(super) struct LostAndFound {
    /// `None` until it is wanted, then `None` within where there is no such directory.
    opened: Option<Option<Opened>>,
}

struct Opened {
    no: InodeNo,
    /// Names that begin as those made here do.
    taken: HashSet<Vec<u8>>,
    /// The first block, counted within the directory, that may have room.
    first: usize,
}

impl LostAndFound {
    /// Names an inode; `false` where there is no directory or no room for it.
    pub(super) fn attach(&mut self, image: &mut Image, no: InodeNo) -> Result<bool> {
        let Some(kind) = image.kind(no) else { return Ok(false) };
        if self.opened.is_none() {
            self.opened = Some(Opened::new(image)?);
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
    /// Finds the directory, and makes it a linear one.
    fn new(image: &mut Image) -> Result<Option<Self>> {
        let Some(no) = find(image)? else { return Ok(None) };
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
            change_inode(image, no, clear)?;
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
        let told = image.rules().told(entry_kind(kind));
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

fn find(image: &Image) -> Result<Option<InodeNo>> {
    let Some(root) = image.directories.get(&InodeNo::ROOT) else { return Ok(None) };
    for block in &root.blocks {
        let bytes = image.cache.read(*block)?;
        let found = Entries::of(&bytes).flatten().find(|entry| entry.name == NAME);
        if let Some(no) = found.and_then(|entry| entry.inode) {
            let is_directory = image.kind(no) == Some(FileKind::Directory);
            return Ok(Some(no).filter(|_| is_directory));
        }
    }
    Ok(None)
}

/// Adds an empty block to the directory; `false` where there is no room, or where its size or its
/// pointers are damaged.
fn grow(image: &mut Image, no: InodeNo) -> Result<bool> {
    let Some(raw) = inode(image, no)? else { return Ok(false) };
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
    change_inode(image, no, |raw| {
        raw.i_size_lo = (grown as u32).into();
        raw.i_blocks_lo += (1 + tables) * (block_bytes / 512);
    })?;
    if let Some(directory) = image.directories.get_mut(&no) {
        directory.blocks.push(block);
    }
    Ok(true)
}

/// Makes a directory's block lie at a place of the device; answers how many indirect blocks were
/// added for that, or `None` where there is no room for them.
fn map(image: &mut Image, no: InodeNo, index: u32, block: BlockNo) -> Result<Option<u32>> {
    let way = Way::to(image.geometry().block_size, FileBlock(index));
    let Some(way) = way else { return Ok(None) };
    let Some((first, below)) = way.steps().split_first() else { return Ok(None) };
    let (mut slot, mut added) = (Slot::Inode(*first as usize), 0);
    for index in below {
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
        slot = Slot::Table(table, *index as usize);
    }
    pointers::set(image, no, slot, block.0)?;
    Ok(Some(added))
}
