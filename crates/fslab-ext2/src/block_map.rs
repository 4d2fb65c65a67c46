//! The block map: maps blocks of a file to blocks of the device.
//!
//! An inode has 12 direct pointers and one pointer each to a tree of one, two and three levels of
//! indirect blocks. A pointer of 0 is a hole. If an indirect block is missing, its whole range is a
//! hole. Pointers come from an untrusted image, so each is checked before it is followed.
//! `Volume::walk` fails if a file maps more blocks than the file system has.

use std::ops::Range;

use fslab_vfs::{Errno, FileKind};

use crate::alloc::BlockRequest;
use crate::cache::{Block, Role};
use crate::error::{Error, Place, Result};
use crate::flaw::Flaw;
use crate::format::DIRECT_BLOCKS;
use crate::inode::Inode;
use crate::pointer_tree::{
    Pointer, PointerPath, Slot, Visitor, WHOLE_FILE, pointer, set_pointer, walk,
};
use crate::types::{BlockNo, FileBlock, InodeNo};
use crate::volume::Volume;

mod relocate;

/// Maximum number of blocks needed to map one file block: the data block and the three indirect
/// blocks on its path.
pub(crate) const PATH_BLOCKS_MAX: u64 = 4;

/// Contiguous blocks of a file, or a hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// The first block on the device; `None` for a hole.
    pub physical: Option<BlockNo>,
    /// Number of blocks.
    pub length: u32,
}

/// The device block that a file block was mapped to for writing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mapped {
    pub block: BlockNo,
    /// Whether the file block was a hole before. If so, the old bytes of the device block do not
    /// belong to the file.
    pub fresh: bool,
}

impl Volume {
    /// Checks a pointer and returns the block that it refers to; `None` for a hole.
    fn checked(&self, no: InodeNo, pointer: u32) -> Result<Option<BlockNo>> {
        match BlockNo(pointer) {
            BlockNo(0) => Ok(None),
            block if self.space.is_data(block) => Ok(Some(block)),
            block => Err(Error::damaged(Place::Block(no, block), Flaw::PointerOutside)),
        }
    }

    fn path(&self, block: FileBlock) -> Result<PointerPath> {
        Ok(PointerPath::to(self.block_size(), block).ok_or(Errno::FBIG)?)
    }

    /// Follows a path to its last pointer or to the first null pointer.
    fn follow(&self, inode: &Inode, path: &PointerPath) -> Result<Reached> {
        let mut slot = Slot::Inode(path.steps()[0]);
        for (depth, index) in path.steps()[1..].iter().enumerate() {
            let Some(table) = self.checked(inode.no, self.slot(inode, slot)?)? else {
                return Ok(Reached { depth, slot });
            };
            slot = Slot::Indirect(table, *index);
        }
        Ok(Reached { depth: path.levels(), slot })
    }

    /// Returns the device block of a file block; `None` for a hole.
    pub(crate) fn map(&self, inode: &Inode, block: FileBlock) -> Result<Option<BlockNo>> {
        let reached = self.follow(inode, &self.path(block)?)?;
        self.checked(inode.no, self.slot(inode, reached.slot)?)
    }

    /// Returns the run of up to `most` blocks that starts at `first`: either contiguous blocks or a
    /// hole.
    pub(crate) fn map_run(&self, inode: &Inode, first: FileBlock, most: u32) -> Result<Run> {
        let path = self.path(first)?;
        let Reached { depth, slot } = self.follow(inode, &path)?;
        if depth < path.levels() {
            let length = path.end_below(path.levels() - depth) - u64::from(first.0);
            return Ok(Run { physical: None, length: length.min(most.into()) as u32 });
        }
        let most = most.min(path.room());
        match slot {
            Slot::Inode(index) => {
                self.run_of(inode.no, |at| inode.map[(index + at) as usize], most)
            }
            Slot::Indirect(table, index) => {
                let run =
                    |bytes: &[u8]| self.run_of(inode.no, |at| pointer(bytes, index + at), most);
                self.cache.look(table, run)?
            }
        }
    }

