//! Packing while nobody asks for anything, in a thread of its own.
//!
//! Files are offered when somebody is done with them. The thread begins when there is a file to be
//! packed, waits until no request came for a while, goes on at most at the rate that was asked for,
//! and stands back as soon as requests come again.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use fslab_vfs::Ino;
use parking_lot::{Condvar, Mutex};

use super::access::Access;
use super::context::WhenToPack;
use super::layer::own_request;
use super::stored_file::{Packed, StoredFile};

/// Files remembered. What is offered beyond that comes again when it is used again.
const OFFERED_MAX: usize = 4096;

/// Packs files that were offered.
pub struct Packer {
    access: Arc<Access>,
    /// Nothing where files are not packed in the background.
    pace: Option<Pace>,
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// How patient and how fast it is.
#[derive(Clone, Copy)]
struct Pace {
    /// So long, nobody must have asked for anything.
    after: Duration,
    /// Bytes a second.
    rate: u64,
}

#[derive(Default)]
struct Shared {
    /// Requests that came.
    requests: AtomicU64,
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    files: VecDeque<Ino>,
    ends: bool,
}

impl Packer {
    pub fn new(access: Arc<Access>) -> Self {
        let pace = match access.settings().packing {
            WhenToPack::Idle { after, rate } => Some(Pace { after, rate }),
            WhenToPack::Close | WhenToPack::Never => None,
        };
        Self { access, pace, shared: Arc::default(), thread: Mutex::default() }
    }

    /// A request came.
    pub fn note_request(&self) {
        if self.pace.is_some() {
            self.shared.requests.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Somebody is done with a file.
    pub fn offer(&self, ino: Ino, file: &StoredFile) {
        let Some(pace) = self.pace.filter(|_| file.wants_packing()) else { return };
        let mut queue = self.shared.queue.lock();
        if queue.ends || queue.files.len() >= OFFERED_MAX || queue.files.contains(&ino) {
            return;
        }
        queue.files.push_back(ino);
        drop(queue);
        self.shared.changed.notify_all();
        self.begin(pace);
    }

    fn begin(&self, pace: Pace) {
        let mut thread = self.thread.lock();
        if thread.is_some() {
            return;
        }
        let (access, shared) = (Arc::clone(&self.access), Arc::clone(&self.shared));
        let work = move || run(&access, &shared, pace);
        match std::thread::Builder::new().name("packer".to_owned()).spawn(work) {
            Ok(begun) => *thread = Some(begun),
            Err(error) => tracing::warn!(%error, "files are not packed: no thread can be had"),
        }
    }

    /// Ends what is going on, in order, and begins nothing more.
    pub fn stop(&self) {
        self.shared.queue.lock().ends = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that packs files has failed");
        }
    }
}

impl Drop for Packer {
    fn drop(&mut self) {
        self.stop();
    }
}

fn run(access: &Access, shared: &Shared, pace: Pace) {
    while let Some(ino) = shared.next() {
        if !shared.wait_until_idle(pace.after) {
            return;
        }
        let mut seen = shared.requests.load(Ordering::Relaxed);
        let mut goes_on = |bytes: u64| {
            let pause = Duration::from_secs_f64(bytes as f64 / pace.rate as f64);
            let goes_on =
                shared.wait(pause) && (shared.is_quiet(seen) || shared.wait_until_idle(pace.after));
            seen = shared.requests.load(Ordering::Relaxed);
            goes_on
        };
        let pack = || access.pack(&own_request(), ino, &mut goes_on);
        match catch_unwind(AssertUnwindSafe(pack)) {
            Ok(Ok(Packed::Now)) => tracing::debug!(ino = ino.0, "packed"),
            Ok(Ok(Packed::Already | Packed::GivenUp)) => {}
            // It may be gone, or be on a disk that is full or read-only.
            Ok(Err(error)) => tracing::debug!(%error, ino = ino.0, "could not pack a file"),
            // One file must not keep all others from being packed. It stays in use: whoever left
            // it in order would trust what is not known to be in order.
            Err(_) => tracing::error!(ino = ino.0, "packing a file went wrong: this is a bug"),
        }
    }
}

impl Shared {
    /// The next file; waits for one. Nothing at the end.
    fn next(&self) -> Option<Ino> {
        let mut queue = self.queue.lock();
        while !queue.ends {
            if let Some(ino) = queue.files.pop_front() {
                return Some(ino);
            }
            self.changed.wait(&mut queue);
        }
        None
    }

    /// Waits until nobody asked for anything for a while; answers whether to go on at all.
    fn wait_until_idle(&self, after: Duration) -> bool {
        loop {
            let seen = self.requests.load(Ordering::Relaxed);
            if !self.wait(after) {
                return false;
            }
            if self.is_quiet(seen) {
                return true;
            }
        }
    }

    fn is_quiet(&self, seen: u64) -> bool {
        self.requests.load(Ordering::Relaxed) == seen
    }

    /// Waits for a time, or until the end; answers whether to go on.
    fn wait(&self, pause: Duration) -> bool {
        let mut queue = self.queue.lock();
        let ends = |queue: &mut Queue| !queue.ends;
        self.changed.wait_while_for(&mut queue, ends, pause);
        !queue.ends
    }
}
