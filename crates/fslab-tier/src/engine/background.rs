//! Control of the mount's background thread, which runs maintenance rounds. The shutdown of the
//! engine uses it to stop the thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fslab_vfs::{Cancellation, Request};
use parking_lot::{Condvar, Mutex};

/// Interval at which the waiting thread reads the engine's clock. The wait itself uses the system's
/// clock.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Maximum time that a shutdown waits for a round to end. An archive may delay a round without
/// limit.
pub(super) const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// The value of `cancelled` once the running round is cancelled.
const CANCELLED: u64 = 1;

/// State of the background thread.
#[derive(Default)]
pub(crate) struct BackgroundThread {
    going: Mutex<Going>,
    changed: Condvar,
    /// The cancellation flag, which a running round checks between two blocks.
    cancelled: Arc<AtomicU64>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Going {
    /// No thread was started.
    #[default]
    Never,
    /// The thread runs rounds.
    On,
    /// The thread is to end after the current round.
    Stopping,
    /// The thread has ended.
    Ended,
}

impl BackgroundThread {
    /// Stops the maintenance rounds; returns `false` if a round is still running after
    /// `STOP_TIMEOUT`.
    pub(crate) fn stop(&self) -> bool {
        self.cancelled.store(CANCELLED, Ordering::SeqCst);
        let mut going = self.going.lock();
        if *going == Going::On {
            *going = Going::Stopping;
        }
        self.changed.notify_all();
        let is_stopping = |going: &mut Going| *going == Going::Stopping;
        !self.changed.wait_while_for(&mut going, is_stopping, STOP_TIMEOUT).timed_out()
    }

    /// Waits for up to `LOOK_EVERY`; returns `false` once the rounds are to end.
    pub(crate) fn wait(&self) -> bool {
        let mut going = self.going.lock();
        if *going == Going::On {
            self.changed.wait_for(&mut going, LOOK_EVERY);
        }
        *going == Going::On
    }

    /// Records that the thread has started.
    pub(crate) fn begin(&self) {
        *self.going.lock() = Going::On;
    }

    pub(crate) fn ended(&self) {
        *self.going.lock() = Going::Ended;
        self.changed.notify_all();
    }

    /// Returns a request that is cancelled when the thread is to end.
    pub(crate) fn request(&self) -> Request {
        let cancellation = Cancellation::new(Arc::clone(&self.cancelled), CANCELLED);
        Request { cancellation, ..Request::default() }
    }
}
