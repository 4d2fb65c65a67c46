//! Requests that wait for a thread.
//!
//! Where as many requests wait as there may be threads, the last thread goes on reading, and what
//! would keep it is held here: nobody serves it, and signals of its caller reach it all the same.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::channel::Channel;
use crate::incoming::{Incoming, Malformed};

/// Requests that are held.
const COUNT_MAX: usize = 1 << 16;
/// Their bytes: those of writes are what is to be written.
const BYTES_MAX: usize = 64 << 20;

/// What is more is no read.
const SMALL_MAX: usize = 4096;

/// A request as it came.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    bytes: Vec<u8>,
    unique: u64,
    /// The way it came, which its reply must go.
    pub channel: Arc<dyn Channel>,
    pub arrived: Instant,
}

impl Held {
    /// Keeps a request that was read.
    pub fn new(incoming: &Incoming<'_>, bytes: &[u8], next: (&Arc<dyn Channel>, Instant)) -> Self {
        let (channel, arrived) = next;
        let unique = incoming.header.unique;
        Self { bytes: bytes.to_vec(), unique, channel: Arc::clone(channel), arrived }
    }

    /// The request.
    pub fn parse(&self) -> Result<Incoming<'_>, Malformed> {
        Incoming::parse(&self.bytes)
    }
}

/// Those that are held, the first first.
#[derive(Debug, Default)]
pub(crate) struct HeldRequests {
    kept: Mutex<Kept>,
    /// So that a request costs one load as long as none is held.
    count: AtomicUsize,
}

#[derive(Debug, Default)]
struct Kept {
    requests: VecDeque<Held>,
    bytes: usize,
}

impl HeldRequests {
    /// Holds a request; gives it back where there is no more room.
    pub fn push(&self, held: Held) -> Result<(), Held> {
        let mut kept = self.kept.lock();
        let bytes = kept.bytes + held.bytes.len();
        if kept.requests.len() >= COUNT_MAX || bytes > BYTES_MAX {
            return Err(held);
        }
        kept.bytes = bytes;
        kept.requests.push_back(held);
        self.count.store(kept.requests.len(), Ordering::SeqCst);
        Ok(())
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }

    /// The one that has been there for longest.
    pub fn next(&self) -> Option<Held> {
        self.take_where(|_| true)
    }

    /// Some of them, as many as said at most and none that is large, counted on from one.
    pub fn some(&self, from: usize, count: usize) -> Vec<Held> {
        let kept = self.kept.lock();
        let length = kept.requests.len();
        let all = kept.requests.iter().cycle().skip(from.checked_rem(length).unwrap_or(0));
        let some = all.take(count.min(length));
        some.filter(|held| held.bytes.len() <= SMALL_MAX).cloned().collect()
    }

    /// The one of a number.
    pub fn take(&self, unique: u64) -> Option<Held> {
        self.take_where(|held| held.unique == unique)
    }

    /// The first that came so long ago.
    pub fn older_than(&self, age: Duration) -> Option<Held> {
        self.take_where(|held| held.arrived.elapsed() >= age)
    }

    fn take_where(&self, wanted: impl Fn(&Held) -> bool) -> Option<Held> {
        if self.count() == 0 {
            return None;
        }
        let mut kept = self.kept.lock();
        let index = kept.requests.iter().position(wanted)?;
        let held = kept.requests.remove(index)?;
        kept.bytes -= held.bytes.len();
        self.count.store(kept.requests.len(), Ordering::SeqCst);
        Some(held)
    }
}
