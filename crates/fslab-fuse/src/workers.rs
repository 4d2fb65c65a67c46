//! The threads that serve a mount, with the state by which other threads cancel their requests and
//! wait for them to exit.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::interrupts::EarlyInterrupts;

/// Interval between checks for requests in flight after [`Workers::cut_off`].
const CUT_OFF_CHECK: Duration = Duration::from_millis(10);

/// The threads of one mount that use the same transport.
#[derive(Debug)]
pub(crate) struct Workers {
    state: Mutex<State>,
    /// Signalled when a thread exits, the mount ends, or all requests are cancelled.
    ended: Condvar,
    epoch: Instant,
    early: EarlyInterrupts,
}

#[derive(Debug, Default)]
struct State {
    workers: Vec<Arc<Worker>>,
    /// Whether the mount has ended.
    is_over: bool,
    /// Whether [`Workers::cut_off`] was called. Then [`Workers::wait`] does not wait for threads
    /// without a request.
    is_cut_off: bool,
}

/// One thread.
#[derive(Debug, Default)]
pub(crate) struct Worker {
    /// Whether the thread was added because other threads wait.
    pub is_surplus: bool,
    /// Whether the thread has started to run.
    pub has_started: AtomicBool,
    /// Whether the thread may read after serving its request.
    pub reads: AtomicBool,
    /// Arrival of the current request, in nanoseconds since `Workers::epoch`; 0 between requests.
    busy_since_ns: AtomicU64,
    /// The number of the current request; 0 between requests.
    unique: AtomicU64,
    /// The number of the request to be cancelled, if it is still the current one.
    cancelled: Arc<AtomicU64>,
}

impl Default for Workers {
    fn default() -> Self {
        Self::since(Instant::now())
    }
}

impl Workers {
    /// Makes an empty list of threads, for a mount that has existed since `epoch`.
    pub fn since(epoch: Instant) -> Self {
        Self {
            state: Mutex::default(),
            ended: Condvar::new(),
            epoch,
            early: EarlyInterrupts::default(),
        }
    }

    /// Adds a thread.
    pub fn add(&self, worker: &Arc<Worker>) {
        self.state.lock().workers.push(Arc::clone(worker));
    }

    /// Removes a thread that has exited or could not be started.
    pub fn remove(&self, worker: &Arc<Worker>) {
        self.state.lock().workers.retain(|other| !Arc::ptr_eq(other, worker));
        self.ended.notify_all();
    }

    /// Number of threads.
    pub fn count(&self) -> usize {
        self.state.lock().workers.len()
    }

    /// Number of threads that have been busy for at least this long.
    pub fn count_busy(&self, least: Duration) -> usize {
        let is_busy = |worker: &&Arc<Worker>| self.busy_for(worker) >= least;
        self.state.lock().workers.iter().filter(is_busy).count()
    }

    /// All current threads.
    pub fn all(&self) -> Vec<Arc<Worker>> {
        self.state.lock().workers.clone()
    }

    /// Time for which a thread has been serving its current request; zero between requests.
    pub fn busy_for(&self, worker: &Worker) -> Duration {
        match worker.busy_since_ns.load(Ordering::SeqCst) {
            0 => Duration::ZERO,
            since_ns => {
                Duration::from_nanos(self.clock_ns(Instant::now()).saturating_sub(since_ns))
            }
        }
    }

    /// Whether any thread serves a request.
    pub fn is_busy(&self) -> bool {
        self.state.lock().is_busy()
    }

    /// Cancels requests that have been served for too long.
    pub fn cancel_overdue(&self, too_long: Duration) {
        for worker in &self.state.lock().workers {
            // The number is read before the time. If the request ends in between, cancelling its
            // number has no effect, because no other request has this number.
            let unique = worker.unique.load(Ordering::SeqCst);
            if self.busy_for(worker) >= too_long {
                worker.cancelled.store(unique, Ordering::SeqCst);
            }
        }
    }

    /// Cancels a request. If no thread serves it yet, it is cancelled when it begins.
    pub fn cancel(&self, unique: u64) {
        let state = self.state.lock();
        if state.cancel(unique) {
            return;
        }
        self.early.keep(unique);
        // If the request began in between, it has either taken the kept number or is found here.
        if state.cancel(unique) {
            self.early.take(unique);
        }
    }

    /// Cancels all requests in flight; afterwards [`Self::wait`] waits only for them.
    pub fn cut_off(&self) {
        let mut state = self.state.lock();
        state.is_cut_off = true;
        for worker in &state.workers {
            worker.cancelled.store(worker.unique.load(Ordering::SeqCst), Ordering::SeqCst);
        }
        self.ended.notify_all();
    }

    /// Records that the mount has ended.
    pub fn end(&self) {
        self.state.lock().is_over = true;
        self.ended.notify_all();
    }

    /// Whether the mount has ended.
    pub fn is_over(&self) -> bool {
        self.state.lock().is_over
    }

