//! Turning content into bodies of frames, on as many threads as were allowed.

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
const SAMPLES: usize = 4;
const SAMPLE_BYTES: usize = 1024;
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
    side_by_side(&settings.workers, &mut contents, &encode).into_iter().collect()
}

/// Does something to each of several items, in whatever order, and answers in theirs. The caller
/// takes its share: a thread that only waits is one too few, and waking another costs time.
pub fn side_by_side<I: Send, T: Send>(
    workers: &rayon::ThreadPool,
    items: &mut [I],
    work: &(impl Fn(&mut I) -> T + Sync),
) -> Vec<T> {
    let helpers = (workers.current_num_threads() - 1).min(items.len() - 1);
    let (waiting, done) = (Mutex::new(items.iter_mut().enumerate()), Mutex::new(Vec::new()));
    let take = || waiting.lock().next();
    let work_on = || {
        while let Some((number, item)) = take() {
            let answer = work(item);
            done.lock().push((number, answer));
        }
    };
    workers.in_place_scope(|scope| {
        for _ in 0..helpers {
            scope.spawn(|_| work_on());
        }
        work_on();
    });
    let mut done = done.into_inner();
    done.sort_unstable_by_key(|(number, _)| *number);
    done.into_iter().map(|(_, answer)| answer).collect()
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
