//! The records of tiering, version 1, byte for byte. `docs/formats/tier.md` describes them.
//!
//! All numbers are little-endian. Lengths in a record are checked against limits before they are
//! used.

use zerocopy::little_endian::{I64, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The xattr that contains a file's residency. The first name is for root's tiers, the second for
/// those of ordinary users. The other pairs of names below have the same order.
pub const RESIDENCY_NAMES: [&str; 2] = ["trusted.fslab.tier", "user.fslab.tier"];
/// The xattr on the root of a tree that identifies its tier.
pub const TREE_NAMES: [&str; 2] = ["trusted.fslab.tier.tree", "user.fslab.tier.tree"];
/// The xattr on the root of a tree that counts openings and scans of the tree. The catalogue has
/// the same counter.
pub const USES_NAMES: [&str; 2] = ["trusted.fslab.tier.uses", "user.fslab.tier.uses"];
/// The xattr on the root of a tree that distinguishes it from other trees of the same tier.
pub const WRITER_NAMES: [&str; 2] = ["trusted.fslab.tier.writer", "user.fslab.tier.writer"];
/// The xattr on the root of a tree that distinguishes it from its copies, such as clones and
/// snapshots.
pub const OPENINGS_NAMES: [&str; 2] = ["trusted.fslab.tier.openings", "user.fslab.tier.openings"];
/// The xattr on the root of a tree that keeps its mode while the root is closed.
pub const MODE_NAMES: [&str; 2] = ["trusted.fslab.tier.mode", "user.fslab.tier.mode"];
/// The version of all records.
pub const VERSION: u8 = 1;

/// The version of an object with sources. Versions of fslab that do not know sources refuse it.
pub const VERSION_WITH_SOURCES: u8 = 2;

/// Bytes of a block, the unit of recall, checks and residency.
pub const BLOCK_BYTES: u64 = 1 << 20;
/// The base-2 logarithm of [`BLOCK_BYTES`].
pub const BLOCK_LOG2: u8 = 20;
/// Maximum size of a file in bytes. Offsets are signed 64-bit numbers in the kernel.
pub const SIZE_MAX: u64 = i64::MAX as u64;
/// Maximum length of a residency xattr in bytes. The xattrs of an inode of ext4 share one block of
/// 4096 bytes.
pub const RESIDENCY_BYTES_MAX: usize = 2048;
/// Maximum number of archives that may contain a copy of a file.
pub const COPIES_MAX: usize = 8;
/// Maximum length in bytes of the description of a file: path, target and xattrs.
pub const ATTRIBUTES_BYTES_MAX: usize = 1 << 20;
/// Number of entries in a page of the table of blocks. Each page has one hash.
pub const PAGE_ENTRIES: u64 = 1024;
/// Maximum number of pages of a table, for an object of 2 PiB. Their hashes need 64 MiB of memory
/// while the object is read.
pub const PAGES_MAX: u64 = 1 << 21;
/// Maximum number of sources of an object.
pub const SOURCES_MAX: usize = 64;
/// Maximum length of a stored block in bytes. Encoding may make a block slightly longer.
pub const STORED_BLOCK_BYTES_MAX: u32 = (1 << 20) + (1 << 16);
/// Maximum length in bytes of an entry of an archived tree: attributes and the other fields.
pub const TREE_ENTRY_BYTES_MAX: usize = ATTRIBUTES_BYTES_MAX + 1024;

/// The first bytes of the residency of a file.
pub const RESIDENCY_MAGIC: [u8; 4] = *b"FSt1";
/// The first bytes of the compact form of a residency.
pub const COMPACT_MAGIC: [u8; 2] = *b"Fc";
/// Maximum length of the compact form in bytes. An inode of 256 bytes on ext4 has room for an xattr
/// of this length, if the inode has no other xattrs.
pub const COMPACT_BYTES_MAX: usize = 60;
/// The first bytes of the mark of a tree.
pub const TREE_MAGIC: [u8; 4] = *b"FSt0";
/// The first bytes of an object.
pub const HEAD_MAGIC: [u8; 8] = *b"fslabTO1";
/// The first bytes of the tail of an object.
pub const TAIL_MAGIC: [u8; 8] = *b"fslabTOz";

/// The first bytes of an encrypted container.
pub const SEAL_MAGIC: [u8; 8] = *b"fslabTS1";
/// Bytes of a chunk, the unit of encryption in a container.
pub const CHUNK_BYTES: u64 = 1 << 16;
/// The base-2 logarithm of [`CHUNK_BYTES`].
pub const CHUNK_LOG2: u8 = 16;
/// Bytes that encryption adds to a chunk.
pub const TAG_BYTES: u64 = 16;

/// The file was changed since its last version was archived. Its resident blocks are authoritative.
pub const FLAG_CHANGED: u8 = 1;
/// A recall or a release was in progress when this residency was written. So the modification time
/// of the lower file may differ from the one that programs see.
pub const FLAG_MOVING: u8 = 2;

/// In the compact form of a residency: the lower file contains poison instead of holes.
pub const FLAG_POISONED: u8 = 1;

/// The version of a residency whose offline blocks contain poison in the lower file. Versions of
/// fslab without support for poison would treat it as data, so they refuse this version.
pub const VERSION_POISONED: u8 = 2;

/// An object contains the bytes of a file.
pub const KIND_FILE: u8 = 1;
/// An object contains the names and attributes of a whole tree.
pub const KIND_TREE: u8 = 2;

/// An object lists the other objects of its container.
pub const KIND_BUNDLE: u8 = 3;
/// Maximum number of objects in a bundle. Their list fits into one block.
pub const MEMBERS_MAX: usize = 4096;
/// Maximum length of a bundle in bytes. Longer bundles are not written, and a list of a longer
/// bundle is invalid.
pub const BUNDLE_BYTES_MAX: u64 = 64 << 20;

/// A block is stored raw.
pub const FORM_RAW: u8 = 0;
/// A block is stored as a zstd frame.
pub const FORM_ZSTD: u8 = 1;
/// A block contains only zeros, which are not stored.
pub const FORM_ZEROS: u8 = 2;

/// The residency of a file. The identities of archives with copies and the offline runs follow it.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct ResidencyRecord {
    pub magic: [u8; 4],
    pub version: u8,
    pub flags: u8,
    /// Number of archives with a copy.
    pub copies: u8,
    pub zero: u8,
    /// The tier that the file belongs to.
    pub tier: [u8; 16],
    /// The identity of the file, which does not depend on its inode.
    pub file: [u8; 16],
    /// The inode to which this residency was written.
    pub inode: [u8; 16],
    /// The last archived version.
    pub object: [u8; 16],
    /// The container of the object in an archive.
    pub container: [u8; 16],
    pub offset: U64,
    pub length: U64,
    /// Size of that version in bytes.
    pub size: U64,
    /// A number that increases with each version.
    pub sequence: U64,
    /// Time of modification of that version.
    pub modified_seconds: I64,
    pub modified_nanoseconds: U32,
    /// Number of offline runs.
    pub runs: U32,
    /// Hash of the object's head, attributes and table of blocks.
    pub root: [u8; 32],
    /// The time when bytes were last recalled, or when a program last began to change the file, in
    /// seconds since 1970. It is 0 if this never happened, or happened before the time was
    /// recorded.
    pub touched_seconds: U32,
    /// CRC32C of the whole value with this field zero.
    pub crc: U32,
}

