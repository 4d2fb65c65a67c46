//! Detects requests that make no progress.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// The number of bytes that must be transferred within the time limit. A slower request counts as
/// stalled.
const PROGRESS_BYTES: usize = 1024;

/// The progress of one request.
pub struct Pace {
    limit: Duration,
    state: Mutex<State>,
}

struct State {
    /// The time at which the request is stalled, unless enough bytes are transferred before.
    deadline: Instant,
    /// The number of bytes transferred since the deadline was set.
    moved: usize,
}

impl Pace {
    /// Starts the time limit of a request.
    pub fn new(limit: Duration) -> Self {
        let state = State { deadline: Instant::now() + limit, moved: 0 };
        Self { limit, state: Mutex::new(state) }
    }

    /// Records transferred bytes.
    pub fn moved(&self, bytes: usize) {
        let mut state = self.state.lock();
        state.moved = state.moved.saturating_add(bytes);
        if state.moved >= PROGRESS_BYTES {
            *state = State { deadline: Instant::now() + self.limit, moved: 0 };
        }
    }

    /// Waits until the request is stalled: fewer than [`PROGRESS_BYTES`] were transferred within
    /// the time limit.
    pub async fn stalled(&self) {
        loop {
            let deadline = self.state.lock().deadline;
            if Instant::now() >= deadline {
                return;
            }
            tokio::time::sleep_until(deadline).await;
        }
    }
}
