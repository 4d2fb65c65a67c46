//! Work on many files or blocks by several threads.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use parking_lot::Mutex;

/// Divides items into one consecutive share for each processor, and processes the shares in
/// parallel. Fewer items than `min` are processed by the calling thread alone, as one share.
/// Returns the results of the shares in the order of the items.
pub(crate) fn in_shares<T: Send, R: Send>(
    items: &mut [T],
    min: usize,
    work: impl Fn(&mut [T]) -> R + Sync,
) -> Vec<R> {
    let is_shared = items.len() >= min;
    let threads =
        if is_shared { thread::available_parallelism().map_or(1, usize::from) } else { 1 };
    by_threads(threads, items.len().div_ceil(threads), items, work)
}

/// Processes items with this many threads; each free thread takes the next item. Returns the
/// results in the order of the items.
pub(crate) fn each_by<T: Send, R: Send>(
    threads: usize,
    items: &mut [T],
    work: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    let results = by_threads(threads, 1, items, |item| item.iter().map(&work).collect::<Vec<_>>());
    results.into_iter().flatten().collect()
}

/// Drops values with this many threads, because dropping a use of a file may sync the file.
pub(crate) fn drop_by<T: Send>(threads: usize, values: Vec<T>) {
    let mut values: Vec<_> = values.into_iter().map(Some).collect();
    by_threads(threads, 1, &mut values, |share| share.iter_mut().for_each(|value| *value = None));
}

/// Divides items into shares of this length, and processes them by at most this many threads.
fn by_threads<T: Send, R: Send>(
    threads: usize,
    length: usize,
    items: &mut [T],
    work: impl Fn(&mut [T]) -> R + Sync,
) -> Vec<R> {
    let length = length.max(1);
    let threads = threads.min(items.len().div_ceil(length));
    let queue = Mutex::new(items.chunks_mut(length).enumerate());
    let results = Mutex::new(Vec::new());
    let work_on = || {
        loop {
            let Some((number, share)) = queue.lock().next() else { return };
            let result = work(share);
            results.lock().push((number, result));
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads {
            let builder = thread::Builder::new().name("fslab-tier".to_owned());
            // If no thread can be started, the threads that exist process all shares.
            if builder.spawn_scoped(scope, work_on).is_err() {
                break;
            }
        }
        work_on();
    });
    let mut results = results.into_inner();
    results.sort_unstable_by_key(|(number, _)| *number);
    results.into_iter().map(|(_, result)| result).collect()
}

type Task<R> = Box<dyn FnOnce() -> R + Send>;

/// The result of a task, or the payload of its panic.
type Outcome<R> = Result<R, Box<dyn Any + Send>>;

/// Threads that perform tasks while their owner continues. Dropping this waits for all started
/// tasks.
pub(crate) struct Workers<R> {
    most: usize,
    /// `None` once no more tasks follow.
    tasks: Option<Sender<Task<R>>>,
    queue: Arc<Mutex<Receiver<Task<R>>>>,
    outcomes: (Sender<Outcome<R>>, Receiver<Outcome<R>>),
    threads: Vec<thread::JoinHandle<()>>,
    /// Number of started tasks whose result was not taken yet.
    started: usize,
}

