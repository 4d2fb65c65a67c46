//! The queues of requests that come by io_uring, one for each processor, and what is needed so that
//! nothing stays in them.

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

/// A request that takes so long may take much longer.
const LONG: Duration = Duration::from_millis(10);

/// While requests take long, a queue that got a thread is woken after this, and again after twice
/// the time: nothing tells whether requests lie there.
const WAKE_PAUSE_MIN: Duration = Duration::from_millis(5);
/// The longest time between two wakings.
const WAKE_PAUSE_MAX: Duration = Duration::from_millis(250);

/// The queues of one mount.
#[derive(Debug)]
pub(crate) struct Queues {
    device: Arc<OwnedFd>,
    mount_point: PathBuf,
    pub(super) queues: Box<[Queue]>,
    payload_bytes: usize,
    /// Their threads, as others see them.
    pub workers: Arc<Workers>,
    /// Whether the last thread to be started could not be.
    pub(super) is_short_of_threads: AtomicBool,
}

/// The requests of one processor.
#[derive(Debug)]
pub(super) struct Queue {
    processor: usize,
    /// Threads that wait for a request.
    pub waiting: AtomicUsize,
    wake: Mutex<Wake>,
}

/// When a queue is woken next, if it ever got a thread, and how long after that again.
#[derive(Debug, Default)]
struct Wake {
    at: Option<Instant>,
    pause: Duration,
}

impl Queues {
    /// One queue for each processor that the machine may have.
    ///
    /// # Errors
    /// Whatever keeps this process from serving by io_uring.
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

    /// An entry of a queue for the calling thread, which is tied to the queue's processor.
    pub fn register(&self, number: usize) -> io::Result<FuseRing> {
        let processor = self.queues[number].processor;
        // One that is not there now makes no requests either.
        if let Err(error) = processors::run_on(processor) {
            tracing::debug!(%error, processor, "a thread is not tied");
        }
        let number = u16::try_from(number).map_err(io::Error::other)?;
        let mut ring = FuseRing::new(Arc::clone(&self.device), number, self.payload_bytes)?;
        ring.register()?;
        Ok(ring)
    }

    /// Has the kernel hand out what may lie in queues that got threads, while requests take long.
    pub fn wake_grown(&self) {
        if self.workers.count_busy(LONG) > 0 {
            self.queues
                .iter()
                .filter(|queue| queue.wants_waking())
                .for_each(|queue| self.wake(queue));
        }
    }

    /// Sends a queue one more request, whose answer fetches what lies there for the longest time.
    fn wake(&self, queue: &Queue) {
        let (processor, mount_point) = (queue.processor, self.mount_point.clone());
        // A thread of its own: it waits for the mount.
        let wake = move || {
            let tied = processors::run_on(processor);
            let asked = tied.and_then(|()| Ok(rustix::fs::statfs(&mount_point)?));
            if let Err(error) = asked {
                tracing::debug!(%error, processor, "a queue could not be woken");
            }
        };
        let started = std::thread::Builder::new().name("fslab-wake".to_owned()).spawn(wake);
        if let Err(error) = started {
            tracing::debug!(%error, processor, "a queue could not be woken yet");
        }
    }
}

impl Queue {
    fn new(processor: usize) -> Self {
        Self { processor, waiting: AtomicUsize::new(0), wake: Mutex::default() }
    }

    /// Notes that the queue got a thread, and that requests may have come before it.
    pub fn note_growth(&self) {
        *self.wake.lock() = Wake { at: Some(Instant::now()), pause: WAKE_PAUSE_MIN };
    }

    /// Whether it is time to wake the queue, and a thread waits there to serve what is fetched.
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
