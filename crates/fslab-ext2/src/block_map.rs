//! The block map: from the blocks of a file to blocks of the device.
//!
//! An inode has 12 direct pointers and one each to a tree of one, two and three levels of indirect
//! blocks. A pointer of 0 is a hole, and so is everything below it. Pointers come from an
//! untrusted image: each is checked before it is followed, and walks are bounded by the number of
//! blocks that the file system has.

use std::ops::Range;

use fslab_vfs::{Errno, FileKind};

use crate::alloc::BlockRequest;
use crate::cache::Role;
use crate::error::{Error, Place, Result};
use crate::format::DIRECT_BLOCKS;
use crate::inode::Inode;
use crate::types::{BlockNo, BlockSize, FileBlock, InodeNo};
use crate::volume::Volume;

mod relocate;

/// Most blocks that mapping one block takes: itself and the indirect blocks on the way to it.
pub(crate) const WAY_LENGTH_MAX: u64 = 4;

/// The way to a block: a pointer of the inode, then one in each indirect block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Way {
    indexes: [u32; 4],
    /// How many of `indexes` count: 1 for a direct block.
    length: usize,
}

impl Way {
    /// The way to a block of a file; `None` where no pointer reaches.
    pub fn to(block_size: BlockSize, block: FileBlock) -> Option<Self> {
        let fan = u64::from(block_size.pointers());
        let mut rest = u64::from(block.0);
        if rest < DIRECT_BLOCKS as u64 {
            return Some(Self { indexes: [block.0, 0, 0, 0], length: 1 });
        }
        rest -= DIRECT_BLOCKS as u64;
        for depth in 1..=3 {
            let reach = fan.pow(depth);
            if rest < reach {
                let mut indexes = [DIRECT_BLOCKS as u32 + depth - 1, 0, 0, 0];
                for level in 1..=depth {
                    indexes[level as usize] = (rest / fan.pow(depth - level) % fan) as u32;
                }
                return Some(Self { indexes, length: depth as usize + 1 });
            }
            rest -= reach;
        }
        None
    }

    /// The pointer of the inode, then one in each indirect block.
    pub fn steps(&self) -> &[u32] {
        &self.indexes[..self.length]
    }
}

/// Blocks of a file that lie side by side, or a hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// Where on the device; `None` for a hole.
    pub physical: Option<BlockNo>,
    /// How many blocks.
    pub length: u32,
}

/// What a block of a file was mapped to for writing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mapped {
    pub block: BlockNo,
    /// It was a hole before: what the device holds there is not the file's.
    pub fresh: bool,
}

fn pointer(bytes: &[u8], index: u32) -> u32 {
    let at = index as usize * 4;
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |word| u32::from_le_bytes(*word))
}

