//! The stored file, version 1: its records, byte for byte. `docs/formats/sca.md` describes it.
//!
//! Everything is little-endian. Records are read through [`zerocopy`] and checked once, here or in
//! the reader. Lengths in a record are bounded before they are used.

use zerocopy::little_endian::{I64, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Size of the head in bytes. Its two sectors contain the identity and the root slots.
pub const HEAD_BYTES: u64 = 1024;
/// Offset of the identity in the head.
pub const IDENTITY_OFFSET: usize = 64;
/// Offsets of the two root slots in the head; each has its own sector.
pub const SLOT_OFFSETS: [usize; 2] = [128, 640];

/// Valid base-2 logarithms of the chunk size: chunks have 4 KiB to 1 MiB.
pub const CHUNK_LOG2: std::ops::RangeInclusive<u8> = 12..=20;
/// Number of chunks that a leaf page of the index covers, and of pages that an inner page covers.
pub const FAN_OUT: u64 = 128;
/// Maximum number of index levels, which cover every chunk of the largest file.
pub const LEVELS_MAX: u8 = 8;
/// Maximum number of tail segments in a file.
pub const SEGMENTS_MAX: usize = 768;
/// Maximum payload of a metadata frame in bytes; it must fit into a gzip header field.
pub const METADATA_BYTES_MAX: usize = 32 << 10;
/// Maximum size of a logical file: offsets are signed numbers in the kernel.
pub const SIZE_MAX: u64 = i64::MAX as u64;
/// Maximum length of a frame. A uuencoded chunk of 1 MiB has 1.42 MB.
pub const FRAME_BYTES_MAX: u64 = 2 << 20;

/// Number of slots of a staging area. Each slot is `STAGING_SLACK` bytes longer than a chunk.
pub const STAGING_SLOTS: u64 = 8;
pub const STAGING_SLACK: u64 = 8 << 10;
/// A staging area begins at a multiple of this offset.
pub const STAGING_ALIGNMENT: u64 = 1 << 20;

/// Magic number of the identity.
pub const IDENTITY_MAGIC: [u8; 8] = *b"fslabSCA";
/// Magic number of a frame header.
pub const FRAME_MAGIC: [u8; 4] = *b"FSf1";
/// Magic number of a root slot.
pub const SLOT_MAGIC: [u8; 4] = *b"FSr1";
/// Version of all records.
pub const VERSION: u8 = 1;

/// The kind of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The content of a chunk, from its first stored byte to its last. It replaces the earlier
    /// content.
    Data = 1,
    /// Raw bytes appended to the content of a chunk: a piece of a fast tail.
    Segment = 2,
    /// A new logical size; the content past it is removed.
    Size = 3,
    /// Chunks that become holes. The payload is their number, a u64.
    Hole = 4,
    /// A page of the index.
    Index = 5,
    /// References to the index, the tail and the previous checkpoint.
    Checkpoint = 6,
    /// Bytes without meaning, up to the next frame.
    Gap = 7,
    /// A copy of bytes that are not a frame, which recovery quarantined. `position` is their
    /// original offset.
    Kept = 8,
    /// Reserved. It is not written so far, and has no effect.
    Intent = 9,
}

impl Kind {
    /// Returns the kind with this number.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        use Kind::{Checkpoint, Data, Gap, Hole, Index, Intent, Kept, Segment, Size};
        let all = [Data, Segment, Size, Hole, Index, Checkpoint, Gap, Kept, Intent];
        all.into_iter().find(|kind| *kind as u8 == number)
    }

    /// Whether the body is encoded content, which the ordinary tools decode.
    #[must_use]
    pub fn has_content(self) -> bool {
        matches!(self, Self::Data | Self::Segment)
    }
}

/// Flag of a frame: its content is stored raw (uncompressed), in a form that ordinary tools decode.
pub const FLAG_RAW: u8 = 1;

