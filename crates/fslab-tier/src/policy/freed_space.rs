//! Measures how much space releases free, by querying the file system. Blocks shared with a
//! snapshot or a reflink remain in use, and compressed files have fewer blocks.

use super::Watermarks;
use super::file_facts::{Fullness, fullness};
use crate::engine::Tier;
use crate::error::{Error, Result};

/// Maximum and minimum of the bytes that are released before the first measurement. If releases
/// free no space, this many bytes are released without effect.
const FIRST_BYTES_MAX: u64 = 64 << 20;
const FIRST_BYTES_MIN: u64 = 1 << 20;

/// Maximum number of bytes that are released between two measurements. Each measurement syncs the
/// file system.
const STEP_BYTES_MAX: u64 = 1 << 30;

/// Releasing stops if the freed bytes are fewer than the released bytes divided by this number.
const SHARE_MIN: u64 = 8;

/// Compares released bytes with freed space.
pub(super) struct Freed {
    low: f64,
    before: Fullness,
    /// Bytes released since the last measurement.
    released: u64,
    step: u64,
}

/// The result of a measurement.
pub(super) struct Measured {
    /// Bytes released since the previous measurement.
    pub(super) released: u64,
    /// Bytes that became free since the previous measurement.
    pub(super) freed: u64,
    /// Bytes still to be freed.
    pub(super) wanted: u64,
}

impl Measured {
    /// Returns whether further releases would be useless.
    pub(super) fn is_in_vain(&self) -> bool {
        // With fewer bytes, the file system's own use of space would hide the result.
        self.released >= FIRST_BYTES_MIN && self.freed < self.released / SHARE_MIN
    }
}

impl Freed {
    /// Begins to measure, before any of `wanted` bytes is released.
    pub(super) fn begin(tier: &Tier, watermarks: Watermarks, wanted: u64) -> Result<Self> {
        let step = (wanted / 4).clamp(FIRST_BYTES_MIN, FIRST_BYTES_MAX);
        Ok(Self { low: watermarks.low, before: fullness(tier)?, released: 0, step })
    }

    /// Adds released bytes.
    pub(super) fn add(&mut self, bytes: u64) {
        self.released += bytes;
    }

    /// Bytes that may be released before the next measurement is due.
    pub(super) fn bytes_left(&self) -> u64 {
        self.step.saturating_sub(self.released)
    }

    /// Queries the file system; returns `None` if nothing was released since the last measurement.
    pub(super) fn measure(&mut self, tier: &Tier) -> Result<Option<Measured>> {
        if self.released == 0 {
            return Ok(None);
        }
        // Some file systems report freed space only after a sync.
        tier.sync_tree().map_err(Error::below(b""))?;
        let now = fullness(tier)?;
        let (released, freed) = (std::mem::take(&mut self.released), now.freed_since(&self.before));
        let wanted = now.above(self.low);
        self.before = now;
        self.step = self.step.saturating_mul(2).min(STEP_BYTES_MAX);
        Ok(Some(Measured { released, freed, wanted }))
    }
}
