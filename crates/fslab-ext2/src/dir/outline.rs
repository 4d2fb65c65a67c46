//! The outline of an index for drawing: its blocks from the root down, with their fill levels.

use super::index::Table;
use super::{DirectoryBlocks, entry, read_checked};
use crate::error::Result;
use crate::flaw::Flaw;
use crate::types::FileBlock;

/// One block of an index, or a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Branch {
    /// 0 for the root; a leaf is one level below its index block.
    pub level: usize,
    /// The index of the block in the directory.
    pub block: FileBlock,
    /// The lowest hash of its names.
    pub from: u32,
    /// Whether names of that hash begin in the block before.
    pub continued: bool,
    /// Whether it is a leaf.
    pub is_leaf: bool,
    /// Number of entries of an index block, or bytes that the names of a leaf need.
    pub used: usize,
    /// The maximum of `used`.
    pub limit: usize,
}

/// Calls `visit` for every block of an indexed directory, parents before children.
///
/// # Errors
/// [`crate::Error::Damaged`] if the index is damaged; errors of the store.
pub fn outline<B: DirectoryBlocks>(blocks: &B, visit: &mut dyn FnMut(Branch)) -> Result<()> {
    let levels = read_checked(blocks, FileBlock(0), |bytes| Ok(Table::of_root(bytes)?.0.levels))?;
    // The number of blocks limits the walk, so that an index with a cycle ends.
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