/// The header of every frame, wrapped as the container requires.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct FrameRecord {
    pub magic: [u8; 4],
    pub kind: u8,
    pub codec: u8,
    pub chunk_log2: u8,
    pub flags: u8,
    /// The id of the file that this frame belongs to.
    pub file_id: U64,
    /// Offset of the frame in the stored file.
    pub offset: U64,
    /// A number that increases with each frame of a file.
    pub sequence: U64,
    /// Data, segment, hole, index: the first chunk. Kept: the original offset of the bytes. Gap:
    /// the number of sequence numbers that it stands for in addition to its own.
    pub position: U64,
    /// The logical size of the file after this frame.
    pub file_size: U64,
    /// Length of the whole frame in bytes. The next frame follows directly.
    pub stored_length: U32,
    /// Data, segment: start of the content within the chunk.
    pub from: U32,
    /// Decoded length of the content or of the payload, in bytes.
    pub length: U32,
    /// CRC32C of the body as stored.
    pub body_crc: U32,
    pub zero: U32,
    /// CRC32C of all fields before.
    pub crc: U32,
}

/// The identity of the file, stored once, in the head.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct IdentityRecord {
    pub magic: [u8; 8],
    pub version: u8,
    pub codec: u8,
    pub chunk_log2: u8,
    pub flags: u8,
    pub head_bytes: U32,
    pub file_id: U64,
    pub zero: [u8; 20],
    /// CRC32C of all fields before.
    pub crc: U32,
}

/// A root slot, which points to a checkpoint. The two slots are written in turn.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct SlotRecord {
    pub magic: [u8; 4],
    pub version: u8,
    pub codec: u8,
    pub chunk_log2: u8,
    /// Bit 0: packing wrote this slot. Bytes after the checkpoint that are not one of the next
    /// frames are then the old content, which packing replaced.
    pub flags: u8,
    pub file_id: U64,
    /// A number that increases with each checkpoint; the slot is `ordinal % 2`.
    pub ordinal: U64,
    pub checkpoint: ReferenceRecord,
    pub sequence: U64,
    pub file_size: U64,
    pub zero: [u8; 36],
    /// CRC32C of all fields before.
    pub crc: U32,
}

/// A reference to a frame: its offset and the checksum of its header, so that no other frame
/// matches.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct ReferenceRecord {
    pub offset: U64,
    pub stored_length: U32,
    pub header_crc: U32,
}

/// The entry of a chunk in a leaf page of the index.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct EntryRecord {
    /// Offset 0 means that the content is lost.
    pub frame: ReferenceRecord,
    /// Start of the content within the chunk; the bytes before it are zeros.
    pub from: U32,
    /// End of the content, at most that of the frame; the bytes after it are zeros.
    pub to: U32,
}

/// The beginning of an index page's payload. The entries of the set bits follow, in ascending
/// order.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct PageRecord {
    /// 0 for a leaf, whose entries are [`EntryRecord`]; other entries are [`ReferenceRecord`].
    pub level: u8,
    pub zero: [u8; 7],
    /// A bitmap that shows which of the [`FAN_OUT`] entries exist.
    pub present: [u8; 16],
}

/// The beginning of a checkpoint's payload. The segments of the tail follow.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct CheckpointRecord {
    pub ordinal: U64,
    /// The previous checkpoint; offset 0 if there is none.
    pub previous: ReferenceRecord,
    /// The root page of the index; offset 0 if no chunk is stored.
    pub root: ReferenceRecord,
    /// Levels of the index; 0 if no chunk is stored.
    pub levels: u8,
    /// Bit 0: the data frames are in logical order, without gaps, as in a packed file.
    pub flags: u8,
    pub segments: U16,
    pub zero: U32,
    /// End of the content of the last data frame in order, in the logical file.
    pub content_end: U64,
    /// Bytes of frames with live content.
    pub live_bytes: U64,
}

/// A tail segment, as listed in a checkpoint.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct SegmentRecord {
    pub chunk: U64,
    pub entry: EntryRecord,
}

/// Flag of a slot: see [`SlotRecord::flags`].
pub const FLAG_PACKED: u8 = 1;

/// Flag of a checkpoint: see [`CheckpointRecord::flags`].
pub const FLAG_IN_ORDER: u8 = 1;

/// The size xattr, from which `stat` gets the size without opening the file.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct MarkRecord {
    pub version: u8,
    /// 1: a stored file. 2: a foreign file, whatever its bytes look like.
    pub kind: u8,
    /// For a stored file: 0 while the file is being written; this xattr is then not trusted. 1: it
    /// is valid unless the machine has crashed since. 2: it is valid. For a foreign file: 1 or 2 if
    /// a conversion marked it. With 2, the value that the xattr had before follows.
    pub state: u8,
    pub zero: u8,
    /// CRC32C of the record with this field zero.
    pub crc: U32,
    pub file_size: U64,
    pub stored_length: U64,
    pub sequence: U64,
    /// The session that wrote it; see [`TreeRecord`].
    pub session: U64,
}

