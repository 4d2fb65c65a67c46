//! Frees space in a background thread, so that no writer waits for it.
//!
//! If the changes of a file made maintenance due (see `reclaim_policy`), the thread acts at once,
//! in parallel with the file's writers. It commits the file or collects its garbage. A file with
//! garbage is offered for packing when a user closes it. It is packed once no request has arrived
//! for a while, at most at the configured rate. The thread pauses as soon as requests arrive again.
//! At unmount the remaining files are packed for at most `END_MAX`, because the next mount starts
//! with an empty queue. Staging of a file in use also ends once no request has arrived for a while.

use std::collections::{HashSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use fslab_vfs::{Ino, Result};
use parking_lot::{Condvar, Mutex};

use super::context::{WhenToPack, own_request};
use super::opening::Access;
use super::pack::Packed;
use super::stored_file::StoredFile;

/// Maximum number of files in a queue, which then takes less than 4 MiB. A file that does not fit
/// is offered again after its next use.
const OFFERED_MAX: usize = 1 << 16;

/// Maximum time for packing files at unmount.
const END_MAX: Duration = Duration::from_secs(10);

/// Frees the space of files in the background.
pub struct Reclaimer {
    access: Arc<Access>,
    /// `None` if there is no background thread. Each request that changes a file then does the
    /// file's maintenance itself.
    pace: Option<Pace>,
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// Delay and rate of packing.
#[derive(Clone, Copy)]
struct Pace {
    /// Time without requests before packing starts.
    after: Duration,
    /// Bytes per second.
    rate: u64,
}

#[derive(Default)]
struct Shared {
    /// Number of requests received.
    requests: AtomicU64,
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    /// Files to be committed or to have their garbage collected.
    due: Files,
    /// Files in which staging is to be ended.
    staged: Files,
    /// Files to be packed.
    packed: Files,
    ends: bool,
}

/// A queue of files that contains each file once.
#[derive(Default)]
struct Files {
    order: VecDeque<Ino>,
    known: HashSet<Ino>,
}

/// Next task of the thread.
enum Job {
    Tend(Ino),
    EndStaging(Ino),
    Pack(Ino),
}

impl Files {
    /// Adds a file; returns whether it was added.
    fn push(&mut self, ino: Ino) -> bool {
        let is_new = self.order.len() < OFFERED_MAX && self.known.insert(ino);
        if is_new {
            self.order.push_back(ino);
        }
        is_new
    }

    fn pop(&mut self) -> Option<Ino> {
        let ino = self.order.pop_front()?;
        self.known.remove(&ino);
        Some(ino)
    }
}

impl Queue {
    fn pop(&mut self) -> Option<Job> {
        let (due, staged) = (self.due.pop().map(Job::Tend), &mut self.staged);
        due.or_else(|| staged.pop().map(Job::EndStaging))
            .or_else(|| self.packed.pop().map(Job::Pack))
    }
}

impl Reclaimer {
    pub fn new(access: Arc<Access>) -> Self {
        let pace = match access.settings().packing {
            WhenToPack::Idle { after, rate } => Some(Pace { after, rate }),
            WhenToPack::Close | WhenToPack::Never => None,
        };
        Self { access, pace, shared: Arc::default(), thread: Mutex::default() }
    }

    /// Records that a request arrived.
    pub fn note_request(&self) {
        if self.pace.is_some() {
            self.shared.requests.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Requests maintenance of a file in use; returns whether it will be done.
    pub fn ask(&self, ino: Ino) -> bool {
        self.push(|queue| &mut queue.due, ino)
    }

    /// Offers a file for packing after a user has closed it.
    pub fn offer(&self, ino: Ino, file: &StoredFile) {
        if self.pace.is_some() && file.wants_packing() {
            self.push(|queue| &mut queue.packed, ino);
        }
    }

    /// Offers a file in use whose chunks are staged. Staging ends when the mount is idle.
    pub fn offer_staging(&self, ino: Ino) {
        self.push(|queue| &mut queue.staged, ino);
    }

    fn push(&self, files: impl FnOnce(&mut Queue) -> &mut Files, ino: Ino) -> bool {
        let Some(pace) = self.pace else { return false };
        let mut queue = self.shared.queue.lock();
        if queue.ends {
            return false;
        }
        let is_new = files(&mut queue).push(ino);
        drop(queue);
        if is_new {
            self.shared.changed.notify_all();
        }
        self.begin(pace)
    }

    /// Starts the thread if needed; returns whether it runs.
    fn begin(&self, pace: Pace) -> bool {
        let mut thread = self.thread.lock();
        if thread.is_some() {
            return true;
        }
        let (access, shared) = (Arc::clone(&self.access), Arc::clone(&self.shared));
        let work = move || Run { access: &access, shared: &shared, pace }.run();
        match std::thread::Builder::new().name("reclaimer".to_owned()).spawn(work) {
            Ok(begun) => *thread = Some(begun),
            Err(error) => tracing::warn!(%error, "can't start the thread that frees space"),
        }
        thread.is_some()
    }

    /// Finishes the current task and starts no other.
    pub fn stop(&self) {
        self.shared.queue.lock().ends = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that frees space has panicked");
        }
    }

    /// Stops the thread, and packs the remaining files within the time limit. Must be called after
    /// the last request.
    pub fn finish(&self) {
        self.stop();
        let clock = &self.access.settings().clock;
        let deadline_ns = clock.now_ns() + END_MAX.as_nanos() as u64;
        let mut has_time = |_| clock.now_ns() < deadline_ns;
        let next = || self.shared.queue.lock().packed.pop();
        while has_time(0)
            && let Some(ino) = next()
        {
            pack(&self.access, ino, &mut has_time);
        }
        let left = self.shared.queue.lock().packed.order.len();
        if left > 0 {
            tracing::info!(
                "{left} files were not compacted before the unmount; run `fslab sca compact`"
            );
        }
    }
}

impl Drop for Reclaimer {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The background thread.
struct Run<'a> {
    access: &'a Access,
    shared: &'a Shared,
    pace: Pace,
}

impl Run<'_> {
    fn run(&self) {
        // Number of requests at the end of the last job that needs an idle mount. If it has not
        // changed, the next such job begins without waiting again.
        let mut seen = None;
        while let Some(job) = self.shared.next() {
            let is_idle = seen.is_some_and(|seen| self.shared.is_quiet(seen));
            match job {
                Job::Tend(ino) => tend(self.access, ino),
                Job::EndStaging(ino) if is_idle || self.wait_until_idle() => {
                    seen = Some(self.shared.requests.load(Ordering::Relaxed));
                    end_staging(self.access, ino);
                }
                // Staging ends when the file is closed.
                Job::EndStaging(_) => return,
                Job::Pack(ino) => {
                    if !is_idle && !self.wait_until_idle() {
                        self.shared.queue.lock().packed.push(ino);
                        return;
                    }
                    seen = Some(self.pack(ino));
                }
            }
        }
    }

    /// Packs a file; returns the number of requests received until then.
    fn pack(&self, ino: Ino) -> u64 {
        let mut last = self.shared.requests.load(Ordering::Relaxed);
        let mut goes_on = |bytes: u64| {
            let pause = Duration::from_secs_f64(bytes as f64 / self.pace.rate as f64);
            let goes_on =
                self.wait(pause) && (self.shared.is_quiet(last) || self.wait_until_idle());
            last = self.shared.requests.load(Ordering::Relaxed);
            goes_on
        };
        if pack(self.access, ino, &mut goes_on) == Some(Packed::GivenUp) {
            self.shared.put_back_at_the_end(ino);
        }
        last
    }

    /// Waits until no request has arrived for a while; returns whether to continue.
    fn wait_until_idle(&self) -> bool {
        loop {
            let seen = self.shared.requests.load(Ordering::Relaxed);
            if !self.wait(self.pace.after) {
                return false;
            }
            if self.shared.is_quiet(seen) {
                return true;
            }
        }
    }

    /// Waits for this long, or until the thread must end, and does maintenance that becomes due.
    /// Returns whether to continue.
    fn wait(&self, pause: Duration) -> bool {
        let clock = &self.access.settings().clock;
        let until_ns = clock.now_ns() + pause.as_nanos() as u64;
        loop {
            let rest = Duration::from_nanos(until_ns.saturating_sub(clock.now_ns()));
            match self.shared.wait_for_due(rest) {
                Waited::Due(ino) => tend(self.access, ino),
                Waited::Long => return true,
                Waited::End => return false,
            }
        }
    }
}

/// Commits a file or collects its garbage if that is due and the file is in use.
fn tend(access: &Access, ino: Ino) {
    caught(ino, "commit or collect garbage of", || access.tend(&own_request(), ino));
}

/// Ends staging in a file if it is in use.
fn end_staging(access: &Access, ino: Ino) {
    caught(ino, "end staging in", || access.end_staging(&own_request(), ino));
}

/// Packs a file; returns `None` on failure.
fn pack(access: &Access, ino: Ino, goes_on: &mut dyn FnMut(u64) -> bool) -> Option<Packed> {
    let packed = caught(ino, "pack", || access.pack(&own_request(), ino, goes_on));
    packed.inspect(|packed| tracing::debug!(ino = ino.0, ?packed, "packing"))
}

/// Runs work on a file; returns `None` on failure.
fn caught<T>(ino: Ino, what: &str, work: impl FnOnce() -> Result<T>) -> Option<T> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(done)) => Some(done),
        // The file may have been removed, or its disk may be full or read-only.
        Ok(Err(error)) => {
            tracing::debug!(%error, ino = ino.0, "can't {what} a file");
            None
        }
        // A bug with one file must not stop the thread. The file is kept in use. If it were closed,
        // the layer would record its state, which may be wrong.
        Err(_) => {
            tracing::error!(ino = ino.0, "a bug: the attempt to {what} a file panicked");
            None
        }
    }
}