/// The compact form of a residency. The offset and the length of the object follow it, as packed
/// numbers.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct CompactRecord {
    pub magic: [u8; 2],
    pub version: u8,
    /// Only [`FLAG_POISONED`] may be set.
    pub flags: u8,
    /// The first bytes of BLAKE3 of the tier and the inode to which this residency was written.
    pub owner: [u8; 8],
    /// The last archived version.
    pub object: [u8; 16],
    /// The container of the object in an archive.
    pub container: [u8; 16],
    /// As in [`ResidencyRecord`].
    pub touched_seconds: U32,
    /// CRC32C of the whole value with this field zero.
    pub crc: U32,
}

/// The mark of a tree. The path of the tier's home follows it.
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

/// The head of an object. Attributes, blocks and the table of blocks follow it.
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
    /// Increases with each object of a tier.
    pub sequence: U64,
    /// Size of the contents in bytes.
    pub size: U64,
    pub created_seconds: I64,
    pub created_nanoseconds: U32,
    /// CRC32C of all preceding bytes.
    pub crc: U32,
}

/// The location of a block in an object, and the hash of its bytes.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct EntryRecord {
    /// Offset from the beginning of the object that contains the block.
    pub offset: U64,
    pub stored_length: U32,
    /// Length of the block's contents in bytes; only the last block is shorter than
    /// [`BLOCK_BYTES`].
    pub length: U32,
    pub form: u8,
    /// The object that contains the block: 0 for this object, else the number of one of its
    /// sources, from 1.
    pub source: u8,
    pub zero: [u8; 6],
    /// BLAKE3 of the block's bytes.
    pub hash: [u8; 32],
}

