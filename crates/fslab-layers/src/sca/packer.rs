//! Packing while nobody asks for anything, in a thread of its own.
//!
//! Files are offered when somebody is done with them. The thread begins when there is a file to be
//! packed, waits until no request came for a while, goes on at most at the rate that was asked for,
//! and stands back as soon as requests come again. What it did not come to is packed at the end,
//! for as long as who unmounts may be kept waiting: the next mount knows of none of these files.

use std::collections::{HashSet, VecDeque};
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
use super::pack::Packed;
use super::stored_file::StoredFile;

/// Files remembered, in less than 4 MiB. What is offered beyond that comes again when it is used
/// again.
const OFFERED_MAX: usize = 1 << 16;

/// How long files are packed at the end.
const END_MAX: Duration = Duration::from_secs(10);

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
    /// The same files.
    known: HashSet<Ino>,
    ends: bool,
}

impl Queue {
    /// Answers whether it is new.
    fn push(&mut self, ino: Ino) -> bool {
        let is_new = self.files.len() < OFFERED_MAX && self.known.insert(ino);
        if is_new {
            self.files.push_back(ino);
        }
        is_new
    }

    fn pop(&mut self) -> Option<Ino> {
        let ino = self.files.pop_front()?;
        self.known.remove(&ino);
        Some(ino)
    }
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
        if queue.ends || !queue.push(ino) {
            return;
        }
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

    /// Ends, and packs what was offered as far as there is time. Nobody asks for anything any more.
    pub fn finish(&self) {
        self.stop();
        let clock = &self.access.settings().clock;
        let deadline_ns = clock.now_ns() + END_MAX.as_nanos() as u64;
        let mut has_time = |_| clock.now_ns() < deadline_ns;
        while has_time(0)
            && let Some(ino) = self.shared.take()
        {
            pack(&self.access, ino, &mut has_time);
        }
        let left = self.shared.queue.lock().files.len();
        if left > 0 {
            tracing::info!("{left} files are left to be packed; `fslab sca pack` does so");
        }
    }
}

impl Drop for Packer {
    fn drop(&mut self) {
        self.stop();
    }
}

fn run(access: &Access, shared: &Shared, pace: Pace) {
    // What the last file that was packed saw: nobody waits again as long as it is quiet.
    let mut seen = None;
    while let Some(ino) = shared.next() {
        let is_idle = seen.is_some_and(|seen| shared.is_quiet(seen));
        if !is_idle && !shared.wait_until_idle(pace.after) {
            shared.put_back(ino);
            return;
        }
        let mut last = shared.requests.load(Ordering::Relaxed);
        let mut goes_on = |bytes: u64| {
            let pause = Duration::from_secs_f64(bytes as f64 / pace.rate as f64);
            let goes_on =
                shared.wait(pause) && (shared.is_quiet(last) || shared.wait_until_idle(pace.after));
            last = shared.requests.load(Ordering::Relaxed);
            goes_on
        };
        let packed = pack(access, ino, &mut goes_on);
        if packed == Some(Packed::GivenUp) {
            shared.put_back_at_the_end(ino);
        }
        seen = Some(last);
    }
}

/// Packs a file; nothing where that failed.
fn pack(access: &Access, ino: Ino, goes_on: &mut dyn FnMut(u64) -> bool) -> Option<Packed> {
    let pack = || access.pack(&own_request(), ino, goes_on);
    match catch_unwind(AssertUnwindSafe(pack)) {
        Ok(Ok(packed)) => {
            tracing::debug!(ino = ino.0, ?packed, "packing");
            Some(packed)
        }
        // It may be gone, or be on a disk that is full or read-only.
        Ok(Err(error)) => {
            tracing::debug!(%error, ino = ino.0, "could not pack a file");
            None
        }
        // One file must not keep all others from being packed. It stays in use: whoever left it in
        // order would trust what is not known to be in order.
        Err(_) => {
            tracing::error!(ino = ino.0, "packing a file went wrong: this is a bug");
            None
        }
    }
}

impl Shared {
    /// The next file; waits for one. Nothing at the end.
    fn next(&self) -> Option<Ino> {
        let mut queue = self.queue.lock();
        while !queue.ends {
            if let Some(ino) = queue.pop() {
                return Some(ino);
            }
            self.changed.wait(&mut queue);
        }
        None
    }

    /// The next file, if there is one.
    fn take(&self) -> Option<Ino> {
        self.queue.lock().pop()
    }

    /// The end came before a file was packed.
    fn put_back(&self, ino: Ino) {
        self.queue.lock().push(ino);
    }

    /// Packing a file was given up: because of the end, or because somebody changed it, who will
    /// offer it again.
    fn put_back_at_the_end(&self, ino: Ino) {
        let mut queue = self.queue.lock();
        if queue.ends {
            queue.push(ino);
        }
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
