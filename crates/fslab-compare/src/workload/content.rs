//! File contents, generated from a seed or taken from given files, and their checksums.

use std::path::PathBuf;

use rand::{Rng, RngExt, SeedableRng};
use rand_pcg::Pcg64;

use super::{Parameter, Parameters, given};
use crate::error::{Error, Result};
use crate::runner::Timed;
use crate::tree::{Access, Tree, TreeFile};

/// The size of requests, unless a parameter sets another.
pub(super) const REQUEST_BYTES: usize = 256 << 10;

/// The parameter for the kind of contents that a workload writes.
pub(super) const DATA: Parameter = Parameter::choice(
    "data",
    "content of files: text (gzip shrinks it to a third), binaries (like programs, to a half), \
     incompressible data, the letter a, or zeros",
    &["text", "binaries", "compressed", "all-a", "zeros"],
);

/// The parameter for contents from given files.
pub(super) const DATA_FROM: Parameter = Parameter::text(
    "data_from",
    "file or directory whose bytes are used instead of `data`; it must contain 8 MiB, or as many \
     bytes as the workload needs",
    "",
);

const VOCABULARY: usize = 1024;

/// The source of contents.
#[derive(Clone, Debug)]
pub(super) struct Content {
    kind: &'static str,
    given: Option<PathBuf>,
    seed: u64,
}

impl Content {
    /// Makes the source that the parameters [`DATA`] and [`DATA_FROM`] select.
    pub fn new(parameters: &Parameters, seed: u64) -> Self {
        let given = parameters.text(&DATA_FROM).map(PathBuf::from);
        Self { kind: parameters.word(&DATA), given, seed }
    }

    /// Returns a description of the contents, for samples.
    pub fn describe(&self) -> String {
        match &self.given {
            Some(path) => format!("from {}", path.display()),
            None => format!("{}, seed {}", self.kind, self.seed),
        }
    }

    /// Returns `length` bytes that depend only on the seed and `stream`. Bytes from given files are
    /// the same for every stream.
    pub fn make(&self, stream: u64, length: usize) -> Result<Vec<u8>> {
        match &self.given {
            Some(path) => given::take(path, length),
            None => Ok(make(self.kind, self.seed ^ stream, length)),
        }
    }
}

/// Returns `length` bytes of a kind from [`DATA`]; they depend only on the seed.
pub(super) fn make(kind: &str, seed: u64, length: usize) -> Vec<u8> {
    let mut random = Pcg64::seed_from_u64(seed);
    match kind {
        "zeros" => vec![0; length],
        "all-a" => vec![b'a'; length],
        "compressed" => {
            let mut bytes = vec![0; length];
            random.fill_bytes(&mut bytes);
            bytes
        }
        "binaries" => binaries(&mut random, length),
        _ => text(&mut random, length),
    }
}

/// Returns lines of made-up words. As in natural language, short words are more frequent.
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

/// Returns bytes like the machine code of programs. Instructions have one to six bytes, and
/// frequent ones are shorter. Some instructions are followed by a small relative address. Functions
/// are aligned to 16 bytes. After some functions there is a table of strings, as linkers place
/// them.
fn binaries(random: &mut Pcg64, length: usize) -> Vec<u8> {
    const FUNCTION: usize = 512;
    const SECTION: usize = 64 << 10;
    let codes: Vec<Vec<u8>> = (0..VOCABULARY * 2)
        .map(|rank| {
            let length = 1 + (rank + 1).ilog2() as usize / 3 + random.random_range(0..3);
            (0..length).map(|_| random.random()).collect()
        })
        .collect();
    let mut bytes = Vec::with_capacity(length + SECTION / 8);
    while bytes.len() < length {
        let function_end = bytes.len() + random.random_range(FUNCTION / 4..FUNCTION * 2);
        while bytes.len() < function_end {
            let rank = (0..3).map(|_| random.random_range(0..codes.len())).min().unwrap_or(0);
            bytes.extend_from_slice(&codes[rank]);
            if random.random_range(0..6) == 0 {
                bytes.extend_from_slice(&random.random_range(-4_096_i32..4_096).to_le_bytes());
            }
        }
        bytes.resize(bytes.len().next_multiple_of(16), 0);
        if random.random_range(0..SECTION / FUNCTION) == 0 {
            let strings = text(random, SECTION / 16);
            bytes.extend(strings.into_iter().map(|byte| if byte == b' ' { 0 } else { byte }));
        }
    }
    bytes.truncate(length);
    bytes
}

/// Bytes from which many files take different pieces. Generating separate contents for each file
/// would take longer than writing the files.
#[derive(Clone, Debug, Default)]
pub(super) struct Pool {
    bytes: Vec<u8>,
}

impl Pool {
    /// Makes a pool for pieces of at most `longest` bytes.
    pub fn new(content: &Content, longest: usize) -> Result<Self> {
        // Given files may contain only enough bytes for one piece.
        let spare = if content.given.is_some() { 0 } else { 1 << 20 };
        Ok(Self { bytes: content.make(0, longest + spare)? })
    }

