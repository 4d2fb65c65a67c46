//! Packs an image of a file system into an aged image.

use std::fs::File;
use std::io::{BufWriter, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::SeekFrom as Where;
use zerocopy::IntoBytes;
use zerocopy::little_endian::{U32, U64};
use zstd::bulk::Compressor;
use zstd::zstd_safe::CParameter;

use super::format::{FACTS_BYTES_MAX, MAGIC, PIECE_BYTES, RawHeader, SKIPPABLE, VERSION};
use super::{Identity, Packed};
use crate::error::{Error, Result};
use crate::table::directory_of;

/// Compression level; this one is fast and compresses zeros well.
const LEVEL: i32 = 3;

/// Packs an image. The output file appears only when it is complete.
///
/// # Errors
/// Fails if the identity is invalid, and on I/O errors.
pub fn pack(image: &Path, output: &Path, identity: &Identity) -> Result<Packed> {
    let facts = facts_text(identity)?;
    let workload_hash = parse_hash(&identity.workload)?;
    let source = File::open(image).map_err(Error::file(image))?;
    let image_bytes = source.metadata().map_err(Error::file(image))?.len();
    let unfinished = tempfile::NamedTempFile::new_in(directory_of(output));
    let unfinished = unfinished.map_err(Error::file(output))?;
    let mut out = BufWriter::new(unfinished);
    let mut header = RawHeader {
        skippable: U32::new(SKIPPABLE),
        frame_bytes: U32::new((size_of::<RawHeader>() - 8 + facts.len()) as u32),
        magic: MAGIC,
        version: U32::new(VERSION),
        checksum: U32::new(0),
        image_bytes: U64::new(image_bytes),
        image_hash: [0; 32],
        workload_hash,
        facts_bytes: U32::new(facts.len() as u32),
        reserved: U32::new(0),
    };
    let head = [header.as_bytes(), facts.as_bytes()].concat();
    out.write_all(&head).map_err(Error::file(output))?;
    header.image_hash = Packer::new(&source, image, output)?.pack(image_bytes, &mut out)?;
    header.checksum = U32::new(header.checksum_with(facts.as_bytes()));
    out.seek(SeekFrom::Start(0)).map_err(Error::file(output))?;
    out.write_all(header.as_bytes()).map_err(Error::file(output))?;
    let unfinished = out.into_inner().map_err(|error| error.into_error());
    let unfinished = unfinished.map_err(Error::file(output))?;
    unfinished.as_file().sync_all().map_err(Error::file(output))?;
    let done = unfinished.persist(output).map_err(|error| error.error);
    let file_bytes = done.and_then(|file| file.metadata()).map_err(Error::file(output))?.len();
    Ok(Packed { image_bytes, file_bytes })
}

/// Formats the facts as lines. Fails if a key is empty or contains a colon, or if a fact contains a
/// line break.
fn facts_text(identity: &Identity) -> Result<String> {
    let mut text = String::new();
    for (key, value) in &identity.facts {
        let broken = key.is_empty() || key.contains([':', '\n']) || value.contains('\n');
        if broken {
            let what = format!(
                "the fact '{}' must be on one line, and its key must not contain a colon",
                key.escape_debug()
            );
            return Err(Error::parameter(what));
        }
        text += &format!("{key}: {value}\n");
    }
    if text.len() > FACTS_BYTES_MAX {
        return Err(Error::parameter("the facts (lines `key: value`) exceed 64 KiB"));
    }
    Ok(text)
}

fn parse_hash(text: &str) -> Result<[u8; 32]> {
    let hash = blake3::Hash::from_hex(text).map_err(|_unfit| {
        Error::parameter(format!("'{text}' is not a hash of 64 hexadecimal digits"))
    })?;
    Ok(*hash.as_bytes())
}

/// Compresses pieces of an image into frames.
struct Packer<'a> {
    image: &'a File,
    path: &'a Path,
    output: &'a Path,
    compressor: Compressor<'static>,
    hasher: blake3::Hasher,
}

impl<'a> Packer<'a> {
    fn new(image: &'a File, path: &'a Path, output: &'a Path) -> Result<Self> {
        let mut compressor = Compressor::new(LEVEL).map_err(Error::file(output))?;
        let checked = compressor.set_parameter(CParameter::ChecksumFlag(true));
        checked.map_err(Error::file(output))?;
        Ok(Self { image, path, output, compressor, hasher: blake3::Hasher::new() })
    }

    /// Writes all frames and returns the hash of the image.
    fn pack(mut self, image_bytes: u64, out: &mut impl Write) -> Result<[u8; 32]> {
        let mut piece = vec![0; PIECE_BYTES];
        // Most pieces of a little-used image are holes; the frame for a hole is compressed only
        // once.
        let mut empty: Option<Vec<u8>> = None;
        let mut at = 0;
        while at < image_bytes {
            let length = (image_bytes - at).min(PIECE_BYTES as u64) as usize;
            let piece = &mut piece[..length];
            let is_hole = length == PIECE_BYTES && !self.has_data(at, length as u64)?;
            match &empty {
                Some(frame) if is_hole => {
                    piece.fill(0);
                    out.write_all(frame).map_err(Error::file(self.output))?;
                }
                _ => {
                    self.image.read_exact_at(piece, at).map_err(Error::file(self.path))?;
                    let frame =
                        self.compressor.compress(piece).map_err(Error::file(self.output))?;
                    out.write_all(&frame).map_err(Error::file(self.output))?;
                    empty = if is_hole { Some(frame) } else { empty };
                }
            }
            self.hasher.update(piece);
            at += length as u64;
        }
        Ok(*self.hasher.finalize().as_bytes())
    }

    /// Whether a part of the image may contain data.
    fn has_data(&self, at: u64, length: u64) -> Result<bool> {
        match rustix::fs::seek(self.image, Where::Data(at)) {
            Ok(next) => Ok(next < at + length),
            Err(rustix::io::Errno::NXIO) => Ok(false),
            // The file system can't report holes, so any part may contain data.
            Err(rustix::io::Errno::INVAL) => Ok(true),
            Err(errno) => Err(Error::file(self.path)(errno)),
        }
    }
}