impl<R: Send + 'static> Workers<R> {
    /// Performs at most this many tasks at the same time. With 1, the owner's thread performs them.
    pub(crate) fn new(most: usize) -> Self {
        let (tasks, queue) = channel();
        let queue = Arc::new(Mutex::new(queue));
        let (threads, started) = (Vec::new(), 0);
        Self { most, tasks: Some(tasks), queue, outcomes: channel(), threads, started }
    }

    /// Returns whether [`Self::start`] would queue a task.
    pub(crate) fn are_busy(&self) -> bool {
        self.started >= self.most.max(1)
    }

    /// Starts a task.
    pub(crate) fn start(&mut self, task: impl FnOnce() -> R + Send + 'static) {
        self.started += 1;
        if self.started > self.threads.len() && self.threads.len() < self.most && self.most > 1 {
            self.add_thread();
        }
        // Without threads, the task is performed here.
        match &self.tasks {
            Some(tasks) if !self.threads.is_empty() => {
                // The receiver is never dropped before the sender, so this can't fail.
                tasks.send(Box::new(task)).unwrap_or_default();
            }
            _ => perform(task, &self.outcomes.0),
        }
    }

    fn add_thread(&mut self) {
        let (queue, outcomes) = (Arc::clone(&self.queue), self.outcomes.0.clone());
        let work = move || {
            loop {
                let task = queue.lock().recv();
                let Ok(task) = task else { return };
                perform(task, &outcomes);
            }
        };
        // If no thread can be started, the existing ones perform all tasks.
        let thread = thread::Builder::new().name("fslab-tier".to_owned()).spawn(work);
        self.threads.extend(thread);
    }

    /// Returns the result of a task that has ended.
    pub(crate) fn take_ended(&mut self) -> Option<R> {
        let outcome = self.outcomes.1.try_recv().ok()?;
        Some(self.take(outcome))
    }

    /// Waits for the next task to end, and returns its result; `None` if no task is started.
    pub(crate) fn wait_for_one(&mut self) -> Option<R> {
        if self.started == 0 {
            return None;
        }
        let outcome = self.outcomes.1.recv().ok()?;
        Some(self.take(outcome))
    }

    fn take(&mut self, outcome: Outcome<R>) -> R {
        self.started -= 1;
        outcome.unwrap_or_else(|panic| resume_unwind(panic))
    }
}

/// Performs a task and sends its result.
fn perform<R>(task: impl FnOnce() -> R, outcomes: &Sender<Outcome<R>>) {
    let outcome = catch_unwind(AssertUnwindSafe(task));
    // The owner keeps the receiver until all threads have ended.
    outcomes.send(outcome).unwrap_or_default();
}

impl<R> Drop for Workers<R> {
    fn drop(&mut self) {
        drop(self.tasks.take());
        for thread in self.threads.drain(..) {
            // The threads catch the panics of tasks.
            thread.join().unwrap_or_default();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn workers_perform_tasks_at_the_same_time() {
        let (mut workers, barrier) = (Workers::new(4), Arc::new(Barrier::new(4)));
        for number in 0..4 {
            assert!(!workers.are_busy());
            let barrier = Arc::clone(&barrier);
            workers.start(move || {
                barrier.wait();
                number
            });
        }
        assert!(workers.are_busy());
        let mut found: Vec<i32> = std::iter::from_fn(|| workers.wait_for_one()).collect();
        found.sort_unstable();
        assert_eq!(found, [0, 1, 2, 3]);
        assert!(!workers.are_busy() && workers.take_ended().is_none());
    }

    #[test]
    fn one_worker_is_the_owner() {
        let (mut workers, own) = (Workers::new(1), thread::current().id());
        workers.start(|| thread::current().id());
        assert!(workers.are_busy());
        assert_eq!(workers.take_ended(), Some(own));
    }

    #[test]
    fn panic_of_a_task_reaches_the_owner() {
        for most in [1, 2] {
            let mut workers = Workers::new(most);
            workers.start(|| panic!("planted"));
            let taken = catch_unwind(AssertUnwindSafe(|| workers.wait_for_one()));
            assert!(taken.is_err());
        }
    }

    #[test]
    fn results_are_in_the_order_of_the_items() {
        for count in [0, 1, 63, 64, 1000, 1001] {
            let mut items: Vec<usize> = (0..count).collect();
            let shares = in_shares(&mut items, 64, |share| {
                share.iter_mut().for_each(|item| *item += 1);
                share.to_vec()
            });
            let found: Vec<usize> = shares.into_iter().flatten().collect();
            assert_eq!(found, (1..=count).collect::<Vec<_>>());
            assert_eq!(items, found);
        }
    }
}
