//! Codecs and their containers. Each has one file with a [`CodecSpec`]; [`CODECS`] lists them.
//!
//! A container wraps frames so that ordinary tools accept them. The tools skip frame headers, index
//! pages and other metadata, and decode the content of data frames.
//!
//! The input of a decoder has passed its checksum, but decoders still treat it as hostile. They
//! return at most the requested number of bytes, and `None` for malformed input.

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

/// Size of a frame record in bytes.
pub const RECORD_BYTES: usize = size_of::<FrameRecord>();

/// A frame record as bytes.
pub type RecordBytes = [u8; RECORD_BYTES];

/// The description of a codec.
#[derive(Debug)]
pub struct CodecSpec {
    /// Number of the codec in stored files; never reused.
    pub number: u8,
    /// Name of the codec, which is also the name of its layer.
    pub name: &'static str,
    /// One line of help.
    pub help: &'static str,
    /// Compression levels of the codec.
    pub levels: Levels,
    /// Whether the codec compresses. Incompressible content is then stored raw.
    pub compresses: bool,
    /// Encodes content into the body of a data frame.
    pub encode: fn(&[u8], i32) -> Result<Vec<u8>, CodecError>,
    /// Appends the body of a data frame with uncompressed content to a buffer, in a form that
    /// ordinary tools decode.
    pub store: fn(&[u8], &mut Vec<u8>),
    /// Decodes a body into a buffer. Returns the number of bytes filled, which may be less than the
    /// buffer's length, or `None` for malformed input.
    pub decode_into: fn(&[u8], &mut [u8]) -> Option<usize>,
    /// The container.
    pub container: Container,
}

/// The levels of a codec.
#[derive(Debug)]
pub struct Levels {
    /// All levels, from the fastest to the smallest output.
    pub range: RangeInclusive<u32>,
    /// The default level, as written in an option.
    pub usual: &'static str,
}

impl Levels {
    /// The value for a codec without compression levels.
    pub const NONE: Self = Self { range: 0..=0, usual: "0" };

    /// Whether the codec has no levels.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.range.end() == self.range.start()
    }
}

/// Makes the seek table at the end of a packed file from the encoded and decoded lengths of all
/// parts before it.
pub type Closing = fn(&[(u32, u32)]) -> Vec<u8>;

/// The wrapping of frames that makes ordinary tools accept them.
#[derive(Clone, Copy, Debug)]
pub struct Container {
    /// Bytes before the body of each frame: the wrapped record.
    pub header_bytes: usize,
    /// Makes the header of a frame whose body contains content, or metadata of the given length.
    pub wrap: fn(&RecordBytes, Body) -> Vec<u8>,
    /// Returns the record in a header of [`Self::header_bytes`] bytes.
    pub unwrap: fn(&[u8]) -> Option<RecordBytes>,
    /// Wraps metadata into a body.
    pub pack: fn(&[u8]) -> Vec<u8>,
    /// Returns the metadata in a body.
    pub unpack: fn(&[u8]) -> Option<Vec<u8>>,
    /// Makes the head of a stored file, without records.
    pub empty_head: fn() -> [u8; HEAD_BYTES as usize],
    /// Whether the records in the head are printable.
    pub is_text: bool,
    /// Makes the seek table at the end of a packed file, for containers that have one.
    pub closing: Option<Closing>,
}

/// The type of data in the body of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// Content, which the ordinary tools decode.
    Content,
    /// Metadata of this many bytes, which the tools skip.
    Metadata(usize),
}

/// Content could not be encoded: the codec ran out of memory or has a bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("codec {codec} failed to encode {length} bytes")]
pub struct CodecError {
    /// The codec's name.
    pub codec: &'static str,
    /// Length of the content in bytes.
    pub length: usize,
}

impl CodecSpec {
    /// Returns the codec with this number.
    #[must_use]
    pub fn by_number(number: u8) -> Option<&'static Self> {
        CODECS.iter().copied().find(|codec| codec.number == number)
    }
}

impl CodecSpec {
    /// Returns the body of a data frame with uncompressed content.
    pub fn stored(&self, content: &[u8]) -> Vec<u8> {
        let mut body = Vec::new();
        (self.store)(content, &mut body);
        body
    }

    /// Decodes a body into exactly `length` bytes.
    pub fn decode(&self, body: &[u8], length: usize) -> Option<Vec<u8>> {
        let mut content = vec![0; length];
        self.decode_exactly(body, &mut content).then_some(content)
    }

    /// Decodes a body into a buffer; returns whether the body filled it exactly.
    pub fn decode_exactly(&self, body: &[u8], content: &mut [u8]) -> bool {
        (self.decode_into)(body, content) == Some(content.len())
    }
}

/// Returns the record that follows the first `prefix` bytes of a header.
fn record_behind(header: &[u8], prefix: usize) -> Option<RecordBytes> {
    header.get(prefix..)?.first_chunk().copied()
}

/// Copies bytes to the beginning of a buffer; returns their number if they fit.
fn fill(content: &mut [u8], bytes: &[u8]) -> Option<usize> {
    content.get_mut(..bytes.len())?.copy_from_slice(bytes);
    Some(bytes.len())
}

#[cfg(test)]
mod tests;
