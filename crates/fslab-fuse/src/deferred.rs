//! Deferred requests: requests that wait, usually for data, without occupying a thread.
//!
//! A file system that would have to wait for long may defer the request (see
//! [`fslab_vfs::Deferral`]). The bytes of the request are then stored in a table, and its thread
//! serves other requests. The request is performed again, from its beginning, when the file system
//! wakes it, its caller is signalled, or a deadline passes. It may then be deferred again. The
//! threads that perform requests again are in `resuming`.
//!
//! A request enters the table when a file system accepts the offer to defer it, and leaves it after
//! the reply. Its table entry contains its cancellation flag. So an interrupt finds the request in
//! every phase, whichever thread performs it.

mod resuming;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use fslab_vfs::{Cancellation, Deferral, Deferrer, Memory};
use parking_lot::{Condvar, Mutex};

use crate::transport::Transport;

/// Maximum number of threads that perform requests again, not counting stuck threads.
const THREADS_MAX: usize = 8;

/// Maximum number of threads that perform requests again, including stuck threads.
const STUCK_THREADS_MAX: usize = 256;

/// Time after which a thread that performs a request counts as stuck.
const STUCK_MIN: Duration = Duration::from_secs(1);

/// Time after which an idle thread exits, if another thread is idle too.
const IDLE_MAX: Duration = Duration::from_secs(10);

/// Maximum memory of the deferred requests of a mount, in bytes. Beyond it, requests are not
/// deferred and wait on their threads.
const BYTES_MAX: usize = 128 << 20;

/// Estimated memory of a deferred request in addition to its own bytes.
const OVERHEAD_BYTES: usize = 1024;

/// The deferred requests of one mount.
pub(crate) struct Deferred {
    state: Mutex<State>,
    /// Signalled when a request must be performed again, and when the mount ends.
    woken: Condvar,
    /// Signalled when the last request was answered, when a thread has exited, when all requests
    /// are cancelled, and when the mount ends.
    emptied: Condvar,
    /// Number of requests in the table.
    count: AtomicUsize,
    /// Time from the arrival of a request to its cancellation. Only set if the kernel has a time
    /// limit for requests, after which it would abort the mount.
    cancel_after: Option<Duration>,
    bytes_max: usize,
}

#[derive(Default)]
struct State {
    entries: HashMap<u64, Entry>,
    /// Requests to perform again, in the order in which they were woken.
    ready: VecDeque<u64>,
    /// The latest times at which waiting requests must be performed again.
    deadlines: BTreeSet<(Instant, u64)>,
    /// The requests that are being performed again, each with its start time.
    running: BTreeSet<(Instant, u64)>,
    /// Memory of all deferred requests.
    bytes: usize,
    threads: usize,
    idle: usize,
    is_cut_off: bool,
    is_over: bool,
}

/// A deferred request.
struct Entry {
    phase: Phase,
    /// The cancellation flag: 0, or the request's number once it is cancelled.
    cancelled: Arc<AtomicU64>,
    parked: Option<Arc<Parked>>,
    memory: Option<Memory>,
    /// The latest time at which the file system wants the request performed again.
    again_at: Option<Instant>,
    /// Time at which the request is cancelled, so that the kernel's time limit does not abort the
    /// mount.
    cancel_at: Option<Instant>,
    /// Whether the request was woken while a thread was performing it.
    is_woken: bool,
    bytes: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// A thread performs the request.
    Performed,
    Waiting,
    Ready,
}

/// The data needed to perform a request again and to reply to it.
pub(crate) struct Parked {
    pub bytes: Box<[u8]>,
    /// The descriptor on which the request arrived.
    pub transport: Arc<dyn Transport>,
    pub arrived: Instant,
}

/// A request that must be performed again.
struct Resumed {
    unique: u64,
    parked: Arc<Parked>,
    cancellation: Cancellation,
    deferral: Deferral,
    begun: Instant,
}

