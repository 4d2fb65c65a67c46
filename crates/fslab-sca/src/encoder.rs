//! Encodes content into bodies of frames.

use fslab_vfs::{Errno, Result};

use super::codec::CodecSpec;
use super::context::Settings;

/// A body, and whether its content is raw.
#[derive(Debug, PartialEq, Eq)]
pub struct Encoded {
    pub raw: bool,
    pub body: Vec<u8>,
}

/// Content shorter than this is encoded without sampling it first.
const SAMPLED_BYTES_MIN: usize = 16 << 10;
/// Number of samples, and bytes in each.
const SAMPLES: usize = 16;
const SAMPLE_BYTES: usize = 256;
/// Entropy in bits per byte above which content is treated as random. In a sample of 4 KiB, random
/// data has 7.95, text less than 6, programs less than 7.
const RANDOM_BITS_A_BYTE: f64 = 7.85;

/// Encodes several chunks, in parallel if that is worthwhile.
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

/// Encodes one chunk, or stores it raw if encoding saves too little.
pub fn encode(settings: &Settings, codec: &'static CodecSpec, content: &[u8]) -> Result<Encoded> {
    if codec.compresses && looks_random(content) {
        return Ok(Encoded { raw: true, body: codec.stored(content) });
    }
    let body = (codec.encode)(content, settings.level).map_err(|error| {
        tracing::error!(%error, "can't encode a chunk");
        Errno::NOMEM
    })?;
    let worth_it = (content.len() as f64 * (1.0 - settings.least_gain)) as usize;
    if codec.compresses && body.len() > worth_it {
        let stored = codec.stored(content);
        if stored.len() <= body.len() || content.len() >= SAMPLED_BYTES_MIN {
            return Ok(Encoded { raw: true, body: stored });
        }
    }
    Ok(Encoded { raw: false, body })
}

/// Whether a few samples contain all byte values about equally often.
pub fn looks_random(content: &[u8]) -> bool {
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
