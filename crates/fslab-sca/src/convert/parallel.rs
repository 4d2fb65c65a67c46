//! The threads of a conversion.

use parking_lot::Mutex;

/// Number of threads of a conversion. The threads do not belong to a thread pool. A pool thread
/// that waits for encoded chunks would start further files, and each of them needs its own buffers.
#[derive(Clone, Copy)]
pub struct ThreadCount(pub usize);

impl ThreadCount {
    /// Applies `work` to each item, in this number of threads.
    pub fn for_each<I: Send>(self, items: Vec<I>, work: &(impl Fn(I) + Sync)) {
        let helpers = self.0.min(items.len()).saturating_sub(1);
        let waiting = Mutex::new(items.into_iter());
        let take = || waiting.lock().next();
        let work_on = || {
            while let Some(item) = take() {
                work(item);
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..helpers {
                let begun = std::thread::Builder::new().spawn_scoped(scope, work_on);
                if let Err(error) = begun {
                    tracing::warn!(%error, "can't start all threads, so the conversion is slower");
                }
            }
            work_on();
        });
    }
}
