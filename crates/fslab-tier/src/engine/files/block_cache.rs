//! A cache of recalled blocks that can't be stored in the lower files, because the tier is
//! read-only or the lower file system is full.

use std::ops::Range;
use std::sync::Arc;

use fslab_vfs::Result;
use quick_cache::Weighter;
use quick_cache::sync::Cache;

use crate::engine::Tier;
use crate::engine::files::edits_below::DataBelow;
use crate::engine::files::{FileState, KnownResidency};
use crate::id::Id;
use crate::stored::BLOCK_BYTES;
use crate::stored::format::blocks_met;

/// Maximum size of all cached blocks in bytes.
const BYTES_MAX: u64 = 64 << 20;

/// The identity of an object, and the number of a block in it.
type Key = (Id, u64);

/// A bounded cache of blocks with the contents that programs see, including edits made in the lower
/// directory.
pub(super) struct BlockCache(Cache<Key, Arc<Vec<u8>>, Bytes>);

/// Weighs a block by its length in bytes, plus 64 bytes for its cache entry.
#[derive(Clone)]
struct Bytes;

impl Weighter<Key, Arc<Vec<u8>>> for Bytes {
    fn weight(&self, _: &Key, block: &Arc<Vec<u8>>) -> u64 {
        block.len() as u64 + 64
    }
}

impl Default for BlockCache {
    fn default() -> Self {
        let blocks = (BYTES_MAX / BLOCK_BYTES) as usize;
        Self(Cache::with_weighter(blocks, BYTES_MAX, Bytes))
    }
}

impl BlockCache {
    fn get(&self, known: &KnownResidency, block: u64) -> Option<Arc<Vec<u8>>> {
        self.0.get(&(known.recorded.version.object, block))
    }
}

/// Where a caller needs the bytes of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) enum Needed {
    /// In the lower file, or in memory if they can't be stored there.
    Readable,
    /// In the lower file, unless the tier is read-only.
    Stored,
}

impl Tier {
    /// Returns the first block of a range that a caller must recall.
    pub(in crate::engine) fn first_missing(
        &self,
        known: &KnownResidency,
        blocks: Range<u64>,
        needed: Needed,
    ) -> Option<u64> {
        let mut rest = blocks;
        while let Some(block) = known.offline.first_in(rest.clone()) {
            if self.is_missing(known, block, needed) {
                return Some(block);
            }
            rest.start = block + 1;
        }
        None
    }

    /// Returns whether a caller must recall a block.
    pub(in crate::engine) fn is_missing(
        &self,
        known: &KnownResidency,
        block: u64,
        needed: Needed,
    ) -> bool {
        let may_be_in_memory = needed == Needed::Readable || self.settings.read_only;
        let is_in_memory = || may_be_in_memory && self.files.cache.get(known, block).is_some();
        known.offline.contains(block) && !is_in_memory()
    }

    /// Keeps a block in memory, including bytes that were written into it in the lower directory.
    pub(in crate::engine) fn keep_in_memory(
        &self,
        state: &FileState,
        block: u64,
        mut bytes: Vec<u8>,
    ) -> Result<()> {
        let Some(known) = state.known() else { return Ok(()) };
        let own = self.open_own(state.ino, false)?;
        let attr = own.attr()?;
        let begin = block * BLOCK_BYTES;
        bytes.truncate(attr.size.saturating_sub(begin).min(BLOCK_BYTES) as usize);
        for piece in self.edits_in(&DataBelow::new(&own, &attr, &known.recorded), block)? {
            let within = (piece.start - begin) as usize..(piece.end - begin) as usize;
            if let Some(part) = bytes.get_mut(within) {
                own.read(piece.start, part)?;
            }
        }
        self.files.cache.0.insert((known.recorded.version.object, block), Arc::new(bytes));
        Ok(())
    }

    /// Removes blocks of which a program has overwritten a part.
    pub(super) fn forget_in_memory(&self, known: &KnownResidency, blocks: Range<u64>) {
        let object = known.recorded.version.object;
        let mut rest = blocks;
        while let Some(block) = known.offline.first_in(rest.clone()) {
            self.files.cache.0.remove(&(object, block));
            rest.start = block + 1;
        }
    }

    /// Copies cached blocks over bytes that were read from the lower file at an offset; returns
    /// whether all offline blocks were cached.
    pub(super) fn show_from_memory(
        &self,
        known: &KnownResidency,
        offset: u64,
        buffer: &mut [u8],
    ) -> bool {
        let end = offset + buffer.len() as u64;
        let is_offline = |block: &u64| known.offline.contains(*block);
        blocks_met(offset, buffer.len() as u64).filter(is_offline).all(|block| {
            let Some(bytes) = self.files.cache.get(known, block) else { return false };
            let begin = block * BLOCK_BYTES;
            let (from, to) = (begin.max(offset), (begin + bytes.len() as u64).min(end));
            if from < to {
                let shown = &bytes[(from - begin) as usize..(to - begin) as usize];
                buffer[(from - offset) as usize..(to - offset) as usize].copy_from_slice(shown);
            }
            true
        })
    }
}