fn set_pointer(bytes: &mut [u8], index: u32, value: u32) {
    let at = index as usize * 4;
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

impl Volume {
    /// A pointer, checked; `None` for a hole.
    fn checked(&self, no: InodeNo, pointer: u32) -> Result<Option<BlockNo>> {
        match BlockNo(pointer) {
            BlockNo(0) => Ok(None),
            block if self.space.is_data(block) => Ok(Some(block)),
            block => Err(Error::damaged(Place::Block(no, block), "can't belong to a file")),
        }
    }

    fn way(&self, block: FileBlock) -> Result<Way> {
        Ok(Way::to(self.block_size(), block).ok_or(Errno::FBIG)?)
    }

    /// The block of the device that holds a block of a file; `None` for a hole.
    pub(crate) fn map(
        &self,
        no: InodeNo,
        inode: &Inode,
        block: FileBlock,
    ) -> Result<Option<BlockNo>> {
        let way = self.way(block)?;
        let mut at = self.checked(no, inode.map[way.indexes[0] as usize])?;
        for index in &way.indexes[1..way.length] {
            let Some(table) = at else { return Ok(None) };
            at = self.checked(no, self.cache.look(table, |bytes| pointer(bytes, *index))?)?;
        }
        Ok(at)
    }

    /// As [`map`](Self::map), with what follows of the same kind, up to `most` blocks.
    pub(crate) fn map_run(
        &self,
        no: InodeNo,
        inode: &Inode,
        first: FileBlock,
        most: u32,
    ) -> Result<Run> {
        let way = self.way(first)?;
        if way.length == 1 {
            return self.run_of(no, &DirectTable(inode), way.indexes[0], most);
        }
        let mut at = self.checked(no, inode.map[way.indexes[0] as usize])?;
        // How many blocks lie under one pointer of the level that is looked at.
        let fan = u64::from(self.block_size().pointers());
        let mut under = fan.pow(way.length as u32 - 1);
        let mut within: u64 =
            (1..way.length).fold(0, |sum, level| sum * fan + u64::from(way.indexes[level]));
        for level in 1..way.length {
            let Some(table) = at else {
                let length = (under - within).min(u64::from(most)) as u32;
                return Ok(Run { physical: None, length });
            };
            let index = way.indexes[level];
            if level + 1 == way.length {
                let run = |bytes: &[u8]| self.run_of(no, &IndirectTable(bytes), index, most);
                return self.cache.look(table, run)?;
            }
            at = self.checked(no, self.cache.look(table, |bytes| pointer(bytes, index))?)?;
            under /= fan;
            within %= under;
        }
        Ok(Run { physical: at, length: 1 })
    }

    fn run_of(&self, no: InodeNo, table: &impl Table, index: u32, most: u32) -> Result<Run> {
        let first = self.checked(no, table.get(index))?;
        let length = run_length(table, index, first, most);
        if let Some(first) = first.filter(|_| length > 1) {
            self.checked(no, first.0 + length - 1)?;
        }
        Ok(Run { physical: first, length })
    }

    /// Maps a block of a file for writing and takes a block where there is a hole. All or nothing:
    /// where there is no room for the block and the indirect blocks on the way, nothing is taken.
    pub(crate) fn map_for_writing(
        &mut self,
        no: InodeNo,
        inode: &mut Inode,
        block: FileBlock,
        privileged: bool,
    ) -> Result<Mapped> {
        if let Some(block) = self.map(no, inode, block)? {
            return Ok(Mapped { block, fresh: false });
        }
        let way = self.way(block)?;
        let gap = self.gap(no, inode, &way)?;
        let count = (way.length - gap.level) as u32;
        self.reserve(u64::from(count), privileged)?;
        let sectors = count * self.block_sectors();
        let sum = inode.sectors.checked_add(sectors).ok_or(Errno::FBIG)?;
        let block = self.fill_gap(no, inode, block, &way, &gap)?;
        inode.sectors = sum;
        Ok(Mapped { block, fresh: true })
    }

    /// Takes the blocks that are missing on a way, first the indirect ones. They are joined to the
    /// file when all were had.
    fn fill_gap(
        &mut self,
        no: InodeNo,
        inode: &mut Inode,
        block: FileBlock,
        way: &Way,
        gap: &Gap,
    ) -> Result<BlockNo> {
        let count = way.length - gap.level;
        let mut taken: Vec<BlockNo> = Vec::with_capacity(count);
        while taken.len() < count {
            let request = self.block_request(no, inode, block, way, gap, &taken)?;
            match self.space.take_blocks(&mut self.cache, no, &request) {
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
        for (level, block) in (gap.level..).zip(&taken) {
            self.set_slot(inode, slot, block.0)?;
            if level + 1 < way.length {
                self.cache.create(*block);
                slot = Slot::Indirect(*block, way.indexes[level + 1]);
            }
        }
        taken.last().copied().ok_or_else(|| Errno::NOSPC.into())
    }

    /// What a policy is told of a block that is to be mapped, when some of what was missing on the
    /// way has been taken.
    fn block_request(
        &self,
        no: InodeNo,
        inode: &Inode,
        logical: FileBlock,
        way: &Way,
        gap: &Gap,
        taken: &[BlockNo],
    ) -> Result<BlockRequest> {
        let index = way.indexes[way.length - 1];
        let whole = gap.level + 1 == way.length;
        let before = match index.checked_sub(1) {
            Some(before) if whole => self.slot(inode, gap.slot.at(before))?,
            _ => 0,
        };
        let (nearest, holder) = match taken.last() {
            Some(last) => (None, Some(*last)),
            None => (self.nearest(inode, gap.slot)?, gap.slot.table()),
        };
        let some = |pointer: u32| Some(BlockNo(pointer)).filter(|block| block.0 != 0);
        let first_indirect = match (gap.level, taken.first()) {
            (0, Some(first)) if way.length == 2 => Some(*first),
            _ => some(inode.map[DIRECT_BLOCKS]),
        };
        Ok(BlockRequest {
            home: self.geometry().group_of_inode(no),
            regular: inode.kind == FileKind::Regular,
            logical,
            missing: (way.length - gap.level - 1 - taken.len()) as u32,
            wanted: 1,
            index,
            before: some(before),
            nearest,
            holder,
            last_direct: some(inode.map[DIRECT_BLOCKS - 1]),
            first_indirect,
        })
    }

    /// The nearest pointer to the left, in the same row.
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

    /// The first pointer on a way that is missing.
    fn gap(&self, no: InodeNo, inode: &Inode, way: &Way) -> Result<Gap> {
        let mut slot = Slot::Inode(way.indexes[0]);
        for level in 0..way.length {
            match self.checked(no, self.slot(inode, slot)?)? {
                Some(table) if level + 1 < way.length => {
                    slot = Slot::Indirect(table, way.indexes[level + 1]);
                }
                Some(_) => break,
                None => return Ok(Gap { level, slot }),
            }
        }
        Err(Error::damaged(Place::Inode(no), "has a block where it had none"))
    }

    /// Takes a block that is not of the map, near the inode, and makes it zeros.
    pub(crate) fn take_lone_block(&mut self, no: InodeNo) -> Result<BlockNo> {
        let request = BlockRequest {
            home: self.geometry().group_of_inode(no),
            regular: false,
            logical: FileBlock(0),
            missing: 0,
            wanted: 1,
            index: 0,
            before: None,
            nearest: None,
            holder: None,
            last_direct: None,
            first_indirect: None,
        };
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

    /// Indirect blocks of which only a part will be unmapped must not lose it before the device
    /// has what they gained. Of a directory, names may lie there that have no other place yet; of a
    /// file, nothing that was promised.
    fn settle_tables(&mut self, no: InodeNo, inode: &Inode, range: &Range<u64>) -> Result<()> {
        if inode.kind != FileKind::Directory {
            return Ok(());
        }
        let ends = [range.start.saturating_sub(1), range.start, range.end];
        let mut must = false;
        for end in ends.into_iter().filter_map(|end| u32::try_from(end).ok()) {
            let Some(way) = Way::to(self.block_size(), FileBlock(end)) else { continue };
            let mut slot = Slot::Inode(way.indexes[0]);
            for index in &way.indexes[1..way.length] {
                let Some(table) = self.checked(no, self.slot(inode, slot)?)? else { break };
                must |= self.cache.must_settle(table);
                slot = Slot::Indirect(table, *index);
            }
        }
        if must {
            let was_late = self.order.late_inodes.contains_key(&no);
            self.flush_within_operation()?;
            if was_late {
                self.make_late(no)?;
            }
        }
        Ok(())
    }

    /// Makes a range of a file's blocks a hole and frees them, and the indirect blocks that lead
    /// to nothing else.
    pub(crate) fn unmap(
        &mut self,
        no: InodeNo,
        inode: &mut Inode,
        range: Range<u64>,
    ) -> Result<()> {
        self.settle_tables(no, inode, &range)?;
        let fan = u64::from(self.block_size().pointers());
        let mut start = 0;
        for index in 0..inode.map.len() {
            let depth = (index + 1).saturating_sub(DIRECT_BLOCKS) as u32;
            let under = fan.pow(depth);
            let here = start..start + under;
            start += under;
            if range.start >= here.end || range.end <= here.start || inode.map[index] == 0 {
                continue;
            }
            let within =
                range.start.saturating_sub(here.start)..range.end.min(here.end) - here.start;
            let mut pointer = inode.map[index];
            let answer = self.unmap_below(no, inode, &mut pointer, depth, within);
            inode.map[index] = pointer;
            answer?;
        }
        Ok(())
    }

    /// Frees a range of the blocks below a pointer; the pointer becomes 0 when nothing is left.
    fn unmap_below(
        &mut self,
        no: InodeNo,
        inode: &mut Inode,
        at: &mut u32,
        depth: u32,
        range: Range<u64>,
    ) -> Result<()> {
        let Some(block) = self.checked(no, *at)? else { return Ok(()) };
        if depth > 0 && !self.unmap_table(no, inode, block, depth, range)? {
            return Ok(());
        }
        self.space.free_block(&mut self.cache, no, block)?;
        inode.sectors = inode.sectors.saturating_sub(self.block_sectors());
        *at = 0;
        Ok(())
    }

    /// Frees a range of the blocks below an indirect block; answers whether nothing is left.
    fn unmap_table(
        &mut self,
        no: InodeNo,
        inode: &mut Inode,
        table: BlockNo,
        depth: u32,
        range: Range<u64>,
    ) -> Result<bool> {
        let fan = u64::from(self.block_size().pointers());
        let under = fan.pow(depth - 1);
        let bytes = self.cache.read(table)?;
        for index in range.start / under..range.end.div_ceil(under).min(fan) {
            let start = index * under;
            let within = range.start.saturating_sub(start)..(range.end - start).min(under);
            let mut below = pointer(&bytes, index as u32);
            if below != 0 {
                let before = below;
                let answer = self.unmap_below(no, inode, &mut below, depth - 1, within);
                if before != below {
                    let change = |bytes: &mut [u8]| set_pointer(bytes, index as u32, below);
                    self.cache.modify(table, Role::MapLate, change)?;
                }
                answer?;
            }
        }
        drop(bytes);
        self.cache.look(table, |bytes| bytes.iter().all(|byte| *byte == 0))
    }

    /// Every block of a file on the device, indirect ones included, in the order of the map.
    /// Stops with damage when there are more than the file system has.
    pub(crate) fn walk(
        &self,
        no: InodeNo,
        inode: &Inode,
        visit: &mut dyn FnMut(BlockNo, Option<u64>),
    ) -> Result<()> {
        self.walk_to(no, inode, 0, visit)
    }

    /// As [`walk`](Self::walk), and looks into no indirect block of level `lowest` or below.
    pub(crate) fn walk_to(
        &self,
        no: InodeNo,
        inode: &Inode,
        lowest: u32,
        visit: &mut dyn FnMut(BlockNo, Option<u64>),
    ) -> Result<()> {
        let fan = u64::from(self.block_size().pointers());
        let mut start = 0;
        let mut budget = u64::from(self.geometry().blocks);
        for (index, at) in inode.map.iter().enumerate() {
            let depth = (index + 1).saturating_sub(DIRECT_BLOCKS) as u32;
            self.walk_below(no, *at, (depth, lowest), start, &mut budget, visit)?;
            start += fan.pow(depth);
        }
        Ok(())
    }

    fn walk_below(
        &self,
        no: InodeNo,
        at: u32,
        (depth, lowest): (u32, u32),
        start: u64,
        budget: &mut u64,
        visit: &mut dyn FnMut(BlockNo, Option<u64>),
    ) -> Result<()> {
        let Some(block) = self.checked(no, at)? else { return Ok(()) };
        *budget = budget.checked_sub(1).ok_or_else(|| {
            Error::damaged(Place::Inode(no), "has more blocks than the file system")
        })?;
        visit(block, (depth == 0).then_some(start));
        if depth <= lowest {
            return Ok(());
        }
        let under = u64::from(self.block_size().pointers()).pow(depth - 1);
        let bytes = self.cache.read(block)?;
        for index in 0..self.block_size().pointers() {
            let below = start + u64::from(index) * under;
            let levels = (depth - 1, lowest);
            self.walk_below(no, pointer(&bytes, index), levels, below, budget, visit)?;
        }
        Ok(())
    }
}

/// Where a pointer is kept.
#[derive(Clone, Copy)]
enum Slot {
    Inode(u32),
    Indirect(BlockNo, u32),
}

impl Slot {
    /// Another place in the same row.
    fn at(self, index: u32) -> Self {
        match self {
            Self::Inode(_) => Self::Inode(index),
            Self::Indirect(table, _) => Self::Indirect(table, index),
        }
    }

    /// The indirect block.
    fn table(self) -> Option<BlockNo> {
        match self {
            Self::Inode(_) => None,
            Self::Indirect(table, _) => Some(table),
        }
    }
}

/// The first missing pointer of a way.
struct Gap {
    level: usize,
    slot: Slot,
}

/// Pointers in a row.
trait Table {
    fn get(&self, index: u32) -> u32;
    fn length(&self) -> u32;
}

struct DirectTable<'a>(&'a Inode);

impl Table for DirectTable<'_> {
    fn get(&self, index: u32) -> u32 {
        self.0.map[index as usize]
    }

    fn length(&self) -> u32 {
        DIRECT_BLOCKS as u32
    }
}

struct IndirectTable<'a>(&'a [u8]);

impl Table for IndirectTable<'_> {
    fn get(&self, index: u32) -> u32 {
        pointer(self.0, index)
    }

    fn length(&self) -> u32 {
        (self.0.len() / 4) as u32
    }
}

