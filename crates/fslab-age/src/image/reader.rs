//! Opens and unpacks aged images. They are untrusted, so sizes in the header are checked before
//! use, and the unpacked image is compared with its hash.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use zerocopy::{FromZeros, IntoBytes};
use zstd::stream::read::Decoder;

use super::Identity;
use super::format::{FACTS_BYTES_MAX, MAGIC, RawHeader, SKIPPABLE, VERSION, WINDOW_LOG_MAX};
use crate::error::{Error, Result};

/// The name of the format in error messages.
const NAME: &str = "aged image";

/// An aligned block of this many zero bytes is left as a hole.
const HOLE_BYTES: usize = 4096;

/// Whether a file begins with the magic numbers of an aged image.
///
/// # Errors
/// Fails on I/O errors.
pub fn is_aged_image(path: &Path) -> Result<bool> {
    let file = File::open(path).map_err(Error::file(path))?;
    let mut begin = [0; 16];
    match file.read_exact_at(&mut begin, 0) {
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Ok(false),
        answer => {
            answer.map_err(Error::file(path))?;
            Ok(begin[..4] == SKIPPABLE.to_le_bytes() && begin[8..] == MAGIC)
        }
    }
}

/// An aged image with its parsed header.
pub struct AgedImage {
    path: PathBuf,
    input: BufReader<File>,
    header: RawHeader,
    identity: Identity,
}

impl AgedImage {
    /// Opens an aged image.
    ///
    /// # Errors
    /// Fails if the file is not an aged image, and on I/O errors.
    pub fn open(path: &Path) -> Result<Self> {
        let file = File::open(path).map_err(Error::file(path))?;
        let mut input = BufReader::with_capacity(1 << 18, file);
        let mut header = RawHeader::new_zeroed();
        read_head(&mut input, header.as_mut_bytes(), path)?;
        check(&header, path)?;
        let mut facts = vec![0; header.facts_bytes.get() as usize];
        read_head(&mut input, &mut facts, path)?;
        if header.checksum.get() != header.checksum_with(&facts) {
            return Err(wrong(path, "its header is damaged"));
        }
        let text = String::from_utf8(facts);
        let text =
            text.map_err(|_not_utf8| wrong(path, "the facts in its header are not UTF-8 text"))?;
        let facts: Option<BTreeMap<String, String>> = text.lines().map(fact).collect();
        let identity = Identity {
            workload: blake3::Hash::from_bytes(header.workload_hash).to_hex().to_string(),
            facts: facts.ok_or_else(|| {
                wrong(path, "a fact in its header does not have the form `key: value`")
            })?,
        };
        Ok(Self { path: path.to_owned(), input, header, identity })
    }

    /// Returns the identity from the header.
    #[must_use]
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Returns the size of the image in bytes.
    #[must_use]
    pub fn image_bytes(&self) -> u64 {
        self.header.image_bytes.get()
    }

    pub(super) fn header(&self) -> &RawHeader {
        &self.header
    }

    /// Writes the image to a file, replacing its content; blocks of zeros become holes.
    ///
    /// # Errors
    /// Fails if the aged image is damaged, and on I/O errors. After a failure, the file must not be
    /// used.
    pub fn unpack(self, to: &Path, output: &File) -> Result<()> {
        output.set_len(0).map_err(Error::file(to))?;
        output.set_len(self.image_bytes()).map_err(Error::file(to))?;
        let path = self.path;
        let mut input = self.input;
        // An empty image has no frames. The decoder is not called, because it would report a
        // truncated frame.
        let is_empty = input.fill_buf().map_err(Error::file(&path))?.is_empty();
        if is_empty && self.header.image_bytes.get() == 0 {
            return Ok(());
        }
        let damaged = || wrong(&path, "its content is damaged");
        let mut decoder = Decoder::with_buffer(input).map_err(Error::file(&path))?;
        decoder.window_log_max(WINDOW_LOG_MAX).map_err(Error::file(&path))?;
        let (mut hasher, mut buffer) = (blake3::Hasher::new(), Vec::new());
        let (mut at, end) = (0, self.header.image_bytes.get());
        loop {
            buffer.clear();
            let read = decoder.by_ref().take(1 << 20).read_to_end(&mut buffer);
            let length = read.map_err(|error| {
                match error.raw_os_error() {
                    // An error with an errno comes from the system, not from the decoder.
                    Some(_) => Error::file(&path)(error),
                    None => damaged(),
                }
            })?;
            if length as u64 > end - at {
                return Err(damaged());
            }
            if length == 0 {
                break;
            }
            hasher.update(&buffer);
            write_data(output, &buffer, at).map_err(Error::file(to))?;
            at += length as u64;
        }
        if at < end || *hasher.finalize().as_bytes() != self.header.image_hash {
            return Err(damaged());
        }
        Ok(())
    }
}

fn read_head(input: &mut impl Read, bytes: &mut [u8], path: &Path) -> Result<()> {
    match input.read_exact(bytes) {
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
            Err(wrong(path, "it ends within its header"))
        }
        answer => answer.map_err(Error::file(path)),
    }
}

fn check(header: &RawHeader, path: &Path) -> Result<()> {
    if header.skippable.get() != SKIPPABLE || header.magic != MAGIC {
        return Err(wrong(
            path,
            "it does not begin with a header; `fslab age image pack` makes aged images",
        ));
    }
    let (found, known) = (header.version.get(), VERSION);
    if found == 0 {
        return Err(wrong(path, "its header is damaged"));
    }
    if found > known {
        return Err(Error::newer_format(path, found, known));
    }
    let facts = header.facts_bytes.get() as usize;
    let frame = size_of::<RawHeader>() - 8 + facts;
    let fits = facts <= FACTS_BYTES_MAX
        && header.frame_bytes.get() as usize == frame
        && header.reserved.get() == 0
        && i64::try_from(header.image_bytes.get()).is_ok();
    if fits { Ok(()) } else { Err(wrong(path, "its header is damaged")) }
}

fn fact(line: &str) -> Option<(String, String)> {
    let (key, value) = line.split_once(": ")?;
    Some((key.to_owned(), value.to_owned()))
}

fn wrong(path: &Path, what: &'static str) -> Error {
    Error::Format { path: path.to_owned(), format: NAME, what }
}

/// Writes the blocks that contain data, adjacent ones together, and skips blocks of zeros.
fn write_data(output: &File, bytes: &[u8], at: u64) -> std::io::Result<()> {
    let is_data = |block: &[u8]| block.iter().any(|byte| *byte != 0);
    let blocks: Vec<&[u8]> = bytes.chunks(HOLE_BYTES).collect();
    let mut place = 0;
    for run in blocks.chunk_by(|one, next| is_data(one) == is_data(next)) {
        let length: usize = run.iter().map(|block| block.len()).sum();
        if is_data(run[0]) {
            output.write_all_at(&bytes[place..place + length], at + place as u64)?;
        }
        place += length;
    }
    Ok(())
}
