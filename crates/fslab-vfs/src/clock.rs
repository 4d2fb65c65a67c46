//! The clock as a parameter: layers read no other.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// A clock that never goes back.
pub trait Clock: Send + Sync {
    /// Nanoseconds since some fixed point of this clock.
    fn now_ns(&self) -> u64;
}

/// The machine's monotonic clock, from when it was made.
#[derive(Clone, Copy, Debug)]
pub struct MonotonicClock {
    start: Instant,
}

impl Default for MonotonicClock {
    fn default() -> Self {
        Self { start: Instant::now() }
    }
}

impl Clock for MonotonicClock {
    fn now_ns(&self) -> u64 {
        // 584 years fit.
        self.start.elapsed().as_nanos() as u64
    }
}

/// A clock that goes one step each time it is asked: for tests that expect exact durations.
#[derive(Debug)]
pub struct SteppingClock {
    now_ns: AtomicU64,
    step_ns: u64,
}

impl SteppingClock {
    /// A clock at 0 that goes `step_ns` at each look.
    #[must_use]
    pub fn new(step_ns: u64) -> Self {
        Self { now_ns: AtomicU64::new(0), step_ns }
    }
}

impl Clock for SteppingClock {
    fn now_ns(&self) -> u64 {
        self.now_ns.fetch_add(self.step_ns, Ordering::Relaxed)
    }
}
