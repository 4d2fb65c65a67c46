//! Outlines an index for drawing: its blocks, starting at the root, with their fill levels.

use super::index::Table;
use super::{DirectoryBlocks, entry, read_checked};
use crate::error::Result;
use crate::flaw::Flaw;
use crate::types::FileBlock;

/// One block of an index, or a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Branch {
    /// 0 for the root; the level of a leaf is one more than that of its index block.
    pub level: usize,
    /// The index of the block in the directory.
    pub block: FileBlock,
    /// The lowest hash that belongs to this block.
    pub from: u32,
    /// Whether names with that hash begin in the previous block.
    pub continued: bool,
    /// Whether the block is a leaf.
    pub is_leaf: bool,
    /// For an index block, the number of entries; for a leaf, the bytes that its names need.
    pub used: usize,
    /// The maximum value of `used`.
    pub limit: usize,
}

/// Calls `visit` for every block of an indexed directory, parents before children.
///
/// # Errors
/// [`crate::Error::Damaged`] if the index is damaged; errors of reading a block.
pub fn outline<B: DirectoryBlocks>(blocks: &B, visit: &mut dyn FnMut(Branch)) -> Result<()> {
    let levels = read_checked(blocks, FileBlock(0), |bytes| Ok(Table::of_root(bytes)?.0.levels))?;
    // The walk is limited to the number of blocks, so that it ends even if the index has a cycle.
    let mut left = blocks.count();
    let mut waiting = vec![(0, FileBlock(0), 0)];
    while let Some((level, block, hash)) = waiting.pop() {
        let Some(rest) = left.checked_sub(1) else {
            let what = Flaw::IndexCircle;
            return Err(super::damaged(blocks, block, what));
        };
        left = rest;
        let is_leaf = level > usize::from(levels);
        let (used, limit) = read_checked(blocks, block, |bytes| {
            if is_leaf {
                return Ok((entry::live_bytes(bytes)?, bytes.len()));
            }
            let table = Table::of_level(bytes, level)?;
            let below = table.entries().into_iter().rev();
            waiting.extend(below.map(|(from, child)| (level + 1, child, from.max(hash))));
            Ok((table.count(), table.limit()))
        })?;
        let (from, continued) = (hash & !1, hash & 1 == 1);
        visit(Branch { level, block, from, continued, is_leaf, used, limit });
    }
    Ok(())
}
