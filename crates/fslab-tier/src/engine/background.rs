//! Control of the thread that does what the mount does by itself, for the end of the engine.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fslab_vfs::{Cancellation, Request};
use parking_lot::{Condvar, Mutex};

/// How often the clock is looked at: it is not the one that the system waits by.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// How long the end of an engine waits for a round to end: an archive may hold it up for ever.
pub(super) const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// What a cancelled round finds in its request.
const CANCELLED: u64 = 1;

/// Whether rounds go on.
#[derive(Default)]
pub(crate) struct BackgroundThread {
    going: Mutex<Going>,
    changed: Condvar,
    /// Seen by a round under way, between two blocks.
    cancelled: Arc<AtomicU64>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Going {
    /// There are none.
    #[default]
    Never,
    /// A thread does them.
    On,
    /// The thread is to end.
    Stopping,
    /// It has ended.
    Ended,
}

impl BackgroundThread {
    /// Ends rounds; `false` where one is still under way.
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

    /// Waits a little; `false` once rounds are to end.
    pub(crate) fn wait(&self) -> bool {
        let mut going = self.going.lock();
        if *going == Going::On {
            self.changed.wait_for(&mut going, LOOK_EVERY);
        }
        *going == Going::On
    }

    /// The thread starts.
    pub(crate) fn begin(&self) {
        *self.going.lock() = Going::On;
    }

    pub(crate) fn ended(&self) {
        *self.going.lock() = Going::Ended;
        self.changed.notify_all();
    }

    /// A request that ends when the thread is to end.
    pub(crate) fn request(&self) -> Request {
        let cancellation = Cancellation::new(Arc::clone(&self.cancelled), CANCELLED);
        Request { cancellation, ..Request::default() }
    }
}
