//! Limits for the rate of writing and reading archives, in bytes a second.
//!
//! A limit is a token bucket with the size of one piece. The first piece passes at once. Each later
//! piece passes once the earlier pieces would have been transferred at the limit. Idle time is not
//! saved up.
//!
//! A thread that recalls blocks waits until more bytes may pass, and only then takes the most
//! urgent recall. So recalls that a program waits for come before read-ahead.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use fslab_vfs::{Clock, Request};
use parking_lot::Mutex;

use crate::error::{Error, Result};

/// Interval at which a waiting thread checks the clock and for cancellation.
const LOOK_EVERY: Duration = Duration::from_millis(5);

const SECOND_NS: u128 = 1_000_000_000;

/// Limits the bytes that are transferred per second in one direction.
pub struct RateLimit {
    bytes_per_second: NonZeroU64,
    clock: Arc<dyn Clock>,
    /// The time at which all bytes so far would have been transferred at the limit.
    paid_ns: Mutex<u64>,
}

impl RateLimit {
    /// Makes a limit. Returns `None` for 0, which means unlimited.
    #[must_use]
    pub fn new(bytes_per_second: u64, clock: &Arc<dyn Clock>) -> Option<Self> {
        let bytes_per_second = NonZeroU64::new(bytes_per_second)?;
        Some(Self { bytes_per_second, clock: Arc::clone(clock), paid_ns: Mutex::new(0) })
    }

    /// Returns whether more bytes may pass now.
    #[must_use]
    pub fn is_open(&self) -> bool {
        *self.paid_ns.lock() <= self.clock.now_ns()
    }

    /// Counts bytes that pass now, even if they exceed the limit.
    pub fn charge(&self, bytes: u64) {
        self.add(&mut self.paid_ns.lock(), bytes);
    }

    /// Waits until more bytes may pass, and counts `bytes` as passed.
    ///
    /// # Errors
    /// [`Error::Interrupted`] if the request was cancelled.
    pub fn pass(&self, bytes: u64, request: &Request) -> Result<()> {
        while !self.try_pass(bytes) {
            request.cancellation.check().or(Err(Error::Interrupted))?;
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }

    /// Waits until more bytes may pass, or `is_over` returns true.
    pub fn wait_until_open(&self, is_over: impl Fn() -> bool) {
        while !self.is_open() && !is_over() {
            std::thread::sleep(LOOK_EVERY);
        }
    }

    fn try_pass(&self, bytes: u64) -> bool {
        let mut paid_ns = self.paid_ns.lock();
        let is_open = *paid_ns <= self.clock.now_ns();
        if is_open {
            self.add(&mut paid_ns, bytes);
        }
        is_open
    }

    fn add(&self, paid_ns: &mut u64, bytes: u64) {
        let cost_ns = u128::from(bytes) * SECOND_NS / u128::from(self.bytes_per_second.get());
        let cost_ns = u64::try_from(cost_ns).unwrap_or(u64::MAX);
        *paid_ns = (*paid_ns).max(self.clock.now_ns()).saturating_add(cost_ns);
    }
}

/// The rate limits for a transfer: the engine's own limit and the limit of the request.
#[derive(Clone, Copy)]
pub struct Pace<'a> {
    /// The request; when it is cancelled, the transfer ends.
    pub request: &'a Request,
    /// The limits.
    pub limits: [Option<&'a RateLimit>; 2],
}

impl Pace<'_> {
    /// Waits until each limit lets more bytes pass, and counts `bytes` as passed.
    ///
    /// # Errors
    /// Like [`RateLimit::pass`].
    pub fn pass(self, bytes: u64) -> Result<()> {
        self.limits.into_iter().flatten().try_for_each(|limit| limit.pass(bytes, self.request))
    }

    /// Checks that the transfer was not cancelled.
    ///
    /// # Errors
    /// [`Error::Interrupted`] if it was cancelled.
    pub fn check(self) -> Result<()> {
        self.request.cancellation.check().or(Err(Error::Interrupted))
    }
}