    /// Makes a pool of existing bytes.
    pub fn of(bytes: Vec<u8>) -> Self {
        Self { bytes }
    }

    /// Returns the piece with a number. `length` must not exceed the length of the pool.
    pub fn piece(&self, number: u64, length: usize) -> &[u8] {
        let starts = (self.bytes.len() - length) as u64 + 1;
        // Multiplicative hashing: consecutive numbers get distant starts.
        let start = (number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 16) % starts;
        &self.bytes[start as usize..start as usize + length]
    }
}

/// Reads a whole file in requests of the buffer's size and returns its length.
pub(super) fn read_all(file: &dyn TreeFile, buffer: &mut [u8]) -> Result<u64> {
    let mut offset = 0;
    while let length @ 1.. = file.read_at(offset, buffer)? {
        offset += length as u64;
    }
    Ok(offset)
}

/// Opens a file of a target, reads it in requests of the buffer's size and returns its length.
pub(super) fn read_file(timed: &mut Timed<'_>, path: &str, buffer: &mut [u8]) -> Result<u64> {
    let file = timed.open_for_reading(path)?;
    let length = read_all(&*file, buffer)?;
    file.close()?;
    Ok(length)
}

/// Returns offsets and lengths of requests of at most `length` bytes that cover `size` bytes.
pub(super) fn pieces(size: u64, length: u64) -> impl Iterator<Item = (u64, usize)> {
    (0..size.div_ceil(length)).map(move |number| {
        let offset = number * length;
        (offset, length.min(size - offset) as usize)
    })
}

/// Reads a whole file and compares its checksum.
pub(super) fn verify(tree: &dyn Tree, path: &str, expected: u32) -> Result<()> {
    let file = tree.open(path, Access::Read)?;
    let mut buffer = vec![0; REQUEST_BYTES];
    let (mut offset, mut found) = (0, 0);
    while let length @ 1.. = file.read_at(offset, &mut buffer)? {
        found = crc32c::crc32c_append(found, &buffer[..length]);
        offset += length as u64;
    }
    same(path, expected, found)
}

/// Returns an error if the checksum of a file is not the expected one.
pub(super) fn same(path: &str, expected: u32, found: u32) -> Result<()> {
    if found == expected {
        return Ok(());
    }
    Err(Error::WrongContents { path: path.to_owned(), expected, found })
}

/// Returns an error if a count is not the expected one.
pub(super) fn expect(what: impl Into<String>, expected: u64, found: u64) -> Result<()> {
    if found == expected {
        return Ok(());
    }
    Err(Error::WrongCount { what: what.into(), expected, found })
}

/// Fills `buffer` from an offset of a file. A short read is continued by another one.
pub(super) fn read_exactly(
    file: &dyn TreeFile,
    path: &str,
    offset: u64,
    buffer: &mut [u8],
) -> Result<()> {
    let mut done = 0;
    while done < buffer.len() {
        match file.read_at(offset + done as u64, &mut buffer[done..])? {
            0 => break,
            length => done += length,
        }
    }
    expect(format!("bytes read of {path} at {offset}"), buffer.len() as u64, done as u64)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::Command;

    use super::{Content, Pool, make};

    /// Returns the factor by which `gzip -9` compresses contents.
    fn gzipped(bytes: &[u8]) -> f64 {
        let mut file = tempfile::tempfile_in(".").unwrap();
        file.write_all(bytes).unwrap();
        std::io::Seek::rewind(&mut file).unwrap();
        let mut command = Command::new("gzip");
        let output = command.args(["-9", "-c"]).stdin(file).output().unwrap();
        bytes.len() as f64 / output.stdout.len() as f64
    }

    #[test]
    fn content_kinds_compress_like_the_data_they_represent() {
        let length = 1 << 20;
        for (kind, least, most) in [
            ("all-a", 500.0, 2000.0),
            ("zeros", 500.0, 2000.0),
            ("text", 2.5, 4.0),
            ("binaries", 1.6, 2.6),
            ("compressed", 0.9, 1.0),
        ] {
            let bytes = make(kind, 7, length);
            assert_eq!(bytes.len(), length);
            assert_eq!(bytes, make(kind, 7, length));
            let factor = gzipped(&bytes);
            assert!((least..=most).contains(&factor), "{kind}: {factor}");
        }
        assert_ne!(make("text", 7, 100), make("text", 8, 100));
    }

    #[test]
    fn content_is_taken_from_given_files() {
        let directory = tempfile::tempdir_in(".").unwrap();
        std::fs::write(directory.path().join("a"), "firstsecond").unwrap();
        let given = Some(directory.path().to_owned());
        let content = Content { kind: "text", given, seed: 1 };
        assert_eq!(content.make(9, 8).unwrap(), b"firstsec");
        assert!(content.describe().starts_with("from "));
        let pool = Pool::new(&content, 11).unwrap();
        assert_eq!(pool.piece(5, 11), b"firstsecond");
    }
}