    /// Returns the run that starts with the first of `most` pointers.
    fn run_of(&self, no: InodeNo, pointers: impl Fn(u32) -> u32, most: u32) -> Result<Run> {
        let first = self.checked(no, pointers(0))?;
        let length = run_length(pointers, first, most);
        if let Some(first) = first.filter(|_| length > 1) {
            self.checked(no, first.0 + length - 1)?;
        }
        Ok(Run { physical: first, length })
    }

    /// Returns the device block of a file block that will be written. If the file block is a hole,
    /// allocates a block for it and the missing indirect blocks. If there is not enough space for
    /// all of them, none is allocated.
    pub(crate) fn map_for_writing(
        &mut self,
        inode: &mut Inode,
        block: FileBlock,
    ) -> Result<Mapped> {
        let path = self.path(block)?;
        let gap = self.follow(inode, &path)?;
        if let Some(block) = self.checked(inode.no, self.slot(inode, gap.slot)?)? {
            return Ok(Mapped { block, fresh: false });
        }
        let count = (path.levels() + 1 - gap.depth) as u32;
        self.reserve(u64::from(count), self.privileged)?;
        let sectors = count * self.block_sectors();
        let sum = inode.sectors.checked_add(sectors).ok_or(Errno::FBIG)?;
        let block = self.fill_gap(inode, &path, &gap)?;
        inode.sectors = sum;
        Ok(Mapped { block, fresh: true })
    }

    /// Allocates the missing blocks of a path, indirect blocks first. The file refers to them only
    /// after all have been allocated.
    fn fill_gap(
        &mut self,
        inode: &mut Inode,
        path: &PointerPath,
        gap: &Reached,
    ) -> Result<BlockNo> {
        let count = path.levels() + 1 - gap.depth;
        let mut taken: Vec<BlockNo> = Vec::with_capacity(count);
        while taken.len() < count {
            let request = self.block_request(inode, path, gap, &taken)?;
            match self.space.take_blocks(&mut self.cache, inode.no, &request) {
                Ok(run) => taken.extend(run.blocks()),
                Err(error) => {
                    for block in taken {
                        self.space.untake_block(&mut self.cache, block)?;
                    }
                    return Err(error);
                }
            }
        }
        let mut slot = gap.slot;
        for (depth, block) in (gap.depth..).zip(&taken) {
            self.set_slot(inode, slot, block.0)?;
            if let Some(index) = path.steps().get(depth + 1) {
                self.cache.create(*block);
                slot = Slot::Indirect(*block, *index);
            }
        }
        taken.last().copied().ok_or_else(|| Errno::NOSPC.into())
    }

    /// Builds the request for the next missing block on a path, given the blocks already `taken`
    /// for that path.
    fn block_request(
        &self,
        inode: &Inode,
        path: &PointerPath,
        gap: &Reached,
        taken: &[BlockNo],
    ) -> Result<BlockRequest> {
        let index = path.index();
        let whole = gap.depth == path.levels();
        let before = match index.checked_sub(1) {
            Some(before) if whole => self.slot(inode, gap.slot.at(before))?,
            _ => 0,
        };
        let (nearest, holder) = match taken.last() {
            Some(last) => (None, Some(*last)),
            None => (self.nearest(inode, gap.slot)?, gap.slot.table()),
        };
        let some = |pointer: u32| Some(BlockNo(pointer)).filter(|block| block.0 != 0);
        let first_indirect = match (gap.depth, taken.first()) {
            (0, Some(first)) if path.levels() == 1 => Some(*first),
            _ => some(inode.map[DIRECT_BLOCKS]),
        };
        Ok(BlockRequest {
            home: self.geometry().group_of_inode(inode.no),
            regular: inode.kind == FileKind::Regular,
            logical: path.logical(),
            missing: (path.levels() - gap.depth - taken.len()) as u32,
            wanted: 1,
            index,
            before: some(before),
            nearest,
            holder,
            last_direct: some(inode.map[DIRECT_BLOCKS - 1]),
            first_indirect,
        })
    }

