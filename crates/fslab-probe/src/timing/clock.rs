//! The clock for timing: the validated cycle counter on one processor.

use std::io;

use fslab_compare::{Pinned, allowed_processors};
use fslab_sys::cycles::{CycleCounter, Unavailable};

use super::validation::{Extent, Validation};

/// The reason why there is no clock.
#[derive(Debug, thiserror::Error)]
pub enum ClockError {
    /// There is no cycle counter.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// The validation failed with a system error.
    #[error("can't validate the cycle counter: {0}")]
    System(#[from] io::Error),
    /// The counter is not reliable.
    #[error("the cycle counter is not reliable: {}", reasons.join("; "))]
    Refused {
        /// The reasons.
        reasons: Vec<String>,
    },
}

/// A validated cycle counter. Until it is dropped, the thread that made it is pinned to one
/// processor.
#[derive(Debug)]
pub struct Clock {
    counter: CycleCounter,
    validation: Validation,
    /// The identifier of the processor to which the thread is pinned.
    home: u32,
    _pinned: Pinned,
}

impl Clock {
    /// Validates the counter and pins the calling thread to a processor.
    ///
    /// # Errors
    /// See [`ClockError`].
    pub fn new(extent: Extent) -> Result<Self, ClockError> {
        let counter = CycleCounter::new()?;
        let validation = Validation::of(counter, extent)?;
        let reasons = validation.objections();
        if !reasons.is_empty() {
            return Err(ClockError::Refused { reasons });
        }
        let last = allowed_processors()?.last().copied().unwrap_or_default();
        let pinned = Pinned::on(&[last])?;
        Ok(Self { counter, validation, home: counter.end().processor, _pinned: pinned })
    }

    /// Returns the result of the validation.
    #[must_use]
    pub fn validation(&self) -> &Validation {
        &self.validation
    }

    /// Returns the ticks that `work` takes, or `None` if the thread was moved to another processor
    /// during `work`.
    pub(super) fn ticks(&self, work: impl FnOnce() -> io::Result<()>) -> io::Result<Option<u64>> {
        let begin = self.counter.begin();
        let done = work();
        let end = self.counter.end();
        done?;
        Ok((end.processor == self.home).then(|| end.ticks.saturating_sub(begin)))
    }

    /// Converts ticks to nanoseconds.
    #[must_use]
    pub fn nanoseconds(&self, ticks: f64) -> f64 {
        ticks * 1e9 / self.validation.regression.ticks_per_second
    }
}
