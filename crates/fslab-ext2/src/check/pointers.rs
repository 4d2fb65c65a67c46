//! Repairs pointers in inodes and indirect blocks.
//!
//! Pointers to invalid blocks become holes. If several files share a block, each later owner gets a
//! separate block with the same bytes.

use std::collections::{HashMap, HashSet};

use fslab_vfs::FileKind;
use zerocopy::little_endian::U32;

use super::finding::{Finding, Problem, Subject};
use super::image::Image;
use crate::cache::Role;
use crate::error::Result;
use crate::pointer_tree::{self, Pointer, Slot, WHOLE_FILE, pointer, set_pointer};
use crate::types::{BlockNo, InodeNo};

/// The slots of the pointers to repair. Damage can give a file thousands of such pointers, so each
/// inode is searched only once. The slots of only one inode are kept at a time.
pub(super) struct Places {
    wanted: HashMap<InodeNo, HashSet<u32>>,
    of: Option<InodeNo>,
    found: HashMap<u32, Vec<Slot>>,
}

impl Places {
    /// Selects the pointers that the findings report.
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

    /// Turns all pointers with this value in an inode into holes; returns `false` if there are
    /// none.
    pub(super) fn clear(&mut self, image: &mut Image, no: InodeNo, pointer: u32) -> Result<bool> {
        let slots = std::mem::take(self.slots(image, no, pointer)?);
        for slot in &slots {
            set(image, no, *slot, 0)?;
        }
        Ok(!slots.is_empty())
    }

    /// Replaces a shared block in an inode by a copy; returns `false` if there is no space.
    pub(super) fn copy_shared(
        &mut self,
        image: &mut Image,
        no: InodeNo,
        pointer: u32,
    ) -> Result<bool> {
        // Change the last slot in file order, so that the first one keeps the block.
        let Some(slot) = self.slots(image, no, pointer)?.pop() else { return Ok(false) };
        let is_symlink = image.kind(no) == Some(FileKind::Symlink);
        if is_symlink && !matches!(slot, Slot::Inode(0)) {
            // A symbolic link needs only its first block, so another pointer becomes a hole.
            return set(image, no, slot, 0);
        }
        let Some(copy) = image.take_unclaimed() else { return Ok(false) };
        let bytes = image.cache.read(BlockNo(pointer))?;
        image.cache.modify(copy, Role::Map, |target| target.copy_from_slice(&bytes))?;
        if image.tables.contains_key(&BlockNo(pointer)) {
            // The shared block is an indirect block. Slots in it may no longer belong to this
            // inode, so all slots must be searched again.
            self.of = None;
        }
        set(image, no, slot, copy.0)
    }

    /// Returns the slots in an inode and its indirect blocks whose value is `pointer`, in file
    /// order.
    fn slots(&mut self, image: &Image, no: InodeNo, pointer: u32) -> Result<&mut Vec<Slot>> {
        if self.of != Some(no) {
            self.found = search(image, no, self.wanted.entry(no).or_default())?;
            self.of = Some(no);
        }
        Ok(self.found.entry(pointer).or_default())
    }
}

/// Returns the value of a pointer; 0 if the slot does not exist.
pub(super) fn get(image: &Image, no: InodeNo, slot: Slot) -> Result<u32> {
    match slot {
        Slot::Inode(index) => {
            let raw = image.raw_inode(no)?;
            Ok(raw.and_then(|raw| Some(raw.i_block.get(index as usize)?.get())).unwrap_or(0))
        }
        Slot::Indirect(table, index) => image.cache.look(table, |bytes| pointer(bytes, index)),
    }
}

/// Changes a pointer; returns `false` if the slot does not exist.
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

/// Searches an inode's pointers, following only indirect blocks that belong to this inode. After
/// damage, other pointers may refer to blocks of other files or to metadata, which must not be
/// changed. Each block is read only once, because damage can also make the tree cyclic.
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