    /// Returns the last nonzero pointer before a slot in the same array.
    fn nearest(&self, inode: &Inode, slot: Slot) -> Result<Option<BlockNo>> {
        let pointers = |get: &dyn Fn(u32) -> u32, index: u32| {
            (0..index).rev().map(get).find(|pointer| *pointer != 0).map(BlockNo)
        };
        match slot {
            Slot::Inode(index) => Ok(pointers(&|at| inode.map[at as usize], index)),
            Slot::Indirect(table, index) => {
                self.cache.look(table, |bytes| pointers(&|at| pointer(bytes, at), index))
            }
        }
    }

    /// Allocates a block that is not part of the block map, such as an xattr block, near the inode.
    /// Fills the block with zeros.
    pub(crate) fn take_lone_block(&mut self, no: InodeNo) -> Result<BlockNo> {
        let home = self.geometry().group_of_inode(no);
        let request = BlockRequest { home, wanted: 1, ..BlockRequest::default() };
        let run = self.space.take_blocks(&mut self.cache, no, &request)?;
        self.cache.create(run.start);
        Ok(run.start)
    }

    fn slot(&self, inode: &Inode, slot: Slot) -> Result<u32> {
        match slot {
            Slot::Inode(index) => Ok(inode.map[index as usize]),
            Slot::Indirect(table, index) => self.cache.look(table, |bytes| pointer(bytes, index)),
        }
    }

    fn set_slot(&mut self, inode: &mut Inode, slot: Slot, value: u32) -> Result<()> {
        match slot {
            Slot::Inode(index) => inode.map[index as usize] = value,
            Slot::Indirect(table, index) => {
                let is_directory = inode.kind == FileKind::Directory;
                if is_directory && self.cache.role(table) == Some(Role::MapLate) {
                    self.flush_within_operation()?;
                }
                self.cache.modify(table, Role::Map, |bytes| set_pointer(bytes, index, value))?;
            }
        }
        Ok(())
    }

    /// Flushes, if necessary, before pointers are removed from the indirect blocks of a directory.
    /// Pointers that were just added to such a block must reach the device first, because they may
    /// refer to the only copy of some names. Other files need no flush, because their new blocks
    /// need not be durable yet.
    fn settle_tables(&mut self, inode: &Inode, range: &Range<u64>) -> Result<()> {
        if inode.kind != FileKind::Directory {
            return Ok(());
        }
        let mut must = false;
        for end in [range.start.saturating_sub(1), range.start, range.end] {
            let mut visitor = |at: &Pointer| {
                if at.level == 0 {
                    return Ok(None);
                }
                self.checked(inode.no, at.block.0)?;
                must |= self.cache.must_settle(at.block);
                self.cache.read(at.block).map(Some)
            };
            walk(&inode.map, self.block_size(), end..end.saturating_add(1), &mut visitor)?;
        }
        if must {
            let was_late = self.order.late_inodes.contains_key(&inode.no);
            self.flush_within_operation()?;
            if was_late {
                self.make_late(inode.no)?;
            }
        }
        Ok(())
    }

    /// Turns a range of file blocks into a hole. Frees the blocks and the indirect blocks that
    /// become empty.
    pub(crate) fn unmap(&mut self, inode: &mut Inode, range: Range<u64>) -> Result<()> {
        self.settle_tables(inode, &range)?;
        let (map, block_size) = (inode.map, self.block_size());
        walk(&map, block_size, range, &mut Unmapping { volume: self, inode })
    }

