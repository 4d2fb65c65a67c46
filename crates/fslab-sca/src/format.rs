//! The stored file, version 1: its records, byte for byte. `docs/formats/sca.md` describes it.
//!
//! Everything is little-endian. Records are read through [`zerocopy`] and checked once, here or in
//! the reader; what a record says about lengths is bounded before it is used.

use zerocopy::little_endian::{I64, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of the head: identity and root slots, in two sectors.
pub const HEAD_BYTES: u64 = 1024;
/// Where the identity lies in the head.
pub const IDENTITY_OFFSET: usize = 64;
/// Where the two root slots lie in the head: each in a sector of its own.
pub const SLOT_OFFSETS: [usize; 2] = [128, 640];

/// Smallest and largest chunk, as powers of two: 4 KiB to 1 MiB.
pub const CHUNK_LOG2: std::ops::RangeInclusive<u8> = 12..=20;
/// Chunks that one leaf page of the index covers, and pages that an inner one does.
pub const FAN_OUT: u64 = 128;
/// Levels of an index over every chunk a file can have.
pub const LEVELS_MAX: u8 = 8;
/// Tail segments a file may have.
pub const SEGMENTS_MAX: usize = 768;
/// Bytes of the payload of any frame but data: what fits into a gzip header field.
pub const METADATA_BYTES_MAX: usize = 32 << 10;
/// The largest logical file: offsets are signed numbers in the kernel.
pub const SIZE_MAX: u64 = i64::MAX as u64;
/// The largest frame: a chunk of 1 MiB, uuencoded, has 1.42 MB.
pub const FRAME_BYTES_MAX: u64 = 2 << 20;

/// Begins the identity.
pub const IDENTITY_MAGIC: [u8; 8] = *b"fslabSCA";
/// Begins a frame header.
pub const FRAME_MAGIC: [u8; 4] = *b"FSf1";
/// Begins a root slot.
pub const SLOT_MAGIC: [u8; 4] = *b"FSr1";
/// Version of everything here.
pub const VERSION: u8 = 1;

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A chunk from its first stored byte to its last; replaces what the chunk held.
    Data = 1,
    /// Raw bytes added behind what the chunk holds: a piece of a fast tail.
    Segment = 2,
    /// A new logical size; bytes behind it were removed.
    Size = 3,
    /// Chunks that became holes. Payload: their number, u64.
    Hole = 4,
    /// A page of the index.
    Index = 5,
    /// Where the index, the tail and the previous checkpoint are.
    Checkpoint = 6,
    /// Bytes without meaning, up to the next frame.
    Gap = 7,
    /// A copy of bytes that made no frame, kept aside by recovery. Position: where they lay.
    Kept = 8,
    /// Reserved: never written so far, and of no effect.
    Intent = 9,
}

impl Kind {
    /// The kind with this number.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        use Kind::{Checkpoint, Data, Gap, Hole, Index, Intent, Kept, Segment, Size};
        let all = [Data, Segment, Size, Hole, Index, Checkpoint, Gap, Kept, Intent];
        all.into_iter().find(|kind| *kind as u8 == number)
    }

    /// Whether its body is encoded content, to be decoded by the ordinary tools.
    #[must_use]
    pub fn has_content(self) -> bool {
        matches!(self, Self::Data | Self::Segment)
    }
}

/// Flag of a frame: the content is stored as it is, in the codec's own form for that.
pub const FLAG_RAW: u8 = 1;

/// Begins every frame, wrapped as the container demands.
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
    /// The file this frame belongs to.
    pub file_id: U64,
    /// Where the frame begins in the stored file.
    pub offset: U64,
    /// Rises with each frame of a file.
    pub sequence: U64,
    /// Data, segment, hole, index: the first chunk. Kept: where the bytes lay. Gap: how many more
    /// sequences than its own it stands for.
    pub position: U64,
    /// The logical size of the file once this frame counts.
    pub file_size: U64,
    /// Bytes of the whole frame: the next one begins behind them.
    pub stored_length: U32,
    /// Data, segment: where in the chunk the content begins.
    pub from: U32,
    /// Bytes of the content, or of the payload, decoded.
    pub length: U32,
    /// CRC32C of the body as stored.
    pub body_crc: U32,
    pub zero: U32,
    /// CRC32C of everything before.
    pub crc: U32,
}

/// Says what file this is; once, in the head.
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
    /// CRC32C of everything before.
    pub crc: U32,
}

