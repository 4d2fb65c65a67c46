//! Whether bytes move.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Bytes that count as progress: an answer that trickles more slowly is stalled.
const PROGRESS_BYTES: usize = 1024;

/// The progress of one request.
pub struct Pace {
    limit: Duration,
    state: Mutex<State>,
}

struct State {
    /// When the request is stalled, unless bytes move before.
    deadline: Instant,
    /// Bytes that moved since it was set.
    moved: usize,
}

impl Pace {
    /// A request that begins now.
    pub fn new(limit: Duration) -> Self {
        let state = State { deadline: Instant::now() + limit, moved: 0 };
        Self { limit, state: Mutex::new(state) }
    }

    /// Notes that bytes moved.
    pub fn moved(&self, bytes: usize) {
        let mut state = self.state.lock();
        state.moved = state.moved.saturating_add(bytes);
        if state.moved >= PROGRESS_BYTES {
            *state = State { deadline: Instant::now() + self.limit, moved: 0 };
        }
    }

    /// Returns once nothing has moved for the limit.
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
