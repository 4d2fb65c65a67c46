//! Packing while nobody asks for anything, in a thread of its own.
//!
//! Files are offered when somebody is done with them. The thread begins when there is a file to be
//! packed, waits until no request came for a while, goes on at most at the rate that was asked for,
//! and stands back as soon as requests come again.

use std::collections::VecDeque;
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

/// So long, nobody must have asked for anything.
const IDLE: Duration = Duration::from_secs(5);

/// Files remembered. What is offered beyond that comes again when it is used again.
const OFFERED_MAX: usize = 4096;

/// Packs files that were offered.
pub struct Packer {
    access: Arc<Access>,
    /// Bytes a second; nothing where files are not packed in the background.
    rate: Option<u64>,
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
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
        let rate = match access.settings().packing {
            WhenToPack::Idle { rate } => Some(rate),
            WhenToPack::Close | WhenToPack::Never => None,
        };
        Self { access, rate, shared: Arc::default(), thread: Mutex::default() }
    }

    /// A request came.
    pub fn note_request(&self) {
        if self.rate.is_some() {
            self.shared.requests.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Somebody is done with a file.
    pub fn offer(&self, ino: Ino, file: &StoredFile) {
        let Some(rate) = self.rate.filter(|_| file.wants_packing()) else { return };
        let mut queue = self.shared.queue.lock();
        if queue.ends || queue.files.len() >= OFFERED_MAX || queue.files.contains(&ino) {
            return;
        }
        queue.files.push_back(ino);
        drop(queue);
        self.shared.changed.notify_all();
        self.begin(rate);
    }

    fn begin(&self, rate: u64) {
        let mut thread = self.thread.lock();
        if thread.is_some() {
            return;
        }
        let (access, shared) = (Arc::clone(&self.access), Arc::clone(&self.shared));
        let work = move || run(&access, &shared, rate);
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

fn run(access: &Access, shared: &Shared, rate: u64) {
    while let Some(ino) = shared.next() {
        if !shared.wait_until_idle() {
            return;
        }
        let mut seen = shared.requests.load(Ordering::Relaxed);
        let mut goes_on = |bytes: u64| {
            let pause = Duration::from_secs_f64(bytes as f64 / rate as f64);
            let goes_on = shared.wait(pause) && (shared.is_quiet(seen) || shared.wait_until_idle());
            seen = shared.requests.load(Ordering::Relaxed);
            goes_on
        };
        match access.pack(&own_request(), ino, &mut goes_on) {
            Ok(Packed::Now) => tracing::debug!(ino = ino.0, "packed"),
            Ok(Packed::Already | Packed::GivenUp) => {}
            // It may be gone, or be on a disk that is full or read-only.
            Err(error) => tracing::debug!(%error, ino = ino.0, "could not pack a file"),
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
    fn wait_until_idle(&self) -> bool {
        loop {
            let seen = self.requests.load(Ordering::Relaxed);
            if !self.wait(IDLE) {
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