    /// Waits until the mount has ended and all threads have exited. After [`Self::cut_off`], waits
    /// only until every thread is between requests.
    pub fn wait(&self) {
        let mut state = self.state.lock();
        loop {
            if state.is_cut_off && !state.is_busy() || state.is_over && state.workers.is_empty() {
                return;
            }
            // The end of a request is not signalled, so this wait ends regularly to check for it.
            if state.is_cut_off {
                self.ended.wait_for(&mut state, CUT_OFF_CHECK);
            } else {
                self.ended.wait(&mut state);
            }
        }
    }

    fn clock_ns(&self, now: Instant) -> u64 {
        let elapsed = now.saturating_duration_since(self.epoch);
        // Never 0, which means "between requests".
        u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX).max(1)
    }
}

impl State {
    fn is_busy(&self) -> bool {
        self.workers.iter().any(|worker| worker.busy_since_ns.load(Ordering::SeqCst) != 0)
    }

    /// Marks a request for cancellation; returns `false` if no thread serves it.
    fn cancel(&self, unique: u64) -> bool {
        let serving = |worker: &&Arc<Worker>| worker.unique.load(Ordering::SeqCst) == unique;
        let worker = self.workers.iter().find(serving);
        worker.inspect(|worker| worker.cancelled.store(unique, Ordering::SeqCst)).is_some()
    }
}

impl Worker {
    /// Makes a new thread; `is_surplus` if it was added because other threads wait.
    pub fn new(is_surplus: bool) -> Self {
        Self { is_surplus, ..Self::default() }
    }

    /// Records the beginning of a request. Returns the thread's cancellation flag, which contains
    /// the number of the request to be cancelled.
    pub fn begin(&self, unique: u64, arrived: Instant, workers: &Workers) -> Arc<AtomicU64> {
        self.unique.store(unique, Ordering::SeqCst);
        self.busy_since_ns.store(workers.clock_ns(arrived), Ordering::SeqCst);
        if workers.early.take(unique) {
            self.cancelled.store(unique, Ordering::SeqCst);
        }
        Arc::clone(&self.cancelled)
    }

    /// Records the end of a request.
    pub fn finish(&self) {
        self.busy_since_ns.store(0, Ordering::SeqCst);
        self.unique.store(0, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_threads<const COUNT: usize>() -> (Workers, [Arc<Worker>; COUNT]) {
        let workers = Workers::default();
        let threads = std::array::from_fn(|_| Arc::default());
        threads.iter().for_each(|worker| workers.add(worker));
        (workers, threads)
    }

    #[test]
    fn only_the_current_request_is_cancelled() {
        let (workers, [worker]) = with_threads();
        let cancelled = worker.begin(7, Instant::now(), &workers);
        workers.cancel(8);
        assert_eq!(cancelled.load(Ordering::SeqCst), 0);
        workers.cancel(7);
        assert_eq!(cancelled.load(Ordering::SeqCst), 7);
        worker.finish();
    }

    /// The kernel sends the interrupt only once, and may deliver it to a thread that does not serve
    /// the request.
    #[test]
    fn a_request_can_be_cancelled_before_it_begins() {
        let (workers, [first, second]) = with_threads();
        workers.cancel(7);
        let other = second.begin(8, Instant::now(), &workers);
        let cancelled = first.begin(7, Instant::now(), &workers);
        assert_eq!(cancelled.load(Ordering::SeqCst), 7);
        assert_eq!(other.load(Ordering::SeqCst), 0);
    }

    /// The interrupt must reach the request, whether it arrives before or after the request begins.
    #[test]
    fn no_interrupt_is_lost_between_reading_and_beginning() {
        let (workers, [worker]) = with_threads();
        let together = std::sync::Barrier::new(2);
        let mut lost = Vec::new();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for unique in 1..=2000 {
                    together.wait();
                    workers.cancel(unique);
                    together.wait();
                }
            });
            for unique in 1..=2000 {
                together.wait();
                let cancelled = worker.begin(unique, Instant::now(), &workers);
                together.wait();
                lost.extend((cancelled.load(Ordering::SeqCst) != unique).then_some(unique));
                worker.finish();
            }
        });
        assert_eq!(lost, [0; 0]);
    }

    #[test]
    fn overdue_request_is_cancelled() {
        let (workers, [busy, idle]) = with_threads();
        let cancelled = busy.begin(7, Instant::now(), &workers);
        workers.cancel_overdue(Duration::from_secs(60));
        assert_eq!(cancelled.load(Ordering::SeqCst), 0, "not yet");
        std::thread::sleep(Duration::from_millis(2));
        workers.cancel_overdue(Duration::from_millis(1));
        assert_eq!(cancelled.load(Ordering::SeqCst), 7);
        assert_eq!(idle.cancelled.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn cutting_off_waits_for_requests_and_not_for_readers() {
        let (workers, [_reader, busy]) = with_threads();
        let cancelled = busy.begin(7, Instant::now(), &workers);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| workers.wait());
            workers.cut_off();
            assert_eq!(cancelled.load(Ordering::SeqCst), 7, "asked to give up");
            assert!(!waiting.is_finished());
            busy.finish();
            waiting.join().unwrap();
        });
    }
}