impl Deferred {
    /// Makes an empty table of deferred requests.
    pub fn new(cancel_after: Option<Duration>) -> Self {
        Self {
            state: Mutex::default(),
            woken: Condvar::new(),
            emptied: Condvar::new(),
            count: AtomicUsize::new(0),
            cancel_after,
            bytes_max: BYTES_MAX,
        }
    }

    /// Returns an offer to the file system to defer a new request.
    pub fn offer(self: &Arc<Self>, unique: u64) -> Deferral {
        Deferral::new(Arc::<Self>::clone(self), unique)
    }

    /// Stores a request that the file system deferred for the first time. Returns `false` if the
    /// file system did not accept the offer.
    pub fn park(&self, unique: u64, parked: Parked) -> bool {
        let mut state = self.state.lock();
        let Some(entry) = state.entries.get_mut(&unique) else { return false };
        entry.cancel_at = self.cancel_after.and_then(|limit| parked.arrived.checked_add(limit));
        let bytes = parked.bytes.len();
        entry.bytes += bytes;
        entry.parked = Some(Arc::new(parked));
        state.bytes += bytes;
        let ended = self.let_wait(&mut state, unique);
        drop(state);
        drop(ended);
        true
    }

    /// Makes a request wait after a thread performed it and the file system deferred it. If the
    /// request was woken before it began to wait, it is ready at once. If the mount has ended,
    /// removes and returns the request.
    fn let_wait(&self, state: &mut State, unique: u64) -> Option<Entry> {
        if state.is_over {
            return self.remove(state, unique);
        }
        let is_cut_off = state.is_cut_off;
        let entry = state.entries.get_mut(&unique)?;
        if entry.is_woken || is_cut_off {
            if is_cut_off {
                entry.cancelled.store(unique, Ordering::SeqCst);
            }
            state.make_ready(unique);
            self.woken.notify_one();
            return None;
        }
        entry.phase = Phase::Waiting;
        if let Some(deadline) = entry.deadline() {
            state.deadlines.insert((deadline, unique));
            // An idle thread may be sleeping until a later deadline, so one is woken.
            if state.deadlines.first() == Some(&(deadline, unique)) {
                self.woken.notify_one();
            }
        }
        None
    }

    /// Removes a request that was answered, or that was not deferred although its offer was
    /// accepted.
    pub fn forget(&self, unique: u64) {
        // Fast path: usually no request is deferred.
        if self.count.load(Ordering::SeqCst) == 0 {
            return;
        }
        let mut state = self.state.lock();
        let removed = self.remove(&mut state, unique);
        drop(state);
        // Dropped without the lock, because dropping the file system's `Memory` may take locks of
        // the file system.
        drop(removed);
    }

    fn remove(&self, state: &mut State, unique: u64) -> Option<Entry> {
        let entry = state.entries.remove(&unique)?;
        state.bytes -= entry.bytes;
        self.count.fetch_sub(1, Ordering::SeqCst);
        if let Some(deadline) = entry.deadline() {
            state.deadlines.remove(&(deadline, unique));
        }
        if state.entries.is_empty() {
            self.emptied.notify_all();
        }
        Some(entry)
    }

    /// Cancels a request; returns `false` if it is not deferred.
    pub fn cancel(&self, unique: u64) -> bool {
        if self.count.load(Ordering::SeqCst) == 0 {
            return false;
        }
        let mut state = self.state.lock();
        let Some(entry) = state.entries.get(&unique) else { return false };
        entry.cancelled.store(unique, Ordering::SeqCst);
        self.wake_up(&mut state, unique);
        true
    }

    fn wake_up(&self, state: &mut State, unique: u64) {
        let Some(entry) = state.entries.get_mut(&unique) else { return };
        match entry.phase {
            Phase::Performed => entry.is_woken = true,
            Phase::Ready => {}
            Phase::Waiting => {
                state.make_ready(unique);
                self.woken.notify_one();
            }
        }
    }

