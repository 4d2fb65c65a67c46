//! The pool of threads that serve a mount: some, the readers, read and serve requests; the other
//! threads are parked.
//!
//! Waking a thread on another processor costs several times more than serving a request, and the
//! kernel wakes waiting readers in turn. So there is only one *reader* as long as one is enough. It
//! serves the requests that it reads, while the other threads are parked and are not woken by
//! requests. Another reader is added
//! - before an operation that will wait for a device (`hand_off`),
//! - when the monitor finds the reader busy for over a millisecond (also `hand_off`), and
//! - when a reader finds requests waiting, repeatedly or after long requests (`widen`), up to one
//!   reader for each processor; a reader that repeatedly finds an empty queue stops reading
//!   (`narrow`).
//!
//! One thread must always read, at least to receive interrupts, even if all others wait, for
//! example for a tape. So if all threads of a mount wait, surplus threads are added (`has_room`).
//! They exit as soon as other threads are idle.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::workers::{Worker, Workers};

/// One more reader is added after this many consecutive reads that found a waiting request.
const WIDEN_AFTER: u32 = 16;
/// One more reader is also added after a reader has served requests for this time while others
/// waited. It is much longer than waking another thread takes.
const WIDEN_AFTER_SERVING: Duration = Duration::from_millis(1);
/// One of several readers stops reading after this many consecutive reads that had to wait.
const NARROW_AFTER: u32 = 64;
/// A read counts as having found a waiting request if it takes less than this time plus the time
/// for copying the request.
const WAITING_MAX: Duration = Duration::from_micros(5);
/// Minimum number of bytes of a request that the kernel copies in a nanosecond.
const COPIED_PER_NANOSECOND: usize = 4;
/// Time for which most threads must have been busy before a surplus thread is added.
const STALLED_MIN: Duration = Duration::from_millis(100);
/// Another surplus thread is added if there are at least this many surplus threads for each moving
/// thread. A thread is moving if it is idle or has been busy for less than `STALLED_MIN`.
const SURPLUS_PER_MOVING: usize = 4;
/// Time after which a busy thread is treated as waiting, so that a surplus thread may replace it.
const STUCK_MIN: Duration = Duration::from_secs(2);
/// Maximum number of threads of one mount, including waiting ones.
const THREADS_MAX: usize = 256;
/// Time after which a parked thread exits, if another thread is parked, too.
const PARKED_MAX: Duration = Duration::from_secs(10);

/// The threads of one mount.
#[derive(Debug)]
pub(crate) struct ThreadPool {
    state: Mutex<State>,
    /// The threads, with the state that other threads need.
    workers: Arc<Workers>,
    /// Signalled when another reader is needed or the mount has ended.
    place_free: Condvar,
    threads_max: usize,
    readers_max: usize,
}

#[derive(Debug, Default)]
struct State {
    /// Number of threads that read, or that serve a request and then read again.
    readers: usize,
    /// Target number of readers.
    wanted: usize,
    parked: usize,
    /// Number of threads that are starting and will become readers as soon as they run.
    starting: usize,
    over: bool,
}

/// Counts a thread's consecutive reads that found a waiting request, or that had to wait.
#[derive(Debug, Default)]
pub(crate) struct QueueHistory {
    found_waiting: u32,
    had_to_wait: u32,
    /// Time that this thread spent on requests while others waited, since it last requested another
    /// reader.
    serving: Duration,
    /// Arrival of the previous request; `None` if the time since then was not spent on it alone.
    last: Option<Instant>,
}

/// A read of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadRequest {
    /// Length of the request in bytes.
    pub length: usize,
    /// Duration of the read.
    pub waited: Duration,
    /// Time at which the read returned.
    pub arrived: Instant,
}

impl ReadRequest {
    fn found_waiting(self) -> bool {
        let copying = Duration::from_nanos((self.length / COPIED_PER_NANOSECOND) as u64);
        self.waited < WAITING_MAX + copying
    }
}

impl QueueHistory {
    /// Forgets the previous request. Called after this thread did not read for a while, or read a
    /// request that is not recorded.
    pub fn forget_last(&mut self) {
        self.last = None;
    }

