//! How fast archives are written to and read: so many bytes a second, over any longer time.
//!
//! A bucket of tokens that holds one piece: the first piece goes at once, and each later one when
//! those before it would have gone at the rate. Idle time is not saved up. What goes first is not
//! decided here: a thread that recalls waits until more may go, and only then takes the most urgent
//! recall there is, so that who waits for bytes goes before what was asked for in advance.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use fslab_vfs::{Clock, Request};
use parking_lot::Mutex;

use crate::error::{Error, Result};

/// How often who must wait looks at the clock, and whether he still wants to.
const LOOK_EVERY: Duration = Duration::from_millis(5);

const SECOND_NS: u128 = 1_000_000_000;

/// Bytes a second that may go one way.
pub struct RateLimit {
    bytes_per_second: NonZeroU64,
    clock: Arc<dyn Clock>,
    /// When all that went so far would have gone at the rate.
    paid_ns: Mutex<u64>,
}

impl RateLimit {
    /// So many bytes a second; none for 0, which is no limit.
    #[must_use]
    pub fn new(bytes_per_second: u64, clock: &Arc<dyn Clock>) -> Option<Self> {
        let bytes_per_second = NonZeroU64::new(bytes_per_second)?;
        Some(Self { bytes_per_second, clock: Arc::clone(clock), paid_ns: Mutex::new(0) })
    }

    /// Whether more may go now.
    #[must_use]
    pub fn is_open(&self) -> bool {
        *self.paid_ns.lock() <= self.clock.now_ns()
    }

    /// Counts bytes that go now, whether they may or not.
    pub fn charge(&self, bytes: u64) {
        self.add(&mut self.paid_ns.lock(), bytes);
    }

    /// Waits until more may go, and counts it.
    ///
    /// # Errors
    /// Where whoever asked is gone.
    pub fn pass(&self, bytes: u64, request: &Request) -> Result<()> {
        while !self.try_pass(bytes) {
            request.cancellation.check().or(Err(Error::Interrupted))?;
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }

    /// Waits until more may go, or there is nothing to wait for any more.
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

/// What a transfer keeps to: the limits of the engine and of its requester, while that one waits.
#[derive(Clone, Copy)]
pub struct Pace<'a> {
    /// Ends the transfer when it is cancelled.
    pub request: &'a Request,
    /// The limits.
    pub limits: [Option<&'a RateLimit>; 2],
}

impl Pace<'_> {
    /// Waits until more may go by each limit, and counts it.
    ///
    /// # Errors
    /// As [`RateLimit::pass`].
    pub fn pass(self, bytes: u64) -> Result<()> {
        self.limits.into_iter().flatten().try_for_each(|limit| limit.pass(bytes, self.request))
    }

    /// Checks that the transfer goes on.
    ///
    /// # Errors
    /// [`Error::Interrupted`].
    pub fn check(self) -> Result<()> {
        self.request.cancellation.check().or(Err(Error::Interrupted))
    }
}
