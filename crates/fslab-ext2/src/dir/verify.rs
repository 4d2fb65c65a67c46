//! Verifies an index: each block occurs in it once, and each name is in the leaf of its hash.
//!
//! This check is stricter than e2fsck, which accepts names with the same hash in two leaves even if
//! the continuation bit is missing. Without that bit, the kernel does not search the second leaf.

use super::DirectoryBlocks;
use super::entry::Entries;
use super::hash::Hasher;
use super::index::Table;
use crate::error::Result;
use crate::flaw::{Checked, Flaw};
use crate::types::FileBlock;

/// A flaw of an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct IndexFlaw {
    /// The block that contains the flaw.
    pub block: FileBlock,
    /// The kind of flaw.
    pub what: Flaw,
}

/// Verifies an indexed directory and returns its flaws, at most [`FLAWS_MAX`].
///
/// # Errors
/// Errors of reading a block. Damage is part of the result.
pub fn verify<B: DirectoryBlocks>(blocks: &B) -> Result<Vec<IndexFlaw>> {
    let mut walk = Walk::new(blocks);
    let root = walk.read(FileBlock(0), |bytes| {
        let (info, table) = Table::of_root(bytes)?;
        Ok((info, table.entries()))
    })?;
    let Some((info, children)) = root else { return Ok(walk.flaws) };
    walk.hasher = blocks.rules().hasher.with_version(info.version);
    walk.levels = usize::from(info.levels) + 1;
    if info.levels >= blocks.rules().levels {
        walk.complain(FileBlock(0), Flaw::IndexTooDeep);
        return Ok(walk.flaws);
    }
    walk.seen[0] = true;
    walk.index_block(&children, 0, Bounds { from: 0, next: None })?;
    walk.unseen();
    Ok(walk.flaws)
}

/// Maximum number of flaws returned for one directory.
pub const FLAWS_MAX: usize = 100;

/// A range of hashes from `from` to `next`; both include a continuation bit.
#[derive(Clone, Copy)]
struct Bounds {
    from: u32,
    next: Option<u32>,
}

type Children = Vec<(u32, FileBlock)>;

struct Walk<'a, B> {
    blocks: &'a B,
    hasher: Hasher,
    seen: Vec<bool>,
    /// Number of index levels, including the root.
    levels: usize,
    flaws: Vec<IndexFlaw>,
}

impl<'a, B: DirectoryBlocks> Walk<'a, B> {
    fn new(blocks: &'a B) -> Self {
        Self {
            blocks,
            hasher: blocks.rules().hasher,
            seen: vec![false; blocks.count() as usize],
            levels: 0,
            flaws: Vec::new(),
        }
    }

    fn complain(&mut self, block: FileBlock, what: Flaw) {
        if self.flaws.len() < FLAWS_MAX {
            self.flaws.push(IndexFlaw { block, what });
        }
    }

    /// Reads a block; if it is damaged, records the flaw.
    fn read<R>(
        &mut self,
        block: FileBlock,
        look: impl FnOnce(&[u8]) -> Checked<R>,
    ) -> Result<Option<R>> {
        match self.blocks.read(block, look)? {
            Ok(answer) => Ok(Some(answer)),
            Err(what) => {
                self.complain(block, what);
                Ok(None)
            }
        }
    }

    fn index_block(&mut self, children: &Children, level: usize, bounds: Bounds) -> Result<()> {
        for (at, &(hash, block)) in children.iter().enumerate() {
            let next = children.get(at + 1).map(|&(hash, _)| hash);
            let from = if at == 0 { bounds.from } else { hash };
            let within = Bounds { from, next: next.or(bounds.next) };
            if within.next.is_some_and(|next| next & !1 < from & !1) {
                self.complain(block, Flaw::HashOrder);
            }
            if !self.first_visit(block) {
                continue;
            }
            if level + 1 == self.levels {
                self.leaf(block, within)?;
            } else if let Some(below) =
                self.read(block, |bytes| Table::of_node(bytes).map(Table::entries))?
            {
                self.index_block(&below, level + 1, within)?;
            }
        }
        Ok(())
    }

    fn first_visit(&mut self, block: FileBlock) -> bool {
        match self.seen.get_mut(block.0 as usize) {
            None => self.complain(block, Flaw::IndexBeyondEnd),
            Some(true) => self.complain(block, Flaw::IndexTwice),
            Some(seen) => {
                *seen = true;
                return true;
            }
        }
        false
    }

    fn leaf(&mut self, block: FileBlock, bounds: Bounds) -> Result<()> {
        let hasher = self.hasher;
        let found = self.read(block, |bytes| {
            let mut flaw = None;
            for entry in Entries::of(bytes) {
                let entry = entry?;
                if entry.is_live() {
                    flaw = flaw.or(bounds.flaw_of(hasher.hash(entry.name).major));
                }
            }
            Ok(flaw)
        })?;
        if let Some(what) = found.flatten() {
            self.complain(block, what);
        }
        Ok(())
    }

    fn unseen(&mut self) {
        for block in 0..self.seen.len() {
            if !self.seen[block] {
                self.complain(FileBlock(block as u32), Flaw::BlockNotIndexed);
            }
        }
    }
}

impl Bounds {
    fn flaw_of(self, hash: u32) -> Option<Flaw> {
        if hash < self.from & !1 {
            return Some(Flaw::HashBelowLeaf);
        }
        match self.next {
            Some(next) if hash > next & !1 => Some(Flaw::HashAboveLeaf),
            Some(next) if hash == next => Some(Flaw::HashUnreachable),
            _ => None,
        }
    }
}
