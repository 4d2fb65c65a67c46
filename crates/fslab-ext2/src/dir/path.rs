//! A way through an index from its root to a leaf, and the steps to the leaves beside it.

use super::hash::{Hasher, NameHash};
use super::index::{RootInfo, Table};
use super::{DirectoryBlocks, damaged, read_checked};
use crate::error::Result;
use crate::flaw::Flaw;
use crate::types::FileBlock;

/// The most levels of index blocks any directory has.
const LEVELS_MAX: usize = 3;

/// One index block on a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    /// The index block.
    pub(crate) block: FileBlock,
    /// The entry that the path follows.
    pub(crate) at: usize,
    /// Entries in the block.
    pub(crate) count: usize,
    /// Where the entry leads to.
    pub(crate) child: FileBlock,
    /// The hash of the entry behind it, with its continuation bit.
    next_hash: Option<u32>,
}

impl Frame {
    fn new(block: FileBlock, table: Table<'_>, at: usize) -> Self {
        Self {
            block,
            at,
            count: table.count(),
            child: table.block(at),
            next_hash: table.next_hash(at),
        }
    }
}

/// From the root to a leaf; the frames are those of the first `levels` index blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Path {
    frames: [Frame; LEVELS_MAX],
    levels: usize,
    info: RootInfo,
}

impl Path {
    /// The path to the first leaf that names of a hash can be in.
    pub(crate) fn to_hash<B: DirectoryBlocks>(blocks: &B, hash: u32) -> Result<Self> {
        Self::descend(blocks, |_| hash).map(|(path, _)| path)
    }

    /// The path to the first leaf that a name can be in, and its hash by the directory's function.
    #[inline]
    pub(crate) fn to_name<B: DirectoryBlocks>(blocks: &B, name: &[u8]) -> Result<(Self, NameHash)> {
        let mut hash = NameHash { major: 0, minor: 0 };
        let (path, _) = Self::descend(blocks, |hasher| {
            hash = hasher.hash(name);
            hash.major
        })?;
        Ok((path, hash))
    }

    fn descend<B: DirectoryBlocks>(
        blocks: &B,
        hash_with: impl FnOnce(Hasher) -> u32,
    ) -> Result<(Self, u32)> {
        let root = FileBlock(0);
        let (info, hash, frame) = read_checked(blocks, root, |block| {
            let (info, table) = Table::of_root(block)?;
            let hash = hash_with(blocks.rules().hasher.with_version(info.version));
            Ok((info, hash, Frame::new(root, table, table.search(hash))))
        })?;
        if usize::from(info.levels) >= LEVELS_MAX || info.levels >= blocks.rules().levels {
            return Err(damaged(blocks, root, Flaw::IndexTooDeep));
        }
        let mut path = Self { frames: [frame; LEVELS_MAX], levels: 1, info };
        path.complete(blocks, |table| table.search(hash))?;
        Ok((path, hash))
    }

    /// Goes on from the last frame down to the leaf; `choose` picks an entry of each node.
    fn complete<B: DirectoryBlocks>(
        &mut self,
        blocks: &B,
        choose: impl Fn(Table<'_>) -> usize,
    ) -> Result<()> {
        while self.levels <= usize::from(self.info.levels) {
            let block = self.leaf();
            let frame = read_checked(blocks, block, |bytes| {
                let table = Table::of_node(bytes)?;
                Ok(Frame::new(block, table, choose(table)))
            })?;
            self.frames[self.levels] = frame;
            self.levels += 1;
        }
        Ok(())
    }

    /// The block the path ends in.
    pub(crate) fn leaf(&self) -> FileBlock {
        self.frames[self.levels - 1].child
    }

    /// What the root says.
    pub(crate) fn info(&self) -> RootInfo {
        self.info
    }

    /// The index blocks, the root first.
    pub(crate) fn frames(&self) -> &[Frame] {
        &self.frames[..self.levels]
    }

    /// The index block nearest to the leaf.
    pub(crate) fn bottom(&self) -> &Frame {
        &self.frames[self.levels - 1]
    }

    /// The hash from which the next leaf's names are, with its continuation bit; `None` behind
    /// the last leaf.
    #[inline]
    pub(crate) fn next_hash(&self) -> Option<u32> {
        self.frames().iter().rev().find_map(|frame| frame.next_hash)
    }

    /// Whether names of this hash may go on in the next leaf.
    #[inline]
    pub(crate) fn continues(&self, hash: u32) -> bool {
        self.next_hash().is_some_and(|next| next & !1 == hash)
    }

    /// Steps to the next leaf; `false` behind the last.
    pub(crate) fn advance<B: DirectoryBlocks>(&mut self, blocks: &B) -> Result<bool> {
        let Some(level) = self.frames().iter().rposition(|frame| frame.next_hash.is_some()) else {
            return Ok(false);
        };
        self.turn(blocks, level, self.frames[level].at + 1, |_| 0)?;
        Ok(true)
    }

    /// Steps to the leaf before; `false` at the first.
    pub(crate) fn retreat<B: DirectoryBlocks>(&mut self, blocks: &B) -> Result<bool> {
        let Some(level) = self.frames().iter().rposition(|frame| frame.at > 0) else {
            return Ok(false);
        };
        self.turn(blocks, level, self.frames[level].at - 1, |table| table.count() - 1)?;
        Ok(true)
    }

    /// Follows another entry at a level, and below it those that `choose` picks.
    fn turn<B: DirectoryBlocks>(
        &mut self,
        blocks: &B,
        level: usize,
        at: usize,
        choose: impl Fn(Table<'_>) -> usize,
    ) -> Result<()> {
        let block = self.frames[level].block;
        self.frames[level] = read_checked(blocks, block, |bytes| {
            let table = Table::of_level(bytes, level)?;
            (at < table.count())
                .then(|| Frame::new(block, table, at))
                .ok_or::<Flaw>(Flaw::IndexChanged)
        })?;
        self.levels = level + 1;
        self.complete(blocks, choose)
    }
}

/// Counts leaves off, so that an index that leads in circles ends in an error: no directory has
/// more leaves than blocks.
pub(crate) struct LeafBudget(u32);

impl LeafBudget {
    pub(crate) fn new<B: DirectoryBlocks>(blocks: &B) -> Self {
        Self(blocks.count())
    }

    pub(crate) fn spend<B: DirectoryBlocks>(&mut self, blocks: &B) -> Result<()> {
        self.0 = self
            .0
            .checked_sub(1)
            .ok_or_else(|| damaged(blocks, FileBlock(0), Flaw::IndexCircle))?;
        Ok(())
    }
}
