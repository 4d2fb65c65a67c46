//! Clocks that are passed to layers, which read no other clock.

use std::sync::atomic::{AtomicU64, Ordering};

/// A clock that never goes back.
pub trait Clock: Send + Sync {
    /// Nanoseconds since some fixed point of this clock.
    fn now_ns(&self) -> u64;
}

/// The machine's monotonic clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct MonotonicClock;

impl Clock for MonotonicClock {
    fn now_ns(&self) -> u64 {
        // Reading `Instant` would take twice as long. The kernel's clock starts at 0 and never
        // reaches 584 years, the limit of 64 bits.
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
    }
}

/// A clock that advances one step at each reading, for tests that expect exact durations.
#[derive(Debug)]
pub struct SteppingClock {
    now_ns: AtomicU64,
    step_ns: u64,
}

impl SteppingClock {
    /// A clock at 0 that advances `step_ns` at each reading.
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