    /// Cancels all deferred requests, including those that are deferred later.
    pub fn cut_off(&self) {
        let mut state = self.state.lock();
        state.is_cut_off = true;
        for unique in Vec::from_iter(state.entries.keys().copied()) {
            if let Some(entry) = state.entries.get(&unique) {
                entry.cancelled.store(unique, Ordering::SeqCst);
            }
            self.wake_up(&mut state, unique);
        }
        self.emptied.notify_all();
    }

    /// Drops all requests after the unmount, because no caller waits for their replies.
    pub fn end(&self) {
        let mut state = self.state.lock();
        state.is_over = true;
        let mut forgotten = Vec::new();
        for unique in Vec::from_iter(state.entries.keys().copied()) {
            match state.entries.get(&unique) {
                Some(entry) if entry.phase == Phase::Performed => {
                    entry.cancelled.store(unique, Ordering::SeqCst);
                }
                _ => forgotten.extend(self.remove(&mut state, unique)),
            }
        }
        state.ready.clear();
        self.woken.notify_all();
        self.emptied.notify_all();
        drop(state);
        drop(forgotten);
    }

    /// Waits until the mount has ended and all threads have exited. After [`Self::cut_off`], waits
    /// only until every deferred request is answered.
    pub fn wait(&self) {
        let mut state = self.state.lock();
        let is_done = |state: &mut State| {
            state.is_cut_off && state.entries.is_empty() || state.is_over && state.threads == 0
        };
        self.emptied.wait_while(&mut state, |state| !is_done(state));
    }

    /// Whether deferred requests are being performed again or are ready for it.
    pub fn is_busy(&self) -> bool {
        if self.count.load(Ordering::SeqCst) == 0 {
            return false;
        }
        let state = self.state.lock();
        !state.ready.is_empty() || !state.running.is_empty()
    }

    /// Number of deferred requests.
    #[cfg(test)]
    pub fn count(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }

    /// Decides whether the caller must start a thread, and if so counts the new thread. A thread is
    /// needed if none is idle and the limits allow another one. If `is_ready` is set, a request
    /// must also be ready.
    fn take_thread(&self, is_ready: bool) -> bool {
        let mut state = self.state.lock();
        if is_ready && state.ready.is_empty() {
            return false;
        }
        let stuck_since = Instant::now().checked_sub(STUCK_MIN);
        let is_stuck = |begun: &Instant| stuck_since.is_some_and(|since| *begun <= since);
        let stuck = state.running.iter().take_while(|(begun, _)| is_stuck(begun)).count();
        let has_room = state.threads - stuck.min(state.threads) < THREADS_MAX
            && state.threads < STUCK_THREADS_MAX;
        let wants = !state.is_over && state.idle == 0 && has_room;
        state.threads += usize::from(wants);
        wants
    }

    /// Subtracts a thread that has exited or could not be started.
    fn end_thread(&self) {
        self.state.lock().threads -= 1;
        self.emptied.notify_all();
    }

    /// Waits for the next request to perform again; returns `None` if the thread is no longer
    /// needed.
    fn next(self: &Arc<Self>) -> Option<Resumed> {
        let mut state = self.state.lock();
        loop {
            let now = Instant::now();
            state.make_overdue_ready(now);
            if let Some(unique) = state.ready.pop_front() {
                let resumed = self.begin(&mut state, unique, now);
                if resumed.is_some() {
                    return resumed;
                }
                continue;
            }
            if state.is_over || (state.threads > THREADS_MAX && state.idle > 0) {
                return None;
            }
            let idle_until = now + IDLE_MAX;
            let deadline = state.deadlines.first().map(|(at, _)| *at);
            let until = deadline.map_or(idle_until, |at| at.min(idle_until));
            state.idle += 1;
            let timed_out = self.woken.wait_until(&mut state, until).timed_out();
            state.idle -= 1;
            let is_surplus = timed_out && until == idle_until && state.idle > 0;
            if is_surplus && state.ready.is_empty() {
                return None;
            }
        }
    }

