//! The tree of pointers from an inode to the blocks of its file. Finds the path to one block, or
//! walks through all blocks.
//!
//! This module neither reads blocks nor checks pointers; the caller does both.

use std::ops::Range;

use crate::cache::Block;
use crate::error::Result;
use crate::format::{DIRECT_BLOCKS, MAP_ENTRIES};
use crate::types::{BlockNo, BlockSize, FileBlock};

const DIRECT: u32 = DIRECT_BLOCKS as u32;

/// The range of all blocks of a file, regardless of its length.
pub(crate) const WHOLE_FILE: Range<u64> = 0..u64::MAX;

/// The location of a pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slot {
    /// In the inode, at this index.
    Inode(u32),
    /// In an indirect block, at this index.
    Indirect(BlockNo, u32),
}

impl Slot {
    /// Returns another slot in the same array.
    pub fn at(self, index: u32) -> Self {
        match self {
            Self::Inode(_) => Self::Inode(index),
            Self::Indirect(table, _) => Self::Indirect(table, index),
        }
    }

    /// Returns the indirect block; `None` for a slot in the inode.
    pub fn table(self) -> Option<BlockNo> {
        match self {
            Self::Inode(_) => None,
            Self::Indirect(table, _) => Some(table),
        }
    }
}

/// Returns a pointer of an indirect block; 0 for an index past its end.
pub(crate) fn pointer(bytes: &[u8], index: u32) -> u32 {
    bytes.as_chunks::<4>().0.get(index as usize).map_or(0, |word| u32::from_le_bytes(*word))
}

pub(crate) fn set_pointer(bytes: &mut [u8], index: u32, value: u32) {
    bytes.as_chunks_mut::<4>().0[index as usize] = value.to_le_bytes();
}

/// The path to a block of a file: a pointer in the inode, then one in each indirect block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PointerPath {
    indexes: [u32; 4],
    /// Number of indirect blocks on the path.
    levels: usize,
    logical: FileBlock,
    /// Index of the block within the tree under the inode's pointer.
    within: u64,
    fan: u64,
}

impl PointerPath {
    /// Returns the path to a block of a file; `None` for a block past the triple-indirect tree.
    pub fn to(block_size: BlockSize, logical: FileBlock) -> Option<Self> {
        let fan = u64::from(block_size.pointers());
        let Some(mut within) = logical.0.checked_sub(DIRECT).map(u64::from) else {
            return Some(Self {
                indexes: [logical.0, 0, 0, 0],
                levels: 0,
                logical,
                within: 0,
                fan,
            });
        };
        for levels in 1..=3 {
            let reach = fan.pow(levels);
            if within < reach {
                let mut indexes = [DIRECT + levels - 1, 0, 0, 0];
                for level in 1..=levels {
                    indexes[level as usize] = (within / fan.pow(levels - level) % fan) as u32;
                }
                return Some(Self { indexes, levels: levels as usize, logical, within, fan });
            }
            within -= reach;
        }
        None
    }

    /// Returns the block at the end of the path.
    pub fn logical(&self) -> FileBlock {
        self.logical
    }

    pub fn levels(&self) -> usize {
        self.levels
    }

    /// Returns the index in the inode, then the index in each indirect block.
    pub fn steps(&self) -> &[u32] {
        &self.indexes[..=self.levels]
    }

    /// Returns the index of the last pointer in its array.
    pub fn index(&self) -> u32 {
        self.indexes[self.levels]
    }

    /// Returns the number of pointers from the last one to the end of its array.
    pub fn room(&self) -> u32 {
        let length = if self.levels == 0 { DIRECT } else { self.fan as u32 };
        length - self.index()
    }

    /// Returns the first file block that the path's indirect block at `level` maps. Pointers in an
    /// indirect block of level 1 refer to data.
    pub fn first_below(&self, level: usize) -> u32 {
        self.logical.0 - (self.within % self.fan.pow(level as u32)) as u32
    }

    /// Returns the end of the range of file blocks that the path's indirect block at `level` maps.
    pub fn end_below(&self, level: usize) -> u64 {
        u64::from(self.first_below(level)) + self.fan.pow(level as u32)
    }
}

/// Returns the first file block that the inode's tree of `levels` levels maps.
pub(crate) fn first_of_tree(block_size: BlockSize, levels: u32) -> u64 {
    let fan = u64::from(block_size.pointers());
    u64::from(DIRECT) + (1..levels).map(|level| fan.pow(level)).sum::<u64>()
}

/// A stored nonzero pointer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pointer {
    pub slot: Slot,
    pub block: BlockNo,
    /// The level: 0 for a pointer to data.
    pub level: u32,
    /// The first file block that the pointer maps.
    pub first: u64,
}

/// Handles the pointers of a [`walk`].
pub(crate) trait Visitor {
    /// Visits a pointer before the pointers under it. If it returns the bytes of an indirect block,
    /// the pointers in that block are visited next.
    fn enter(&mut self, at: &Pointer) -> Result<Option<Block>>;

    /// Called after all pointers of an indirect block were visited.
    fn leave(&mut self, _at: &Pointer) -> Result<()> {
        Ok(())
    }
}

impl<F: FnMut(&Pointer) -> Result<Option<Block>>> Visitor for F {
    fn enter(&mut self, at: &Pointer) -> Result<Option<Block>> {
        self(at)
    }
}

