//! File contents made from a seed, and their checksums.

use rand::{Rng, RngExt, SeedableRng};
use rand_pcg::Pcg64;

use super::{DefaultValue, Parameter};
use crate::error::{Error, Result};
use crate::tree::TreeFile;

/// Requests are of this size unless a parameter says otherwise.
pub(super) const REQUEST_BYTES: usize = 256 << 10;

/// The parameter of workloads that write contents.
pub(super) const DATA: Parameter = Parameter {
    name: "data",
    help: "what files hold: words (compressible about threefold), random bytes, or zeros",
    default: DefaultValue::Choice(&["text", "random", "zeros"]),
};

const VOCABULARY: usize = 1024;

/// `length` bytes of a kind that [`DATA`] names; the same for the same seed.
pub(super) fn make(kind: &str, seed: u64, length: usize) -> Vec<u8> {
    let mut random = Pcg64::seed_from_u64(seed);
    match kind {
        "zeros" => vec![0; length],
        "random" => {
            let mut bytes = vec![0; length];
            random.fill_bytes(&mut bytes);
            bytes
        }
        _ => text(&mut random, length),
    }
}

/// Lines of made-up words, short and low-numbered ones the more frequent, as in speech.
fn text(random: &mut Pcg64, length: usize) -> Vec<u8> {
    let words: Vec<Vec<u8>> = (0..VOCABULARY).map(|rank| word(random, rank)).collect();
    let mut bytes = Vec::with_capacity(length + 16);
    let mut line_start = 0;
    while bytes.len() < length {
        let rank = (0..3).map(|_| random.random_range(0..VOCABULARY)).min().unwrap_or(0);
        bytes.extend_from_slice(&words[rank]);
        let is_long = bytes.len() - line_start > 70;
        bytes.push(if is_long { b'\n' } else { b' ' });
        if is_long {
            line_start = bytes.len();
        }
    }
    bytes.truncate(length);
    bytes
}

fn word(random: &mut Pcg64, rank: usize) -> Vec<u8> {
    let length = 2 + (rank + 1).ilog2() as usize / 2 + random.random_range(0..4);
    (0..length).map(|_| random.random_range(b'a'..=b'z')).collect()
}

/// Reads a whole file in requests of the buffer's size and answers its length.
pub(super) fn read_all(file: &dyn TreeFile, buffer: &mut [u8]) -> Result<u64> {
    let mut offset = 0;
    loop {
        match file.read_at(offset, buffer)? {
            0 => return Ok(offset),
            length => offset += length as u64,
        }
    }
}

/// Reads a whole file and compares its checksum.
pub(super) fn verify(
    file: &dyn TreeFile,
    path: &str,
    expected: u32,
    buffer: &mut [u8],
) -> Result<()> {
    let (mut offset, mut found) = (0, 0);
    loop {
        let length = file.read_at(offset, buffer)?;
        if length == 0 {
            break;
        }
        found = crc32c::crc32c_append(found, &buffer[..length]);
        offset += length as u64;
    }
    if found == expected {
        return Ok(());
    }
    Err(Error::WrongContents { path: path.to_owned(), expected, found })
}