/// How many pointers from an index on lead to blocks side by side, or are of holes.
fn run_length(table: &impl Table, index: u32, first: Option<BlockNo>, most: u32) -> u32 {
    let follows = |distance: u32| {
        // No block comes behind the last number.
        let expected = first.map_or(Some(0), |block| block.0.checked_add(distance));
        index + distance < table.length() && Some(table.get(index + distance)) == expected
    };
    1 + (1..most).take_while(|distance| follows(*distance)).count() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_end_with_the_last_number_of_a_block() {
        let length = |pointers: &[u32], most| {
            let bytes: Vec<u8> = pointers.iter().flat_map(|word| word.to_le_bytes()).collect();
            let first = Some(BlockNo(pointers[0])).filter(|block| block.0 != 0);
            run_length(&IndirectTable(&bytes), 0, first, most)
        };
        let last = u32::MAX;
        assert_eq!(length(&[last - 1, last, last, last], 4), 2);
        assert_eq!(length(&[7, 8, 9, 11], 4), 3);
        assert_eq!((length(&[7, 8, 9], 2), length(&[0, 0, 0, 1], u32::MAX)), (2, 3));
    }

    #[test]
    fn ways_go_through_one_more_level_where_the_last_ends() {
        let way = |block| {
            Way::to(BlockSize::MIN, FileBlock(block)).map(|way| way.indexes[..way.length].to_vec())
        };
        assert_eq!(way(0), Some(vec![0]));
        assert_eq!(way(11), Some(vec![11]));
        assert_eq!(way(12), Some(vec![12, 0]));
        assert_eq!(way(12 + 255), Some(vec![12, 255]));
        assert_eq!(way(12 + 256), Some(vec![13, 0, 0]));
        assert_eq!(way(12 + 256 + 65_536 - 1), Some(vec![13, 255, 255]));
        assert_eq!(way(12 + 256 + 65_536), Some(vec![14, 0, 0, 0]));
        assert_eq!(way(12 + 256 + 65_536 + (1 << 24) - 1), Some(vec![14, 255, 255, 255]));
        assert_eq!(way(12 + 256 + 65_536 + (1 << 24)), None);
    }
}