    /// Records a read; returns whether one more reader is needed.
    fn note(&mut self, read: ReadRequest) -> bool {
        let served = self.last.map_or(Duration::ZERO, |last| {
            read.arrived.saturating_duration_since(last).saturating_sub(read.waited)
        });
        self.last = Some(read.arrived);
        if !read.found_waiting() {
            (self.found_waiting, self.serving) = (0, Duration::ZERO);
            self.had_to_wait += 1;
            return false;
        }
        self.had_to_wait = 0;
        self.found_waiting += 1;
        self.serving += served;
        let is_needed =
            self.found_waiting.is_multiple_of(WIDEN_AFTER) || self.serving >= WIDEN_AFTER_SERVING;
        if is_needed {
            self.serving = Duration::ZERO;
        }
        is_needed
    }
}

impl ThreadPool {
    /// Makes a pool of at most `threads_max` threads, not counting surplus threads.
    pub fn new(threads_max: usize, workers: Arc<Workers>) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            state: Mutex::new(State { wanted: 1, ..State::default() }),
            workers,
            place_free: Condvar::new(),
            threads_max,
            readers_max: processors.min(threads_max),
        }
    }

    /// Adds a new thread; returns `None` if there are enough.
    pub fn add_thread(&self) -> Option<Arc<Worker>> {
        let mut state = self.state.lock();
        if state.over || !self.has_room() {
            return None;
        }
        let is_surplus = self.workers.count() >= self.threads_max;
        let worker = Arc::new(Worker::new(is_surplus));
        self.workers.add(&worker);
        state.starting += 1;
        Some(worker)
    }

    /// Removes a thread that has exited or could not be started.
    pub fn remove_thread(&self, worker: &Arc<Worker>) {
        let mut state = self.state.lock();
        state.note_start(worker);
        if worker.reads.swap(false, Ordering::SeqCst) {
            state.readers -= 1;
            self.place_free.notify_one();
        }
        drop(state);
        self.workers.remove(worker);
    }

    /// Whether another thread may be started.
    fn has_room(&self) -> bool {
        let count = self.workers.count();
        let are_stuck = || count - self.workers.count_busy(STUCK_MIN) < self.threads_max;
        // If nearly all threads have been busy for a while, they probably wait and do not use the
        // processor. Then surplus threads may be added before `STUCK_MIN` has passed.
        let are_stalled = || {
            let moving = count - self.workers.count_busy(STALLED_MIN);
            moving * SURPLUS_PER_MOVING <= count - self.threads_max
        };
        count < self.threads_max || (count < THREADS_MAX && (are_stuck() || are_stalled()))
    }

    /// Waits until the thread may read; returns `false` if it is no longer needed.
    pub fn may_read(&self, worker: &Worker) -> bool {
        let reads = || worker.reads.load(Ordering::SeqCst);
        if reads() && !worker.is_surplus {
            return true;
        }
        let mut state = self.state.lock();
        state.note_start(worker);
        loop {
            if state.over || (worker.is_surplus && state.parked > 0) {
                return false;
            }
            if reads() {
                return true;
            }
            if state.readers < state.wanted {
                state.readers += 1;
                worker.reads.store(true, Ordering::SeqCst);
                return true;
            }
            state.parked += 1;
            let timed_out = self.place_free.wait_for(&mut state, PARKED_MAX).timed_out();
            state.parked -= 1;
            if timed_out && state.parked > 0 {
                return false;
            }
        }
    }

    /// Lets another thread read in place of a busy reader; returns `true` if a new thread must be
    /// started for this.
    pub fn hand_off(&self, worker: &Worker) -> bool {
        let mut state = self.state.lock();
        let can_go_on = state.parked > 0 || self.has_room();
        if !can_go_on || !worker.reads.swap(false, Ordering::SeqCst) {
            return false;
        }
        state.readers -= 1;
        self.place_free.notify_one();
        state.missing() > 0
    }

    /// Records a read; returns `true` if a new thread must be started.
    pub fn note_read(
        &self,
        worker: &Worker,
        read: ReadRequest,
        history: &mut QueueHistory,
    ) -> bool {
        let needs_reader = history.note(read);
        if history.had_to_wait > 0 && history.had_to_wait.is_multiple_of(NARROW_AFTER) {
            self.narrow(worker);
        }
        needs_reader && self.widen()
    }

    fn widen(&self) -> bool {
        let mut state = self.state.lock();
        if state.wanted >= self.readers_max {
            return false;
        }
        state.wanted += 1;
        self.place_free.notify_one();
        state.missing() > 0
    }

    fn narrow(&self, worker: &Worker) {
        let mut state = self.state.lock();
        if state.wanted > 1 {
            state.wanted -= 1;
            if state.readers > state.wanted && worker.reads.swap(false, Ordering::SeqCst) {
                state.readers -= 1;
            }
        }
    }

    /// Lets other threads read in place of readers that have been busy for too long. Returns how
    /// many threads must be started, including those that failed to start before.
    pub fn replace_busy(&self, busy_max: Duration) -> usize {
        for worker in self.workers.all() {
            let reads = worker.reads.load(Ordering::SeqCst);
            if reads && self.workers.busy_for(&worker) > busy_max {
                self.hand_off(&worker);
            }
        }
        self.state.lock().missing()
    }

    /// Whether there are only as many threads as an unused mount needs.
    pub fn is_at_rest(&self) -> bool {
        let state = self.state.lock();
        !state.over && self.workers.count() <= state.wanted + 1
    }

    /// Notifies all threads that the mount has ended.
    pub fn end(&self) {
        self.state.lock().over = true;
        self.workers.end();
        self.place_free.notify_all();
    }
}