/// An object in the list of a bundle.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct MemberRecord {
    pub object: [u8; 16],
    /// Offset from the beginning of the container.
    pub offset: U64,
    /// Length of the whole object.
    pub length: U64,
}

/// An object that contains blocks of another object. A source is alone in its container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C)]
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub struct SourceRecord {
    pub object: [u8; 16],
    pub container: [u8; 16],
    /// Length of the whole object.
    pub length: U64,
    /// The root hash of the object.
    pub root: [u8; 32],
}

/// The tail of an object. The hashes of the pages of the table, and the sources, lie between the
/// table and the tail.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct TailRecord {
    pub magic: [u8; 8],
    /// Length of the whole object. Readers that begin at the tail need it to find the head.
    pub length: U64,
    /// Offset of the table from the beginning of the object.
    pub table_offset: U64,
    pub blocks: U64,
    /// BLAKE3 of head, attributes, the hashes of the pages of the table, and the sources.
    pub root: [u8; 32],
    /// Number of sources.
    pub sources: U32,
    /// CRC32C of all preceding bytes.
    pub crc: U32,
}

/// The head of an encrypted container. Chunks follow it.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct SealRecord {
    pub magic: [u8; 8],
    pub version: u8,
    pub chunk_log2: u8,
    pub zero: [u8; 10],
    /// A random number for each write of a container, so that no two writes use the same key.
    pub salt: [u8; 32],
    /// CRC32C of all preceding bytes.
    pub crc: U32,
}

const _: () = assert!(size_of::<SealRecord>() == 56);
const _: () = assert!(size_of::<ResidencyRecord>() == 176);
const _: () = assert!(size_of::<CompactRecord>() == 52);
const _: () = assert!(size_of::<TreeRecord>() == 28);
const _: () = assert!(size_of::<HeadRecord>() == 96);
const _: () = assert!(size_of::<EntryRecord>() == 56);
const _: () = assert!(size_of::<MemberRecord>() == 32);
const _: () = assert!(size_of::<SourceRecord>() == 72);
const _: () = assert!(size_of::<TailRecord>() == 72);
const _: () = assert!((MEMBERS_MAX * size_of::<MemberRecord>()) as u64 <= BLOCK_BYTES);

/// Returns the CRC32C of all bytes of a record except the last four, which contain the checksum.
#[must_use]
pub fn crc_of(record: &[u8]) -> u32 {
    crc32c::crc32c(&record[..record.len().saturating_sub(4)])
}

/// Returns the number of blocks of a file of `size` bytes.
#[must_use]
pub fn blocks_of(size: u64) -> u64 {
    size.div_ceil(BLOCK_BYTES)
}

/// Returns the blocks that overlap a range of bytes.
#[must_use]
pub fn blocks_met(offset: u64, length: u64) -> std::ops::Range<u64> {
    if length == 0 {
        return 0..0;
    }
    offset / BLOCK_BYTES..blocks_of(offset.saturating_add(length))
}