    /// Calls `visit` with every device block of a file and its index in the file (`None` for an
    /// indirect block). Blocks are visited in file order; an indirect block comes before the blocks
    /// that it maps. Returns [`Error::Damaged`] if there are more blocks than the file system has.
    pub(crate) fn walk(
        &self,
        inode: &Inode,
        visit: &mut dyn FnMut(BlockNo, Option<u64>),
    ) -> Result<()> {
        self.walk_to(inode, 0, visit)
    }

    /// Does the same as [`walk`](Self::walk), but does not read indirect blocks at or below level
    /// `lowest`.
    pub(crate) fn walk_to(
        &self,
        inode: &Inode,
        lowest: u32,
        visit: &mut dyn FnMut(BlockNo, Option<u64>),
    ) -> Result<()> {
        let mut budget = u64::from(self.geometry().blocks);
        let mut visitor = |at: &Pointer| {
            self.checked(inode.no, at.block.0)?;
            budget = budget
                .checked_sub(1)
                .ok_or_else(|| Error::damaged(Place::Inode(inode.no), Flaw::TooManyBlocks))?;
            visit(at.block, (at.level == 0).then_some(at.first));
            if at.level > lowest { self.cache.read(at.block).map(Some) } else { Ok(None) }
        };
        walk(&inode.map, self.block_size(), WHOLE_FILE, &mut visitor)
    }
}

/// Frees the blocks that a walk visits, and the indirect blocks that become empty.
struct Unmapping<'a> {
    volume: &'a mut Volume,
    inode: &'a mut Inode,
}

impl Visitor for Unmapping<'_> {
    fn enter(&mut self, at: &Pointer) -> Result<Option<Block>> {
        self.volume.checked(self.inode.no, at.block.0)?;
        if at.level > 0 {
            return self.volume.cache.read(at.block).map(Some);
        }
        self.free(at).map(|()| None)
    }

    fn leave(&mut self, at: &Pointer) -> Result<()> {
        let is_empty = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0);
        if self.volume.cache.look(at.block, is_empty)? { self.free(at) } else { Ok(()) }
    }
}

impl Unmapping<'_> {
    fn free(&mut self, at: &Pointer) -> Result<()> {
        let Self { volume, inode } = self;
        volume.space.free_block(&mut volume.cache, inode.no, at.block)?;
        inode.sectors = inode.sectors.saturating_sub(volume.block_sectors());
        match at.slot {
            Slot::Inode(index) => inode.map[index as usize] = 0,
            Slot::Indirect(table, index) => {
                let change = |bytes: &mut [u8]| set_pointer(bytes, index, 0);
                volume.cache.modify(table, Role::MapLate, change)?;
            }
        }
        Ok(())
    }
}

/// The deepest existing position on a pointer path.
struct Reached {
    /// Number of existing indirect blocks on the path.
    depth: usize,
    /// The slot of the path's last pointer, or of its first null pointer.
    slot: Slot,
}

/// Returns the length of the run that starts with the first of `most` pointers: contiguous blocks,
/// or holes if `first` is `None`.
fn run_length(pointers: impl Fn(u32) -> u32, first: Option<BlockNo>, most: u32) -> u32 {
    let follows = |distance: u32| {
        // No block can follow the highest possible block number.
        let expected = first.map_or(Some(0), |block| block.0.checked_add(distance));
        Some(pointers(distance)) == expected
    };
    1 + (1..most).take_while(|distance| follows(*distance)).count() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_end_at_the_largest_block_number() {
        let length = |pointers: &[u32], most| {
            let first = Some(BlockNo(pointers[0])).filter(|block| block.0 != 0);
            run_length(|at| pointers[at as usize], first, most)
        };
        let last = u32::MAX;
        assert_eq!(length(&[last - 1, last, last, last], 4), 2);
        assert_eq!(length(&[7, 8, 9, 11], 4), 3);
        assert_eq!((length(&[7, 8, 9], 2), length(&[0, 0, 0, 1], 4)), (2, 3));
    }
}