    fn begin(self: &Arc<Self>, state: &mut State, unique: u64, now: Instant) -> Option<Resumed> {
        let entry = state.entries.get_mut(&unique)?;
        entry.phase = Phase::Performed;
        entry.is_woken = false;
        entry.again_at = None;
        let parked = Arc::clone(entry.parked.as_ref()?);
        let cancellation = Cancellation::new(Arc::clone(&entry.cancelled), unique);
        let deferral = Deferral::resumed(Arc::<Self>::clone(self), unique, entry.memory.take());
        state.running.insert((now, unique));
        Some(Resumed { unique, parked, cancellation, deferral, begun: now })
    }

    /// Makes a request wait again, because the file system deferred it again.
    fn park_again(&self, resumed: &Resumed) {
        let mut state = self.state.lock();
        state.running.remove(&(resumed.begun, resumed.unique));
        let ended = self.let_wait(&mut state, resumed.unique);
        drop(state);
        drop(ended);
    }

    /// Removes a request that was performed again and answered.
    fn finish(&self, resumed: &Resumed) {
        let mut state = self.state.lock();
        state.running.remove(&(resumed.begun, resumed.unique));
        let removed = self.remove(&mut state, resumed.unique);
        drop(state);
        drop(removed);
    }
}

impl State {
    fn make_ready(&mut self, unique: u64) {
        let Some(entry) = self.entries.get_mut(&unique) else { return };
        entry.phase = Phase::Ready;
        if let Some(deadline) = entry.deadline() {
            self.deadlines.remove(&(deadline, unique));
        }
        self.ready.push_back(unique);
    }

    fn make_overdue_ready(&mut self, now: Instant) {
        while let Some(&(deadline, unique)) = self.deadlines.first()
            && deadline <= now
        {
            self.deadlines.remove(&(deadline, unique));
            if let Some(entry) = self.entries.get(&unique)
                && entry.cancel_at.is_some_and(|at| at <= now)
            {
                entry.cancelled.store(unique, Ordering::SeqCst);
            }
            self.make_ready(unique);
        }
    }
}

impl Entry {
    fn deadline(&self) -> Option<Instant> {
        self.again_at.into_iter().chain(self.cancel_at).min()
    }
}

impl Deferrer for Deferred {
    fn accept(&self, number: u64) -> bool {
        let mut state = self.state.lock();
        if state.is_over {
            return false;
        }
        if let Some(entry) = state.entries.get_mut(&number) {
            entry.is_woken |= entry.cancelled.load(Ordering::SeqCst) == number;
            return true;
        }
        if state.bytes + OVERHEAD_BYTES > self.bytes_max {
            return false;
        }
        state.bytes += OVERHEAD_BYTES;
        self.count.fetch_add(1, Ordering::SeqCst);
        let entry = Entry {
            phase: Phase::Performed,
            cancelled: Arc::default(),
            parked: None,
            memory: None,
            again_at: None,
            cancel_at: None,
            is_woken: false,
            bytes: OVERHEAD_BYTES,
        };
        state.entries.insert(number, entry);
        true
    }

    fn keep(&self, number: u64, memory: Memory, at_most: Option<Duration>) {
        let mut state = self.state.lock();
        let Some(entry) = state.entries.get_mut(&number) else { return };
        entry.again_at = at_most.and_then(|most| Instant::now().checked_add(most));
        let before = entry.memory.replace(memory);
        drop(state);
        drop(before);
    }

    fn wake(&self, number: u64) {
        self.wake_up(&mut self.state.lock(), number);
    }
}

impl std::fmt::Debug for Deferred {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let count = self.count.load(Ordering::SeqCst);
        formatter.debug_struct("Deferred").field("count", &count).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
