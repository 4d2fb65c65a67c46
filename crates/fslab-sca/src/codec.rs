//! Codecs and their containers: one file each with a [`CodecSpec`], listed in [`CODECS`].
//!
//! A container is how frames look to the ordinary tools. Frame headers, index pages and the like
//! lie where a tool skips them; the content of data frames is what it decodes.
//!
//! Decoders are given bytes whose checksum was right, but treat them as hostile all the same:
//! they answer at most as many bytes as asked for, and `None` for anything irregular.

pub mod copy;
pub mod gzip;
pub mod lz4;
mod skippable;
pub mod uuencode;
pub mod zstd;

use std::ops::RangeInclusive;

use super::format::{FrameRecord, HEAD_BYTES};

/// Every codec.
pub const CODECS: &[&CodecSpec] =
    &[&copy::SPEC, &uuencode::SPEC, &gzip::SPEC, &zstd::SPEC, &lz4::SPEC];

/// Bytes of a frame record.
pub const RECORD_BYTES: usize = size_of::<FrameRecord>();

/// A frame record as bytes.
pub type RecordBytes = [u8; RECORD_BYTES];

/// A codec's declaration of itself.
#[derive(Debug)]
pub struct CodecSpec {
    /// Its number in stored files; never reused.
    pub number: u8,
    /// Its name, which is that of its layer.
    pub name: &'static str,
    /// One line of help.
    pub help: &'static str,
    /// What it can be asked for.
    pub levels: Levels,
    /// Whether incompressible content is worth a try to store it as it is.
    pub compresses: bool,
    /// Encodes content; what comes out is the body of a data frame.
    pub encode: fn(&[u8], i32) -> Result<Vec<u8>, CodecError>,
    /// The body of a data frame that holds content as it is, in the container's own form for that.
    pub store: fn(&[u8]) -> Vec<u8>,
    /// Decodes a body into a buffer; answers how much of it was filled, which may be too little.
    pub decode_into: fn(&[u8], &mut [u8]) -> Option<usize>,
    /// The container.
    pub container: Container,
}

/// The levels of a codec.
#[derive(Debug)]
pub struct Levels {
    /// From the fastest to the smallest.
    pub range: RangeInclusive<u32>,
    /// Where none is asked for, as it would be written.
    pub usual: &'static str,
}

impl Levels {
    /// Of a codec that has no choice.
    pub const NONE: Self = Self { range: 0..=0, usual: "0" };

    /// Whether there is no choice.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.range.end() == self.range.start()
    }
}

/// Makes the end of a packed file from the lengths of what lies before: encoded and decoded.
pub type Closing = fn(&[(u32, u32)]) -> Vec<u8>;

/// How frames are wrapped so that the ordinary tools take them.
#[derive(Clone, Copy, Debug)]
pub struct Container {
    /// Bytes before the body of any frame: the wrapped record.
    pub header_bytes: usize,
    /// The header of a frame whose body holds content (`true`), or metadata of so many bytes.
    pub wrap: fn(&RecordBytes, Body) -> Vec<u8>,
    /// The record in a header of [`Self::header_bytes`] bytes.
    pub unwrap: fn(&[u8]) -> Option<RecordBytes>,
    /// Metadata as a body.
    pub pack: fn(&[u8]) -> Vec<u8>,
    /// The metadata in a body.
    pub unpack: fn(&[u8]) -> Option<Vec<u8>>,
    /// The head with nothing in it.
    pub empty_head: fn() -> [u8; HEAD_BYTES as usize],
    /// Records in the head are printable.
    pub is_text: bool,
    /// What ends a packed file, from the lengths of its frames.
    pub closing: Option<Closing>,
}

/// What the body of a frame holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// Content, for the ordinary tools to decode.
    Content,
    /// Metadata of so many bytes, for them to skip.
    Metadata(usize),
}

/// Content could not be encoded: the codec had no memory, or a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("codec {codec} failed to encode {length} bytes")]
pub struct CodecError {
    /// The codec's name.
    pub codec: &'static str,
    /// Of the content.
    pub length: usize,
}

impl CodecSpec {
    /// The codec with this number.
    #[must_use]
    pub fn by_number(number: u8) -> Option<&'static Self> {
        CODECS.iter().copied().find(|codec| codec.number == number)
    }
}

impl CodecSpec {
    /// Content of a body, of exactly so many bytes.
    pub fn decode(&self, body: &[u8], length: usize) -> Option<Vec<u8>> {
        let mut content = vec![0; length];
        self.decode_exactly(body, &mut content).then_some(content)
    }

    /// Fills a buffer with the content of a body; answers whether that is all of it.
    pub fn decode_exactly(&self, body: &[u8], content: &mut [u8]) -> bool {
        (self.decode_into)(body, content) == Some(content.len())
    }
}

/// The record that lies behind `prefix` bytes of a header.
fn record_behind(header: &[u8], prefix: usize) -> Option<RecordBytes> {
    header.get(prefix..)?.first_chunk().copied()
}

/// Writes bytes to the beginning of a buffer; answers their number if they fit.
fn fill(content: &mut [u8], bytes: &[u8]) -> Option<usize> {
    content.get_mut(..bytes.len())?.copy_from_slice(bytes);
    Some(bytes.len())
}

#[cfg(test)]
mod tests;
