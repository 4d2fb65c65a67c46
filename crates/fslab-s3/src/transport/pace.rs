//! Tracks whether bytes move.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// The number of bytes that is regarded as progress. A slower answer is stalled.
const PROGRESS_BYTES: usize = 1024;

/// The progress of one request.
pub struct Pace {
    limit: Duration,
    state: Mutex<State>,
}

struct State {
    /// The time at which the request is stalled unless bytes move before.
    deadline: Instant,
    /// The bytes moved since the deadline was set.
    moved: usize,
}

impl Pace {
    /// Starts the progress of a request now.
    pub fn new(limit: Duration) -> Self {
        let state = State { deadline: Instant::now() + limit, moved: 0 };
        Self { limit, state: Mutex::new(state) }
    }

    /// Records moved bytes.
    pub fn moved(&self, bytes: usize) {
        let mut state = self.state.lock();
        state.moved = state.moved.saturating_add(bytes);
        if state.moved >= PROGRESS_BYTES {
            *state = State { deadline: Instant::now() + self.limit, moved: 0 };
        }
    }

    /// Returns when no bytes have moved for the limit.
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
