//! The queues of requests from io_uring, one for each processor, and the mechanism that keeps
//! requests from being stuck in them.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use fslab_sys::fuse_ring::FuseRing;
use fslab_sys::processors;
use parking_lot::Mutex;

use crate::workers::Workers;

/// A request that has run this long is treated as long-running.
const LONG: Duration = Duration::from_millis(10);

/// First pause between two wake-ups of a queue that got a new thread; it doubles each time. The
/// kernel does not show whether requests wait in a queue, so queues without such requests are woken
/// too.
const WAKE_PAUSE_MIN: Duration = Duration::from_millis(5);
/// Maximum pause between two wake-ups.
const WAKE_PAUSE_MAX: Duration = Duration::from_millis(250);

/// The queues of one mount.
#[derive(Debug)]
pub(crate) struct Queues {
    device: Arc<OwnedFd>,
    mount_point: PathBuf,
    pub(super) queues: Box<[Queue]>,
    payload_bytes: usize,
    /// The threads of all queues, with the state that other threads need.
    pub workers: Arc<Workers>,
    /// Whether the last attempt to start a thread failed.
    pub(super) is_short_of_threads: AtomicBool,
}

/// The requests of one processor.
#[derive(Debug)]
pub(super) struct Queue {
    processor: usize,
    /// Number of threads that wait for a request.
    pub waiting: AtomicUsize,
    wake: Mutex<Wake>,
}

/// The time of the next wake-up of a queue, and the pause after it. If no time is set, the queue is
/// not woken until another thread is added to it.
#[derive(Debug, Default)]
struct Wake {
    at: Option<Instant>,
    pause: Duration,
}

impl Queues {
    /// Makes one queue for each possible processor of the machine.
    ///
    /// # Errors
    /// The number of processors can't be read.
    pub fn new(device: OwnedFd, mount_point: &Path, payload_bytes: usize) -> io::Result<Self> {
        Ok(Self {
            device: Arc::new(device),
            mount_point: mount_point.to_owned(),
            queues: (0..processors::possible_count()?).map(Queue::new).collect(),
            payload_bytes,
            workers: Arc::default(),
            is_short_of_threads: AtomicBool::new(false),
        })
    }

    /// Registers the calling thread with a queue and binds it to the queue's processor.
    pub fn register(&self, number: usize) -> io::Result<FuseRing> {
        let processor = self.queues[number].processor;
        // This fails for a processor that is offline, but such a processor makes no requests.
        if let Err(error) = processors::run_on(processor) {
            tracing::debug!(%error, processor, "can't bind a thread to its processor");
        }
        let number = u16::try_from(number).map_err(io::Error::other)?;
        let mut ring = FuseRing::new(Arc::clone(&self.device), number, self.payload_bytes)?;
        ring.register()?;
        Ok(ring)
    }

    /// While requests take long, makes the kernel deliver requests that are stuck in queues to
    /// which threads were added.
    pub fn wake_grown(&self) {
        if self.workers.count_busy(LONG) > 0 {
            self.queues
                .iter()
                .filter(|queue| queue.wants_waking())
                .for_each(|queue| self.wake(queue));
        }
    }

    /// Sends a query of the daemon itself through a queue. The reply to it makes the kernel deliver
    /// the request that has waited longest.
    fn wake(&self, queue: &Queue) {
        let (processor, mount_point) = (queue.processor, self.mount_point.clone());
        // The query runs on a separate thread, because it waits for the mount.
        let wake = move || {
            let tied = processors::run_on(processor);
            let asked = tied.and_then(|()| Ok(rustix::fs::statfs(&mount_point)?));
            if let Err(error) = asked {
                tracing::debug!(%error, processor, "can't wake an io_uring queue");
            }
        };
        let started = std::thread::Builder::new().name("fslab-wake".to_owned()).spawn(wake);
        if let Err(error) = started {
            tracing::debug!(%error, processor, "can't start a thread to wake an io_uring queue");
        }
    }
}

impl Queue {
    fn new(processor: usize) -> Self {
        Self { processor, waiting: AtomicUsize::new(0), wake: Mutex::default() }
    }

    /// Records that the queue got a thread, and that earlier requests may be stuck.
    pub fn note_growth(&self) {
        *self.wake.lock() = Wake { at: Some(Instant::now()), pause: WAKE_PAUSE_MIN };
    }

    /// Whether to wake the queue now: the time of its next wake-up has come, and a thread of the
    /// queue waits for the request that the wake-up fetches. If so, sets the time of the next
    /// wake-up.
    fn wants_waking(&self) -> bool {
        let (now, mut wake) = (Instant::now(), self.wake.lock());
        let wants = self.waiting.load(Ordering::SeqCst) > 0 && wake.at.is_some_and(|at| at <= now);
        if wants {
            wake.at = Some(now + wake.pause);
            wake.pause = (wake.pause * 2).min(WAKE_PAUSE_MAX);
        }
        wants
    }
}