/// The reason why a wait ended.
enum Waited {
    /// A file is due for maintenance.
    Due(Ino),
    /// The time has elapsed.
    Long,
    End,
}

impl Shared {
    /// Waits for the next task; returns `None` if the thread must end.
    fn next(&self) -> Option<Job> {
        let mut queue = self.queue.lock();
        while !queue.ends {
            if let Some(job) = queue.pop() {
                return Some(job);
            }
            self.changed.wait(&mut queue);
        }
        None
    }

    /// Queues a file again if packing was abandoned because the thread must end. If the file was
    /// changed instead, its user will offer it again.
    fn put_back_at_the_end(&self, ino: Ino) {
        let mut queue = self.queue.lock();
        if queue.ends {
            queue.packed.push(ino);
        }
    }

    fn is_quiet(&self, seen: u64) -> bool {
        self.requests.load(Ordering::Relaxed) == seen
    }

    /// Waits for this long, until a file is due for maintenance, or until the thread must end.
    fn wait_for_due(&self, pause: Duration) -> Waited {
        let mut queue = self.queue.lock();
        let goes_on = |queue: &mut Queue| !queue.ends && queue.due.order.is_empty();
        self.changed.wait_while_for(&mut queue, goes_on, pause);
        match queue.due.pop() {
            _ if queue.ends => Waited::End,
            Some(ino) => Waited::Due(ino),
            None => Waited::Long,
        }
    }
}
