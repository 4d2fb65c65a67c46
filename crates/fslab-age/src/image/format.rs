//! What an aged image begins with; described in `docs/formats/aged.md`.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The magic number of a zstd frame that decoders skip.
pub const SKIPPABLE: u32 = 0x184d_2a5f;

/// What the frame begins with.
pub const MAGIC: [u8; 8] = *b"FSLABAGE";

/// The version that is written. Older ones are read: in version 1 the hash of the workload is that
/// of its file's bytes.
pub const VERSION: u32 = 2;

/// No header has more facts than this, in bytes.
pub const FACTS_BYTES_MAX: usize = 1 << 16;

/// Bytes of the image in a zstd frame; the last one may have less.
pub const PIECE_BYTES: usize = 4 << 20;

/// No window of a frame is larger: the logarithm of its bytes, base 2.
pub const WINDOW_LOG_MAX: u32 = 22;

/// What stands before the facts.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RawHeader {
    /// [`SKIPPABLE`].
    pub skippable: U32,
    /// Bytes of the frame behind this number.
    pub frame_bytes: U32,
    /// [`MAGIC`].
    pub magic: [u8; 8],
    /// Of the format.
    pub version: U32,
    /// CRC-32C of header and facts, with zeros here.
    pub checksum: U32,
    /// Bytes of the image.
    pub image_bytes: U64,
    /// BLAKE3 hash of the image.
    pub image_hash: [u8; 32],
    /// The identity of the workload: the BLAKE3 hash of its operations.
    pub workload_hash: [u8; 32],
    /// Bytes of the facts: lines `key: value`, in UTF-8, sorted by key.
    pub facts_bytes: U32,
    /// Zeros.
    pub reserved: U32,
}

const _: () = assert!(size_of::<RawHeader>() == 104);

impl RawHeader {
    /// What [`RawHeader::checksum`] must be, with these facts.
    pub fn checksum_with(&self, facts: &[u8]) -> u32 {
        let blank = Self { checksum: U32::new(0), ..*self };
        crc32c::crc32c_append(crc32c::crc32c(blank.as_bytes()), facts)
    }
}
