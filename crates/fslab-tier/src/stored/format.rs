//! The records of tiering, version 1, byte for byte. `docs/formats/tier.md` describes them.
//!
//! Everything is little-endian. What a record says about lengths is bounded before it is used.

use zerocopy::little_endian::{I64, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The xattr that holds a file's residency: in a tier of root's, and in an ordinary user's. So
/// all that follow.
pub const RESIDENCY_NAMES: [&str; 2] = ["trusted.fslab.tier", "user.fslab.tier"];
/// The xattr on the root of a tree that says which tier it belongs to.
pub const TREE_NAMES: [&str; 2] = ["trusted.fslab.tier.tree", "user.fslab.tier.tree"];
/// The xattr on the root of a tree that counts how often an engine began to use it, as its
/// catalogue does.
pub const USES_NAMES: [&str; 2] = ["trusted.fslab.tier.uses", "user.fslab.tier.uses"];
/// The xattr on the root of a tree that tells it from other trees of the same tier.
pub const WRITER_NAMES: [&str; 2] = ["trusted.fslab.tier.writer", "user.fslab.tier.writer"];
/// The xattr on the root of a tree that tells it from its copies, such as clones and snapshots.
pub const OPENINGS_NAMES: [&str; 2] = ["trusted.fslab.tier.openings", "user.fslab.tier.openings"];
/// The xattr on the root of a tree that keeps its mode while the root is closed.
pub const MODE_NAMES: [&str; 2] = ["trusted.fslab.tier.mode", "user.fslab.tier.mode"];
/// Version of everything here.
pub const VERSION: u8 = 1;

/// Bytes of a block: what is recalled, checked and kept resident as one.
pub const BLOCK_BYTES: u64 = 1 << 20;
/// The same as a power of two.
pub const BLOCK_LOG2: u8 = 20;
/// The largest file: offsets are signed numbers in the kernel.
pub const SIZE_MAX: u64 = i64::MAX as u64;
/// The longest residency xattr. The xattrs of an inode of ext4 share one block of 4096 bytes.
pub const RESIDENCY_BYTES_MAX: usize = 2048;
/// Archives that may hold a copy of a file.
pub const COPIES_MAX: usize = 8;
/// The longest description of a file: path, target and xattrs.
pub const ATTRIBUTES_BYTES_MAX: usize = 1 << 20;
/// Entries of the table of blocks that are hashed together.
pub const PAGE_ENTRIES: u64 = 1024;
/// The most pages of a table: their hashes, 64 MiB, are held while an object is read (2 PiB).
pub const PAGES_MAX: u64 = 1 << 21;
/// The longest stored form of a block: encoding may add a little.
pub const STORED_BLOCK_BYTES_MAX: u32 = (1 << 20) + (1 << 16);
/// The longest entry of a tree: attributes and what is around them.
pub const TREE_ENTRY_BYTES_MAX: usize = ATTRIBUTES_BYTES_MAX + 1024;

/// Begins the residency of a file.
pub const RESIDENCY_MAGIC: [u8; 4] = *b"FSt1";
/// Begins the mark of a tree.
pub const TREE_MAGIC: [u8; 4] = *b"FSt0";
/// Begins an object.
pub const HEAD_MAGIC: [u8; 8] = *b"fslabTO1";
/// Begins the tail of an object.
pub const TAIL_MAGIC: [u8; 8] = *b"fslabTOz";

/// Begins a container that is encrypted.
pub const SEAL_MAGIC: [u8; 8] = *b"fslabTS1";
/// Bytes of a container that are sealed together.
pub const CHUNK_BYTES: u64 = 1 << 16;
/// The same as a power of two.
pub const CHUNK_LOG2: u8 = 16;
/// What sealing adds to a chunk.
pub const TAG_BYTES: u64 = 16;

/// The file was changed since its last version was archived: resident blocks are the truth.
pub const FLAG_CHANGED: u8 = 1;
/// Blocks were on their way: the time of modification below is not the file's.
pub const FLAG_MOVING: u8 = 2;

/// The version of a residency whose offline blocks hold poison below. Programs that don't know of
/// that would take it for bytes that somebody wrote: they refuse this version.
pub const VERSION_POISONED: u8 = 2;

/// An object holds the bytes of a file.
pub const KIND_FILE: u8 = 1;
/// An object holds the names and attributes of a whole tree.
pub const KIND_TREE: u8 = 2;

/// An object lists the others of its container.
pub const KIND_BUNDLE: u8 = 3;
/// Objects of a bundle: their list fits into one block.
pub const MEMBERS_MAX: usize = 4096;
/// Bytes of a bundle: no more are written, and a list that tells of more is none.
pub const BUNDLE_BYTES_MAX: u64 = 64 << 20;

/// A block is stored as it is.
pub const FORM_RAW: u8 = 0;
/// A block is stored as a zstd frame.
pub const FORM_ZSTD: u8 = 1;
/// A block is all zeros, and nothing is stored.
pub const FORM_ZEROS: u8 = 2;

/// The residency of a file; the identities of archives with copies and the offline runs follow.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct ResidencyRecord {
    pub magic: [u8; 4],
    pub version: u8,
    pub flags: u8,
    /// Archives with a copy.
    pub copies: u8,
    pub zero: u8,
    /// The tier it belongs to.
    pub tier: [u8; 16],
    /// The file, whatever its inode.
    pub file: [u8; 16],
    /// The inode it was written to.
    pub inode: [u8; 16],
    /// The last archived version.
    pub object: [u8; 16],
    /// What holds the object in an archive.
    pub container: [u8; 16],
    pub offset: U64,
    pub length: U64,
    /// Of that version, in bytes.
    pub size: U64,
    /// Rises with each version.
    pub sequence: U64,
    /// Time of modification of that version.
    pub modified_seconds: I64,
    pub modified_nanoseconds: U32,
    /// Offline runs.
    pub runs: U32,
    /// Hash of the object's description and table of blocks.
    pub root: [u8; 32],
    /// When bytes last came back, or somebody began to change the file: seconds since 1970, 0 where
    /// that was never or before this was noted.
    pub touched_seconds: U32,
    /// CRC32C of the whole value with this field zero.
    pub crc: U32,
}

