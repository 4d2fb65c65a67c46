//! The header of an aged image, which `docs/formats/aged.md` describes.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The magic number of a skippable zstd frame.
pub const SKIPPABLE: u32 = 0x184d_2a5f;

/// The magic number at the beginning of the skippable frame's content.
pub const MAGIC: [u8; 8] = *b"FSLABAGE";

/// The format version that is written. Older versions can be read. In version 1,
/// [`RawHeader::workload_hash`] is the hash of the workload file's bytes.
pub const VERSION: u32 = 2;

/// Maximum size of the facts in bytes.
pub const FACTS_BYTES_MAX: usize = 1 << 16;

/// Number of bytes of the image in one zstd frame; the last frame may have fewer.
pub const PIECE_BYTES: usize = 4 << 20;

/// Maximum window of a frame, as the base-2 logarithm of its size in bytes.
pub const WINDOW_LOG_MAX: u32 = 22;

/// The header, which precedes the facts.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RawHeader {
    /// [`SKIPPABLE`].
    pub skippable: U32,
    /// Number of bytes of the frame after this field.
    pub frame_bytes: U32,
    /// [`MAGIC`].
    pub magic: [u8; 8],
    /// The format version.
    pub version: U32,
    /// CRC-32C of the header and the facts, computed with this field set to 0.
    pub checksum: U32,
    /// Size of the image in bytes.
    pub image_bytes: U64,
    /// BLAKE3 hash of the image.
    pub image_hash: [u8; 32],
    /// The identity of the workload: the BLAKE3 hash of its operations.
    pub workload_hash: [u8; 32],
    /// Size of the facts in bytes. Facts are lines `key: value`, in UTF-8, sorted by key.
    pub facts_bytes: U32,
    /// Must be zero.
    pub reserved: U32,
}

const _: () = assert!(size_of::<RawHeader>() == 104);

impl RawHeader {
    /// Returns the expected [`RawHeader::checksum`] with these facts.
    pub fn checksum_with(&self, facts: &[u8]) -> u32 {
        let blank = Self { checksum: U32::new(0), ..*self };
        crc32c::crc32c_append(crc32c::crc32c(blank.as_bytes()), facts)
    }
}