/// The xattr of the lower root, which describes the whole tree.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct TreeRecord {
    pub version: u8,
    /// Bit 0: the tree was empty at its first use, so it has no foreign files. A file without a
    /// valid head is then a stored file whose writes were lost in a crash. Bit 1: see
    /// [`FLAG_PLAIN`].
    pub flags: u8,
    pub zero: [u8; 2],
    /// CRC32C of the record with this field zero.
    pub crc: U32,
    /// The last session. A session is one mount, from start to end.
    pub session: U64,
    /// The first of an unbroken series of sessions that ended with all data durable.
    pub durable_from: U64,
    /// The last session of that series.
    pub durable: U64,
}

/// Flag of a tree: see [`TreeRecord::flags`].
pub const FLAG_PURE: u8 = 1;
/// Flag of a tree: its files are plain, except those that the unfinished run of [`RUN_NAME`]
/// encoded.
pub const FLAG_PLAIN: u8 = 2;

/// The xattr of the root while a tree is being encoded. It identifies the stored files of this run.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct RunRecord {
    pub version: u8,
    /// 1 once every file that looks like a stored file is marked as foreign.
    pub surveyed: u8,
    pub zero: [u8; 2],
    /// CRC32C of the record with this field zero.
    pub crc: U32,
    /// The key that seals the file ids of the run.
    pub key: U64,
}

/// The xattr of an encoded file whose original looked like a stored file or had fslab xattrs. The
/// original's size xattr follows, and then its xattr of this kind.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct KeptRecord {
    pub version: u8,
    /// Bit 0: the original had a size xattr. Bit 1: it had one of this kind.
    pub flags: u8,
    /// Length of the original's size xattr.
    pub mark_length: U16,
    /// CRC32C of the record with this field zero, and of the data that follows the record.
    pub crc: U32,
    /// Size of the original.
    pub size: U64,
    /// CRC32C of the first 1152 bytes of the original.
    pub beginning_crc: U32,
    pub zero: U32,
}

/// The xattr of a directory in which files are being converted. It keeps the directory's earlier
/// times.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct TimesRecord {
    pub version: u8,
    pub zero: [u8; 3],
    /// CRC32C of the record with this field zero.
    pub crc: U32,
    pub accessed_seconds: I64,
    pub modified_seconds: I64,
    pub accessed_nanoseconds: U32,
    pub modified_nanoseconds: U32,
}

/// Name of the size xattr.
pub const MARK_NAME: &str = "user.fslab.sca";
/// Name of the xattr of the lower root.
pub const TREE_NAME: &str = "user.fslab.sca.tree";
/// Name of the xattr of the root of a tree that is being encoded.
pub const RUN_NAME: &str = "user.fslab.sca.run";
/// Name of the xattr in which an encoded file keeps the [`MARK_NAME`] and [`KEPT_NAME`] xattrs of
/// its original.
pub const KEPT_NAME: &str = "user.fslab.sca.kept";
/// Name of the xattr of a directory in which files are being converted.
pub const TIMES_NAME: &str = "user.fslab.sca.times";

const _: () = {
    assert!(size_of::<FrameRecord>() == 72);
    assert!(size_of::<IdentityRecord>() == 48);
    assert!(size_of::<SlotRecord>() == 96);
    assert!(size_of::<ReferenceRecord>() == 16);
    assert!(size_of::<EntryRecord>() == 24);
    assert!(size_of::<PageRecord>() == 24);
    assert!(size_of::<CheckpointRecord>() == 64);
    assert!(size_of::<SegmentRecord>() == 32);
    assert!(size_of::<MarkRecord>() == 40);
    assert!(size_of::<TreeRecord>() == 32);
    assert!(size_of::<RunRecord>() == 16);
    assert!(size_of::<KeptRecord>() == 24);
    assert!(size_of::<TimesRecord>() == 32);
    assert!(SEGMENTS_MAX * size_of::<SegmentRecord>() + 64 <= METADATA_BYTES_MAX);
};

/// Returns the CRC32C of a record except its last four bytes.
#[must_use]
pub fn crc_of(record: &(impl IntoBytes + Immutable)) -> u32 {
    let bytes = record.as_bytes();
    crc32c::crc32c(&bytes[..bytes.len().saturating_sub(4)])
}
