//! Measures how much space releases free, by asking the file system: blocks shared with a snapshot
//! or a reflink stay in use, and compressed files have fewer blocks.

use fslab_vfs::{FileSystem, Ino};

use super::Watermarks;
use super::file_facts::{Fullness, fullness};
use crate::engine::Tier;
use crate::error::{Error, Result};
use crate::lower::own_request;

/// Bytes that are released before the file system is asked for the first time, at most and at
/// least: so much goes for nothing where releasing frees nothing.
const FIRST_BYTES_MAX: u64 = 64 << 20;
const FIRST_BYTES_MIN: u64 = 1 << 20;

/// Bytes that are released between two questions: each costs a sync of the file system.
const STEP_BYTES_MAX: u64 = 1 << 30;

/// The share of what was released that must be free for more to be released: one in so many.
const SHARE_MIN: u64 = 8;

/// Compares what was released with what is free.
pub(super) struct Freed {
    low: f64,
    before: Fullness,
    /// Bytes that files have given back since.
    released: u64,
    step: u64,
}

/// What the file system has told.
pub(super) struct Measured {
    /// Bytes that were released since it told the last time.
    pub(super) released: u64,
    /// Bytes that became free meanwhile.
    pub(super) freed: u64,
    /// Bytes that are to be freed yet.
    pub(super) wanted: u64,
}

impl Measured {
    /// Whether releasing more is of no use.
    pub(super) fn is_in_vain(&self) -> bool {
        // Of less, the blocks are lost in what the file system needs for itself.
        self.released >= FIRST_BYTES_MIN && self.freed < self.released / SHARE_MIN
    }
}

impl Freed {
    /// Begins before anything is released of so many bytes that are wanted.
    ///
    /// # Errors
    /// Errors of the file system below.
    pub(super) fn begin(tier: &Tier, watermarks: Watermarks, wanted: u64) -> Result<Self> {
        let step = (wanted / 4).clamp(FIRST_BYTES_MIN, FIRST_BYTES_MAX);
        Ok(Self { low: watermarks.low, before: fullness(tier)?, released: 0, step })
    }

    /// Files have given back so many bytes; returns whether the file system is to be asked.
    pub(super) fn add(&mut self, bytes: u64) -> bool {
        self.released += bytes;
        self.released >= self.step
    }

    /// Asks the file system, where anything was released since it was asked.
    ///
    /// # Errors
    /// Errors of the file system below.
    pub(super) fn measure(&mut self, tier: &Tier) -> Result<Option<Measured>> {
        if self.released == 0 {
            return Ok(None);
        }
        // There are file systems that tell what was freed only once they have noted it.
        tier.lower().syncfs(&own_request(), Ino::ROOT).map_err(Error::below(b""))?;
        let now = fullness(tier)?;
        let (released, freed) = (std::mem::take(&mut self.released), now.freed_since(&self.before));
        let wanted = now.above(self.low);
        self.before = now;
        self.step = self.step.saturating_mul(2).min(STEP_BYTES_MAX);
        Ok(Some(Measured { released, freed, wanted }))
    }
}
