//! Pointers of inodes and indirect blocks, for repair.
//!
//! Those that lead where they can't become holes. Of those that lead where another file is, the
//! later owner gets a block of its own with the same bytes.

use std::collections::{HashMap, HashSet};

use fslab_vfs::FileKind;
use zerocopy::little_endian::U32;

use super::finding::{Finding, Problem, Subject};
use super::image::Image;
use crate::cache::Role;
use crate::error::Result;
use crate::pointer_tree::{self, Pointer, Slot, WHOLE_FILE, pointer, set_pointer};
use crate::types::{BlockNo, InodeNo};

/// Where pointers that are to be mended are kept: of one inode at a time and found in one search,
/// because damage can give a file thousands of them.
pub(super) struct Places {
    wanted: HashMap<InodeNo, HashSet<u32>>,
    of: Option<InodeNo>,
    found: HashMap<u32, Vec<Slot>>,
}

impl Places {
    /// Those of what was found.
    pub(super) fn of(findings: &[Finding]) -> Self {
        let mut wanted: HashMap<InodeNo, HashSet<u32>> = HashMap::new();
        for finding in findings {
            if let (
                Subject::Inode(no),
                Problem::BadPointer(pointer) | Problem::SharedBlock(pointer),
            ) = (finding.subject, &finding.problem)
            {
                wanted.entry(no).or_default().insert(*pointer);
            }
        }
        Self { wanted, of: None, found: HashMap::new() }
    }

    /// Makes a hole of every pointer of an inode that has a value; `false` where there is none.
    pub(super) fn clear(&mut self, image: &mut Image, no: InodeNo, pointer: u32) -> Result<bool> {
        let slots = std::mem::take(self.slots(image, no, pointer)?);
        for slot in &slots {
            set(image, no, *slot, 0)?;
        }
        Ok(!slots.is_empty())
    }

    /// Gives an inode a copy of a block that others have too; `false` where there is no room.
    pub(super) fn copy_shared(
        &mut self,
        image: &mut Image,
        no: InodeNo,
        pointer: u32,
    ) -> Result<bool> {
        // What was found earlier in the order of the map is the rightful one.
        let Some(slot) = self.slots(image, no, pointer)?.pop() else { return Ok(false) };
        let is_symlink = image.kind(no) == Some(FileKind::Symlink);
        if is_symlink && !matches!(slot, Slot::Inode(0)) {
            // Its target is in the first block.
            return set(image, no, slot, 0);
        }
        let Some(copy) = image.take_unclaimed() else { return Ok(false) };
        let bytes = image.cache.read(BlockNo(pointer))?;
        image.cache.modify(copy, Role::Map, |target| target.copy_from_slice(&bytes))?;
        if image.tables.contains_key(&BlockNo(pointer)) {
            // What it led to may be led to no more.
            self.of = None;
        }
        set(image, no, slot, copy.0)
    }

    /// The places of a pointer, in the order of the map.
    fn slots(&mut self, image: &Image, no: InodeNo, pointer: u32) -> Result<&mut Vec<Slot>> {
        if self.of != Some(no) {
            self.found = search(image, no, self.wanted.entry(no).or_default())?;
            self.of = Some(no);
        }
        Ok(self.found.entry(pointer).or_default())
    }
}

/// The value of a pointer; 0 where there is none.
pub(super) fn get(image: &Image, no: InodeNo, slot: Slot) -> Result<u32> {
    match slot {
        Slot::Inode(index) => {
            let raw = image.raw_inode(no)?;
            Ok(raw.and_then(|raw| Some(raw.i_block.get(index as usize)?.get())).unwrap_or(0))
        }
        Slot::Indirect(table, index) => image.cache.look(table, |bytes| pointer(bytes, index)),
    }
}

/// Changes a pointer; `false` where there is none.
pub(super) fn set(image: &mut Image, no: InodeNo, slot: Slot, value: u32) -> Result<bool> {
    match slot {
        Slot::Inode(index) => {
            image.change_inode(no, |raw| raw.i_block[index as usize] = value.into())
        }
        Slot::Indirect(table, index) => image.cache.modify(table, Role::Map, |bytes| {
            set_pointer(bytes, index, value);
            true
        }),
    }
}

/// Searches an inode's pointers, in the indirect blocks that belong to it: damage can make others
/// lead to the blocks of other files and of the file system, which are not to be changed. Each is
/// looked at once: damage can make their tree a circle.
fn search(image: &Image, no: InodeNo, wanted: &HashSet<u32>) -> Result<HashMap<u32, Vec<Slot>>> {
    let (mut seen, mut found) = (HashSet::new(), HashMap::<u32, Vec<Slot>>::new());
    let Some(raw) = image.raw_inode(no)? else { return Ok(found) };
    let (map, block_size) = (raw.i_block.map(U32::get), image.geometry().block_size);
    pointer_tree::walk(&map, block_size, WHOLE_FILE, &mut |at: &Pointer| {
        if wanted.contains(&at.block.0) {
            found.entry(at.block.0).or_default().push(at.slot);
        }
        let is_own = at.level > 0 && image.tables.get(&at.block) == Some(&no);
        if is_own && seen.insert(at.block) {
            image.cache.read(at.block).map(Some)
        } else {
            Ok(None)
        }
    })?;
    Ok(found)
}
