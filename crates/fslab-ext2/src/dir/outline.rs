//! An index as a list of its blocks from the root down, each with how full it is: for drawing.

use super::index::Table;
use super::{DirectoryBlocks, entry, read_checked};
use crate::error::Result;
use crate::flaw::Flaw;
use crate::types::FileBlock;

/// One block of an index, or a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Branch {
    /// 0 for the root; leaves are one below the last index block.
    pub level: usize,
    /// The block, counted within the directory.
    pub block: FileBlock,
    /// The hash from which on it has names.
    pub from: u32,
    /// Whether names of that hash begin in the block before.
    pub continued: bool,
    /// Whether it is a leaf.
    pub is_leaf: bool,
    /// Entries of an index block, or bytes that the names of a leaf need.
    pub used: usize,
    /// How much that could be.
    pub limit: usize,
}

/// Gives every block of an indexed directory to `visit`, each before those below it.
///
/// # Errors
/// [`crate::Error::Damaged`] where the index is, and what the store answers.
pub fn outline<B: DirectoryBlocks>(blocks: &B, visit: &mut dyn FnMut(Branch)) -> Result<()> {
    let levels = read_checked(blocks, FileBlock(0), |bytes| Ok(Table::of_root(bytes)?.0.levels))?;
    // As many blocks as there are: an index that leads in circles ends.
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