impl State {
    /// Number of missing readers for which no thread is parked or starting.
    fn missing(&self) -> usize {
        self.wanted.saturating_sub(self.readers + self.parked + self.starting)
    }

    /// Records that a thread is no longer starting.
    fn note_start(&mut self, worker: &Worker) {
        if !worker.has_started.swap(true, Ordering::SeqCst) {
            self.starting -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool_of(threads_max: usize) -> ThreadPool {
        ThreadPool::new(threads_max, Arc::default())
    }

    #[test]
    fn pool_has_one_reader_until_it_is_busy() {
        let pool = pool_of(2);
        let (first, second) = (pool.add_thread().unwrap(), pool.add_thread().unwrap());
        assert!(pool.add_thread().is_none(), "two threads at most");
        assert!(pool.may_read(&first));
        first.begin(1, Instant::now(), &pool.workers);
        assert_eq!(pool.replace_busy(Duration::from_secs(60)), 0, "not busy for long");
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| pool.may_read(&second));
            while pool.state.lock().parked == 0 {
                std::thread::yield_now();
            }
            assert_eq!(pool.replace_busy(Duration::ZERO), 0, "a parked thread takes the place");
            assert!(waiting.join().unwrap());
        });
        first.finish();
        assert!(!first.reads.load(Ordering::SeqCst), "the first must wait for a place again");
    }

    #[test]
    fn sole_thread_remains_the_reader() {
        let pool = pool_of(1);
        let only = pool.add_thread().unwrap();
        assert!(pool.may_read(&only));
        assert!(!pool.hand_off(&only));
        assert!(pool.may_read(&only), "still the reader");
    }

    /// A pool whose mount has existed for some time.
    fn experienced(threads_max: usize) -> ThreadPool {
        ThreadPool::new(threads_max, Arc::new(Workers::since(long_ago())))
    }

    fn long_ago() -> Instant {
        Instant::now().checked_sub(STUCK_MIN * 2).unwrap()
    }

    /// Returns a start time in the future, so that no thread seems busy for long, even if the test
    /// is slow.
    fn not_long_ago() -> Instant {
        Instant::now() + Duration::from_secs(3600)
    }

    #[test]
    fn surplus_reader_is_added_when_all_wait_and_leaves_afterwards() {
        let pool = experienced(1);
        let stalled = || Instant::now().checked_sub(STALLED_MIN).unwrap();
        let first = pool.add_thread().unwrap();
        assert!(pool.may_read(&first));
        first.begin(1, not_long_ago(), &pool.workers);
        assert!(!pool.hand_off(&first), "there is one thread");
        first.begin(1, stalled(), &pool.workers);
        assert_eq!(pool.replace_busy(Duration::ZERO), 1, "nobody reads");
        let second = pool.add_thread().unwrap();
        assert!(second.is_surplus && pool.add_thread().is_none(), "one at a time");
        assert!(pool.may_read(&second));
        second.begin(2, stalled(), &pool.workers);
        assert_eq!(pool.replace_busy(Duration::ZERO), 1, "nobody reads again");
        let third = pool.add_thread().unwrap();
        assert!(pool.may_read(&third));
        first.finish();
        std::thread::scope(|scope| {
            let returned = scope.spawn(|| pool.may_read(&first));
            while pool.state.lock().parked == 0 {
                std::thread::yield_now();
            }
            assert!(!pool.may_read(&third), "it is no longer needed");
            pool.remove_thread(&third);
            assert!(returned.join().unwrap());
        });
        assert!(pool.is_at_rest());
    }

    #[test]
    fn waiting_threads_are_replaced_up_to_the_thread_limit() {
        let pool = experienced(2);
        let (stuck, busy) = (pool.add_thread().unwrap(), pool.add_thread().unwrap());
        stuck.begin(1, long_ago(), &pool.workers);
        busy.begin(2, not_long_ago(), &pool.workers);
        assert!(pool.add_thread().is_some_and(|third| third.is_surplus));
        assert!(pool.add_thread().is_none(), "two do not wait");
        let pool = experienced(1);
        let begin = |worker: Arc<Worker>, number| worker.begin(number, long_ago(), &pool.workers);
        let add_thread = |number| pool.add_thread().map(|worker| drop(begin(worker, number)));
        assert_eq!((1..).map_while(add_thread).count(), THREADS_MAX);
    }

    #[test]
    fn reader_place_of_a_failed_thread_is_offered_again() {
        const LONG: Duration = Duration::from_secs(60);
        let pool = pool_of(4);
        let first = pool.add_thread().unwrap();
        assert!(pool.may_read(&first));
        first.begin(1, Instant::now(), &pool.workers);
        assert!(pool.hand_off(&first), "there is nobody else yet");
        let second = pool.add_thread().unwrap();
        assert_eq!(pool.replace_busy(LONG), 0, "one is on its way");
        pool.remove_thread(&second);
        assert_eq!(pool.replace_busy(LONG), 1, "nobody reads");
        first.finish();
        assert!(pool.may_read(&first), "a thread that comes back takes the place");
        assert_eq!(pool.replace_busy(LONG), 0);
    }

    /// Records reads of 1 MiB, each after a request that took `served`. Returns the number of reads
    /// after which a second reader is wanted.
    fn reads_until_widened(served: Duration, waited: Duration) -> Option<usize> {
        let pool = ThreadPool { readers_max: 2, ..pool_of(2) };
        let worker = pool.add_thread().unwrap();
        let (mut history, mut arrived) = (QueueHistory::default(), Instant::now());
        (1..=40).find(|_| {
            arrived += served + waited;
            let read = ReadRequest { length: 1 << 20, waited, arrived };
            pool.note_read(&worker, read, &mut history);
            pool.state.lock().wanted == 2
        })
    }

    #[test]
    fn reader_is_added_soon_if_requests_wait_for_long_ones() {
        let copying = Duration::from_micros(100);
        assert_eq!(reads_until_widened(Duration::from_millis(3), copying), Some(2));
        assert_eq!(reads_until_widened(Duration::from_micros(300), copying), Some(5));
        assert_eq!(reads_until_widened(Duration::from_micros(10), copying), Some(16));
        let idle = Duration::from_millis(1);
        assert_eq!(reads_until_widened(Duration::from_millis(3), idle), None, "no request waits");
    }

    #[test]
    fn ending_the_pool_wakes_parked_threads() {
        let pool = pool_of(2);
        let (first, second) = (pool.add_thread().unwrap(), pool.add_thread().unwrap());
        assert!(pool.may_read(&first));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| pool.may_read(&second));
            pool.end();
            assert!(!waiting.join().unwrap());
        });
    }
}