/// The mark of a tree; the path of the tier's home follows.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct TreeRecord {
    pub magic: [u8; 4],
    pub version: u8,
    pub zero: [u8; 3],
    pub tier: [u8; 16],
    /// CRC32C of the whole value with this field zero.
    pub crc: U32,
}

/// Begins an object; attributes follow, then blocks, then the table of blocks.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct HeadRecord {
    pub magic: [u8; 8],
    pub kind: u8,
    pub version: u8,
    pub block_log2: u8,
    pub zero: u8,
    pub attributes_length: U32,
    pub object: [u8; 16],
    pub file: [u8; 16],
    pub tier: [u8; 16],
    /// Rises with each object of a tier.
    pub sequence: U64,
    /// Of the contents, in bytes.
    pub size: U64,
    pub created_seconds: I64,
    pub created_nanoseconds: U32,
    /// CRC32C of everything before.
    pub crc: U32,
}

/// Where a block of an object is stored and what it must be.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct EntryRecord {
    /// From the beginning of the object.
    pub offset: U64,
    pub stored_length: U32,
    /// Bytes of the block; only the last one is shorter than a block.
    pub length: U32,
    pub form: u8,
    pub zero: [u8; 7],
    /// BLAKE3 of the block's bytes.
    pub hash: [u8; 32],
}

/// An object in the list of a bundle.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct MemberRecord {
    pub object: [u8; 16],
    /// From the beginning of the container.
    pub offset: U64,
    /// Of the whole object.
    pub length: U64,
}

/// Ends an object. The hashes of the pages of the table lie between the table and this.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct TailRecord {
    pub magic: [u8; 8],
    /// Of the whole object: whoever reads a container backwards finds the one before.
    pub length: U64,
    /// Where the table begins, from the beginning of the object.
    pub table_offset: U64,
    pub blocks: U64,
    /// BLAKE3 of head, attributes and the hashes of the pages of the table.
    pub root: [u8; 32],
    pub zero: U32,
    /// CRC32C of everything before.
    pub crc: U32,
}

/// Begins a container that is encrypted; chunks follow.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct SealRecord {
    pub magic: [u8; 8],
    pub version: u8,
    pub chunk_log2: u8,
    pub zero: [u8; 10],
    /// Drawn whenever a container is written: no two are sealed with the same key.
    pub salt: [u8; 32],
    /// CRC32C of everything before.
    pub crc: U32,
}

const _: () = assert!(size_of::<SealRecord>() == 56);
const _: () = assert!(size_of::<ResidencyRecord>() == 176);
const _: () = assert!(size_of::<TreeRecord>() == 28);
const _: () = assert!(size_of::<HeadRecord>() == 96);
const _: () = assert!(size_of::<EntryRecord>() == 56);
const _: () = assert!(size_of::<MemberRecord>() == 32);
const _: () = assert!(size_of::<TailRecord>() == 72);
const _: () = assert!((MEMBERS_MAX * size_of::<MemberRecord>()) as u64 <= BLOCK_BYTES);

/// CRC32C of all bytes of a record but its last four, which hold it.
#[must_use]
pub fn crc_of(record: &[u8]) -> u32 {
    crc32c::crc32c(&record[..record.len().saturating_sub(4)])
}

/// Blocks of a file of `size` bytes.
#[must_use]
pub fn blocks_of(size: u64) -> u64 {
    size.div_ceil(BLOCK_BYTES)
}

/// The blocks that a range of bytes meets.
#[must_use]
pub fn blocks_met(offset: u64, length: u64) -> std::ops::Range<u64> {
    if length == 0 {
        return 0..0;
    }
    offset / BLOCK_BYTES..blocks_of(offset.saturating_add(length))
}
