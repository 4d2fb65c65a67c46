//! Turning content into bodies of frames, on as many threads as were allowed.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use fslab_vfs::{Errno, Result};
use parking_lot::Mutex;

use super::codec::CodecSpec;
use super::context::Settings;

/// A body and whether its content is in it as it is.
#[derive(Debug, PartialEq, Eq)]
pub struct Encoded {
    pub raw: bool,
    pub body: Vec<u8>,
}

/// Content shorter than this is tried without a look at it first.
const SAMPLED_BYTES_MIN: usize = 16 << 10;
/// Pieces looked at, and bytes of each.
const SAMPLES: usize = 16;
const SAMPLE_BYTES: usize = 256;
/// Bits a byte above which content is taken for random. What is random shows 7.95 in a sample of
/// 4 KiB; text stays below 6, programs below 7.
const RANDOM_BITS_A_BYTE: f64 = 7.85;

/// Encodes several chunks, side by side if that is worth it.
pub fn encode_all(
    settings: &Settings,
    codec: &'static CodecSpec,
    contents: &[&[u8]],
) -> Result<Vec<Encoded>> {
    if contents.len() < 2 || !codec.compresses {
        return contents.iter().map(|content| encode(settings, codec, content)).collect();
    }
    let mut contents = contents.to_vec();
    let encode = |content: &mut &[u8]| encode(settings, codec, content);
    settings.workers.side_by_side(&mut contents, &encode).into_iter().collect()
}

/// Threads that encode and decode. Nobody waits for one that has something else to do.
pub struct Workers {
    pool: rayon::ThreadPool,
    /// Threads that have a job, and jobs that wait for one.
    busy: Arc<AtomicUsize>,
}

impl Workers {
    pub fn new(pool: rayon::ThreadPool) -> Self {
        Self { pool, busy: Arc::default() }
    }

    pub fn count(&self) -> usize {
        self.pool.current_num_threads()
    }

    /// Has a thread do a job, when there is one.
    pub fn spawn(&self, job: impl FnOnce() + Send + 'static) {
        let reserved = Reserved::new(&self.busy);
        self.pool.spawn(move || {
            let _reserved = reserved;
            job();
        });
    }

    /// Does something to each of several items, in whatever order, and answers in theirs. The
    /// caller takes its share: a thread that only waits is one too few, and waking another costs
    /// time. It is helped by idle threads only.
    pub fn side_by_side<I: Send, T: Send>(
        &self,
        items: &mut [I],
        work: &(impl Fn(&mut I) -> T + Sync),
    ) -> Vec<T> {
        let wanted = (self.count() - 1).min(items.len().saturating_sub(1));
        let helpers = self.reserve_idle(wanted);
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

    /// Reserves threads that have nothing to do, at most so many.
    fn reserve_idle(&self, wanted: usize) -> Vec<Reserved> {
        let threads = self.count();
        let most = |busy: usize| wanted.min(threads.saturating_sub(busy));
        let reserve = |busy: usize| Some(busy + most(busy));
        let (Ok(before) | Err(before)) =
            self.busy.fetch_update(Ordering::Relaxed, Ordering::Relaxed, reserve);
        (0..most(before)).map(|_| Reserved(Arc::clone(&self.busy))).collect()
    }
}

/// A thread with a job; idle again when dropped.
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

/// Encodes one chunk, or stores it as it is where encoding gains too little.
pub fn encode(settings: &Settings, codec: &'static CodecSpec, content: &[u8]) -> Result<Encoded> {
    if codec.compresses && looks_random(content) {
        return Ok(Encoded { raw: true, body: (codec.store)(content) });
    }
    let body = (codec.encode)(content, settings.level).map_err(|error| {
        tracing::error!(%error, "a chunk could not be encoded");
        Errno::NOMEM
    })?;
    let worth_it = (content.len() as f64 * (1.0 - settings.least_gain)) as usize;
    if codec.compresses && body.len() > worth_it {
        let stored = (codec.store)(content);
        if stored.len() <= body.len() || content.len() >= SAMPLED_BYTES_MIN {
            return Ok(Encoded { raw: true, body: stored });
        }
    }
    Ok(Encoded { raw: false, body })
}

/// Whether a few samples hold all byte values about equally often.
fn looks_random(content: &[u8]) -> bool {
    if content.len() < SAMPLED_BYTES_MIN {
        return false;
    }
    let mut counts = [0_u32; 256];
    for sample in 0..SAMPLES {
        let start = (content.len() - SAMPLE_BYTES) / (SAMPLES - 1) * sample;
        for byte in &content[start..start + SAMPLE_BYTES] {
            counts[usize::from(*byte)] += 1;
        }
    }
    let total = (SAMPLES * SAMPLE_BYTES) as f64;
    let share = |count: &u32| f64::from(*count) / total;
    let bits: f64 =
        counts.iter().map(share).filter(|share| *share > 0.0).map(|p| -p * p.log2()).sum();
    bits > RANDOM_BITS_A_BYTE
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use super::*;

    /// A helper that waits for a busy thread would keep its caller waiting for that one's job.
    #[test]
    fn nobody_waits_for_a_thread_that_is_busy() {
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