/// Visits the pointers to a range of a file's blocks, in file order.
pub(crate) fn walk(
    map: &[u32; MAP_ENTRIES],
    block_size: BlockSize,
    range: Range<u64>,
    visitor: &mut impl Visitor,
) -> Result<()> {
    let fan = u64::from(block_size.pointers());
    let mut first = 0;
    for (index, value) in (0..).zip(map) {
        let (slot, level) = (Slot::Inode(index), (index + 1).saturating_sub(DIRECT));
        visit(Pointer { slot, block: BlockNo(*value), level, first }, fan, &range, visitor)?;
        first += fan.pow(level);
    }
    Ok(())
}

fn visit(at: Pointer, fan: u64, range: &Range<u64>, visitor: &mut impl Visitor) -> Result<()> {
    let span = fan.pow(at.level);
    if at.block.0 == 0 || range.end <= at.first || range.start >= at.first + span {
        return Ok(());
    }
    let Some(bytes) = visitor.enter(&at)?.filter(|_| at.level > 0) else { return Ok(()) };
    let (span, level) = (span / fan, at.level - 1);
    let indexes =
        range.start.saturating_sub(at.first) / span..(range.end - at.first).div_ceil(span).min(fan);
    for index in indexes {
        let (first, index) = (at.first + index * span, index as u32);
        let (slot, block) = (Slot::Indirect(at.block, index), BlockNo(pointer(&bytes, index)));
        visit(Pointer { slot, block, level, first }, fan, range, visitor)?;
    }
    visitor.leave(&at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(logical: u32) -> Option<PointerPath> {
        PointerPath::to(BlockSize::MIN, FileBlock(logical))
    }

    #[test]
    fn paths_gain_a_level_once_the_previous_one_is_full() {
        let steps = |logical| path(logical).map(|path| path.steps().to_vec());
        assert_eq!(steps(0), Some(vec![0]));
        assert_eq!(steps(11), Some(vec![11]));
        assert_eq!(steps(12), Some(vec![12, 0]));
        assert_eq!(steps(12 + 255), Some(vec![12, 255]));
        assert_eq!(steps(12 + 256), Some(vec![13, 0, 0]));
        assert_eq!(steps(12 + 256 + 65_536 - 1), Some(vec![13, 255, 255]));
        assert_eq!(steps(12 + 256 + 65_536), Some(vec![14, 0, 0, 0]));
        assert_eq!(steps(12 + 256 + 65_536 + (1 << 24) - 1), Some(vec![14, 255, 255, 255]));
        assert_eq!(steps(12 + 256 + 65_536 + (1 << 24)), None);
    }

    #[test]
    fn path_gives_the_first_block_below_each_indirect_block() {
        let double = 12 + 256;
        let triple = double + 256 * 256;
        let levels = |logical| path(logical).unwrap().levels();
        assert_eq!([0, 11, 12, double - 1, double, triple].map(levels), [0, 0, 1, 1, 2, 3]);
        let firsts = |logical| {
            let path = path(logical).unwrap();
            (1..=path.levels()).map(|level| path.first_below(level)).collect::<Vec<_>>()
        };
        assert_eq!(firsts(20), [12]);
        assert_eq!(firsts(double + 300), [double + 256, double]);
        assert_eq!(firsts(triple + 65_536 + 5), [triple + 65_536, triple + 65_536, triple]);
        let trees = [1, 2, 3].map(|levels| first_of_tree(BlockSize::MIN, levels));
        assert_eq!(trees, [12, double, triple].map(u64::from));
        let path = path(double + 300).unwrap();
        assert_eq!((path.index(), path.room()), (44, 212));
        assert_eq!(path.end_below(1), u64::from(double) + 512);
    }

    /// The walk visits each block of a range once, through the slots of its path.
    #[test]
    fn walk_and_path_agree() {
        let mut map = [0; MAP_ENTRIES];
        (map[11], map[12], map[13]) = (1, 2, 3);
        let mut tables: Vec<Block> = vec![[0; 1024].into(); 6];
        let mut set = |table: usize, index, value| {
            let mut bytes = tables[table].to_vec();
            set_pointer(&mut bytes, index, value);
            tables[table] = bytes.into();
        };
        [(2, 0, 90), (2, 255, 91), (3, 1, 4), (3, 255, 5), (4, 7, 92), (5, 255, 93)]
            .into_iter()
            .for_each(|(table, index, value)| set(table, index, value));
        let reached = |range| {
            let mut reached = Vec::new();
            let mut visitor = |at: &Pointer| {
                if at.level > 0 {
                    return Ok(Some(tables[at.block.0 as usize].clone()));
                }
                let steps = path(at.first as u32).unwrap();
                let last = match at.slot {
                    Slot::Inode(index) | Slot::Indirect(_, index) => index,
                };
                assert_eq!(last, steps.index());
                reached.push((at.first, at.block.0));
                Ok(None)
            };
            walk(&map, BlockSize::MIN, range, &mut visitor).unwrap();
            reached
        };
        let (double, last) = (12 + 256, 12 + 256 + 65_536 - 1);
        let all = [(11, 1), (12, 90), (267, 91), (double + 263, 92), (last, 93)];
        assert_eq!(reached(WHOLE_FILE), all);
        assert_eq!(reached(12..double), all[1..3]);
        assert_eq!(reached(13..last), all[2..4]);
        assert_eq!(reached(last..last + 1), all[4..]);
        assert_eq!(reached(double..double + 263), []);
    }
}
