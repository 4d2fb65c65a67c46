//! The interface to the time of day, so that tests can replace the system's clock.

use std::time::Duration;

use fslab_vfs::Timestamp;

/// A source of the time of day. Monotonic time comes from a [`fslab_vfs::Clock`].
pub trait Calendar: Send + Sync {
    /// Returns the current time.
    fn now(&self) -> Timestamp;
}

/// Returns the time since `since`, in whole seconds; zero if the clock was set back.
#[must_use]
pub fn age(since: Timestamp, now: Timestamp) -> Duration {
    let seconds = u64::try_from(now.seconds.saturating_sub(since.seconds)).unwrap_or(0);
    Duration::from_secs(seconds)
}
