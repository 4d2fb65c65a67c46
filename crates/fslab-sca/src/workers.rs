//! A pool of threads that encode and decode.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

/// Threads that encode and decode. A caller never waits for a thread that is busy with another job.
pub struct Workers {
    pool: rayon::ThreadPool,
    /// Running jobs, queued jobs, and callers that work themselves.
    busy: Arc<AtomicUsize>,
}

impl Workers {
    pub fn new(pool: rayon::ThreadPool) -> Self {
        Self { pool, busy: Arc::default() }
    }

    pub fn count(&self) -> usize {
        self.pool.current_num_threads()
    }

    /// Queues a job for the next free thread.
    pub fn spawn(&self, job: impl FnOnce() + Send + 'static) {
        let reserved = Reserved::new(&self.busy);
        self.pool.spawn(move || {
            let _reserved = reserved;
            job();
        });
    }

    /// Applies `work` to several items in any order; returns the results in the order of the items.
    /// The caller works too, helped only by idle threads. If it waited instead, its thread would be
    /// wasted, and waking another thread costs time.
    pub fn side_by_side<I: Send, T: Send>(
        &self,
        items: &mut [I],
        work: &(impl Fn(&mut I) -> T + Sync),
    ) -> Vec<T> {
        // The caller occupies a processor too, so it counts as busy for other callers.
        let _caller = Reserved::new(&self.busy);
        let helpers = self.reserve_idle(items.len().saturating_sub(1));
        let (waiting, done) = (Mutex::new(items.iter_mut().enumerate()), Mutex::new(Vec::new()));
        let take = || waiting.lock().next();
        let work_on = || {
            while let Some((number, item)) = take() {
                let answer = work(item);
                done.lock().push((number, answer));
            }
        };
        self.pool.in_place_scope(|scope| {
            for reserved in helpers {
                scope.spawn(|_| {
                    let _reserved = reserved;
                    work_on();
                });
            }
            work_on();
        });
        let mut done = done.into_inner();
        done.sort_unstable_by_key(|(number, _)| *number);
        done.into_iter().map(|(_, answer)| answer).collect()
    }

    /// Reserves at most `wanted` threads, and at most as many as there are idle ones.
    fn reserve_idle(&self, wanted: usize) -> Vec<Reserved> {
        let threads = self.count();
        let most = |busy: usize| wanted.min(threads.saturating_sub(busy));
        let reserve = |busy: usize| Some(busy + most(busy));
        let (Ok(before) | Err(before)) =
            self.busy.fetch_update(Ordering::Relaxed, Ordering::Relaxed, reserve);
        (0..most(before)).map(|_| Reserved(Arc::clone(&self.busy))).collect()
    }
}

/// A thread reserved for a job; dropping it makes the thread idle again.
struct Reserved(Arc<AtomicUsize>);

impl Reserved {
    fn new(busy: &Arc<AtomicUsize>) -> Self {
        busy.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(busy))
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use super::*;

    /// If as many callers as threads are busy, a further helper would only take processor time from
    /// them.
    #[test]
    fn caller_gets_no_help_while_other_callers_keep_all_threads_busy() {
        const THREADS: usize = 2;
        let pool = rayon::ThreadPoolBuilder::new().num_threads(THREADS).build().unwrap();
        let workers = Workers::new(pool);
        let (gate, (began, begun)) = (Mutex::new(()), mpsc::channel());
        let closed = gate.lock();
        thread::scope(|scope| {
            scope.spawn(|| {
                workers.side_by_side(&mut [began], &|began| {
                    began.send(()).unwrap();
                    drop(gate.lock());
                })
            });
            begun.recv().unwrap();
            let alone = |_: &mut u64| {
                thread::sleep(Duration::from_millis(2));
                thread::current().id()
            };
            let threads = workers.side_by_side(&mut (0..50).collect::<Vec<u64>>(), &alone);
            drop(closed);
            assert!(threads.iter().all(|thread| *thread == thread::current().id()), "{threads:?}");
        });
    }

    /// If a helper's job were queued for a busy thread, the caller would wait for that thread's
    /// other job.
    #[test]
    fn parallel_work_does_not_wait_for_busy_threads() {
        const THREADS: usize = 3;
        for busy in 1..=THREADS {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(THREADS).build().unwrap();
            let workers = Arc::new(Workers::new(pool));
            let gate = Arc::new(Mutex::new(()));
            let closed = gate.lock();
            let (began, begun) = mpsc::channel();
            for _ in 0..busy {
                let (gate, began) = (Arc::clone(&gate), began.clone());
                workers.spawn(move || {
                    began.send(()).unwrap();
                    drop(gate.lock());
                });
            }
            begun.iter().take(busy).for_each(drop);
            let (end, ended) = mpsc::channel();
            let helped = Arc::clone(&workers);
            thread::spawn(move || {
                let mut items: Vec<u64> = (0..100).collect();
                end.send(helped.side_by_side(&mut items, &|item| *item * 2)).unwrap();
            });
            let answer = ended.recv_timeout(Duration::from_secs(20));
            drop(closed);
            let expected: Vec<u64> = (0..100).map(|item| item * 2).collect();
            assert_eq!(answer.as_ref(), Ok(&expected), "{busy} busy threads");
        }
    }
}
