//! A path through an index from its root to a leaf, with steps to the neighbouring leaves.

use super::hash::{Hasher, NameHash};
use super::index::{RootInfo, Table};
use super::{DirectoryBlocks, damaged, read_checked};
use crate::error::Result;
use crate::flaw::Flaw;
use crate::types::FileBlock;

/// Maximum number of index levels in any directory.
const LEVELS_MAX: usize = 3;

/// One index block on a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) block: FileBlock,
    /// The index of the entry that the path follows.
    pub(crate) at: usize,
    pub(crate) count: usize,
    /// The block that this entry points to.
    pub(crate) child: FileBlock,
    /// The hash of the next entry, including its continuation bit.
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

/// A path from the root to a leaf; the first `levels` frames are its index blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Path {
    frames: [Frame; LEVELS_MAX],
    levels: usize,
    info: RootInfo,
}

impl Path {
    /// Returns the path to the first leaf that can contain names with this hash.
    pub(crate) fn to_hash<B: DirectoryBlocks>(blocks: &B, hash: u32) -> Result<Self> {
        Self::descend(blocks, |_| hash).map(|(path, _)| path)
    }

    /// Returns the path to the first leaf that can contain this name, and the name's hash.
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

    /// Extends the path from its last frame to a leaf; `choose` picks an entry in each node.
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

    /// Returns the leaf at the end of the path.
    pub(crate) fn leaf(&self) -> FileBlock {
        self.frames[self.levels - 1].child
    }

    /// Returns the fields of the root that describe its tree.
    pub(crate) fn info(&self) -> RootInfo {
        self.info
    }

    /// Returns the index blocks, the root first.
    pub(crate) fn frames(&self) -> &[Frame] {
        &self.frames[..self.levels]
    }

    /// Returns the index block that points to the leaf.
    pub(crate) fn bottom(&self) -> &Frame {
        &self.frames[self.levels - 1]
    }

    /// Returns the lowest hash of the next leaf, including its continuation bit; `None` for the
    /// last leaf.
    #[inline]
    pub(crate) fn next_hash(&self) -> Option<u32> {
        self.frames().iter().rev().find_map(|frame| frame.next_hash)
    }

    /// Whether names with this hash may continue in the next leaf.
    #[inline]
    pub(crate) fn continues(&self, hash: u32) -> bool {
        self.next_hash().is_some_and(|next| next & !1 == hash)
    }

    /// Moves to the next leaf; returns `false` for the last leaf.
    pub(crate) fn advance<B: DirectoryBlocks>(&mut self, blocks: &B) -> Result<bool> {
        let Some(level) = self.frames().iter().rposition(|frame| frame.next_hash.is_some()) else {
            return Ok(false);
        };
        self.turn(blocks, level, self.frames[level].at + 1, |_| 0)?;
        Ok(true)
    }

    /// Moves to the previous leaf; returns `false` for the first leaf.
    pub(crate) fn retreat<B: DirectoryBlocks>(&mut self, blocks: &B) -> Result<bool> {
        let Some(level) = self.frames().iter().rposition(|frame| frame.at > 0) else {
            return Ok(false);
        };
        self.turn(blocks, level, self.frames[level].at - 1, |table| table.count() - 1)?;
        Ok(true)
    }

    /// Follows another entry at a level, and then the entries that `choose` picks in lower levels.
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

/// Limits the number of visited leaves to the number of blocks, so that a cyclic index is an error.
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