/// Points to a checkpoint; there are two, written in turns.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct SlotRecord {
    pub magic: [u8; 4],
    pub version: u8,
    pub codec: u8,
    pub chunk_log2: u8,
    /// Bit 0: written by packing. What lies behind the checkpoint and is no frame that follows it
    /// is the file as it was before.
    pub flags: u8,
    pub file_id: U64,
    /// Rises with each checkpoint; slot `ordinal % 2` holds it.
    pub ordinal: U64,
    pub checkpoint: ReferenceRecord,
    pub sequence: U64,
    pub file_size: U64,
    pub zero: [u8; 36],
    /// CRC32C of everything before.
    pub crc: U32,
}

/// Where a frame lies, and the checksum of its header: it can't be taken for another.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct ReferenceRecord {
    pub offset: U64,
    pub stored_length: U32,
    pub header_crc: U32,
}

/// What a leaf page of the index says of a chunk.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct EntryRecord {
    /// Offset 0 stands for content that is known to be lost.
    pub frame: ReferenceRecord,
    /// Where in the chunk the content begins; before it are zeros.
    pub from: U32,
    /// Where it ends; behind it are zeros. Never more than the frame has.
    pub to: U32,
}

/// Begins the payload of an index page; behind it the entries of the bits set, in order.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct PageRecord {
    /// 0 for a leaf, whose entries are [`EntryRecord`]; else they are [`ReferenceRecord`].
    pub level: u8,
    pub zero: [u8; 7],
    /// Which of the [`FAN_OUT`] entries are there.
    pub present: [u8; 16],
}

/// Begins the payload of a checkpoint; behind it the segments of the tail.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct CheckpointRecord {
    pub ordinal: U64,
    /// The checkpoint before this one; offset 0 for none.
    pub previous: ReferenceRecord,
    /// The root page of the index; offset 0 where no chunk is stored.
    pub root: ReferenceRecord,
    /// Levels of the index; 0 where no chunk is stored.
    pub levels: u8,
    /// Bit 0: data frames are in order, without gaps: the form is packed.
    pub flags: u8,
    pub segments: U16,
    pub zero: U32,
    /// Where the content of the last data frame in order ends, in the logical file.
    pub content_end: U64,
    /// Bytes of frames that hold content which is still of use.
    pub live_bytes: U64,
}

/// A tail segment, in a checkpoint.
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

/// The size xattr: what `stat` needs, without opening the file.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct MarkRecord {
    pub version: u8,
    /// 1: a stored file. 2: a foreign one, whatever its bytes look like.
    pub kind: u8,
    /// 0: being written, believe nothing. 1: right unless the machine stopped. 2: right.
    /// Of a foreign file: 1 or 2 where a conversion marked it; with 2, the earlier xattr follows.
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

/// The xattr of the lower root: what is known of the whole tree.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct TreeRecord {
    pub version: u8,
    /// Bit 0: the tree was empty at first: what looks like nothing is no foreign file.
    /// Bit 1: see [`FLAG_PLAIN`].
    pub flags: u8,
    pub zero: [u8; 2],
    /// CRC32C of the record with this field zero.
    pub crc: U32,
    /// The last session: one mount, from start to end.
    pub session: U64,
    /// The first session of those since then that all ended with everything durable.
    pub durable_from: U64,
    /// The last session that ended with everything durable.
    pub durable: U64,
}

/// Flag of a tree: see [`TreeRecord::flags`].
pub const FLAG_PURE: u8 = 1;
/// Flag of a tree: its files are plain, except those that the unfinished run of [`RUN_NAME`]
/// encoded.
pub const FLAG_PLAIN: u8 = 2;

/// The xattr of the root while a tree is being encoded: which stored files this run made.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct RunRecord {
    pub version: u8,
    /// 1 once every file that looks like a stored file is marked as a foreign one.
    pub surveyed: u8,
    pub zero: [u8; 2],
    /// CRC32C of the record with this field zero.
    pub crc: U32,
    /// The key of the file ids that the run gives.
    pub key: U64,
}

/// The xattr of an encoded file whose original looked like a stored file or had xattrs of ours. The
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
    /// CRC32C of the record with this field zero, and of what follows it.
    pub crc: U32,
    /// Size of the original.
    pub size: U64,
    /// CRC32C of the first 1152 bytes of the original.
    pub beginning_crc: U32,
    pub zero: U32,
}

/// The xattr of a directory in which files are being converted: its times before.
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
/// Name of the xattr that keeps an original's own xattrs of these names.
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

/// CRC32C of everything but the last four bytes of a record.
#[must_use]
pub fn crc_of(record: &(impl IntoBytes + Immutable)) -> u32 {
    let bytes = record.as_bytes();
    crc32c::crc32c(&bytes[..bytes.len().saturating_sub(4)])
}
