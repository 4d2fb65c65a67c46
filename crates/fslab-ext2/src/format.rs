//! The on-disk format of ext2: fixed little-endian structures with the kernel's field names. These
//! structures are unchecked; see `superblock`, `group` and `inode` for validated types.
//!
//! A file system is a sequence of block groups of equal size; the last group may be shorter:
//!
//! ```text
//! 1024 bytes | [superblock | descriptors] | block bitmap | inode bitmap | inode table | data ...
//!              groups 0, 1, 3^n, 5^n, 7^n
//! ```

use zerocopy::byteorder::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Offset of the superblock on the device in bytes, for all block sizes.
pub const SUPERBLOCK_OFFSET: u64 = 1024;
/// Size of a superblock in bytes.
pub const SUPERBLOCK_BYTES: usize = 1024;
/// `s_magic`.
pub const MAGIC: u16 = 0xef53;
/// `s_rev_level` of a file system with feature flags and a variable inode size.
pub const REVISION_DYNAMIC: u32 = 1;
/// `s_state`: cleanly unmounted.
pub const STATE_CLEAN: u16 = 1;
/// `s_state`: errors were detected.
pub const STATE_ERRORS: u16 = 2;
/// `s_errors`: continue after an error.
pub const ERRORS_CONTINUE: u16 = 1;
/// `s_flags`: names are hashed as signed characters.
pub const FLAG_SIGNED_HASH: u32 = 1;
/// `s_flags`: names are hashed as unsigned characters.
pub const FLAG_UNSIGNED_HASH: u32 = 2;

/// `s_feature_compat`: an implementation that does not know these features may still write.
pub mod compat {
    /// Kernels may preallocate several blocks for a directory; the stored format does not depend on
    /// it.
    pub const DIR_PREALLOC: u32 = 0x1;
    /// The file system has a journal. Without `incompat::RECOVER`, the journal contains nothing
    /// that a reader needs.
    pub const HAS_JOURNAL: u32 = 0x4;
    /// Extended attributes are used.
    pub const EXT_ATTR: u32 = 0x8;
    /// Blocks are reserved for more group descriptors; a special inode owns them.
    pub const RESIZE_INODE: u32 = 0x10;
    /// Directories may have an index.
    pub const DIR_INDEX: u32 = 0x20;
    /// At most two groups other than the first have a superblock.
    pub const SPARSE_SUPER2: u32 = 0x200;
}

/// `s_feature_incompat`: an implementation that does not know these features must not mount.
pub mod incompat {
    /// Directory entries contain the kind of their inode.
    pub const FILETYPE: u32 = 0x2;
    /// The journal contains changes that must be replayed first.
    pub const RECOVER: u32 = 0x4;
    /// Directories may have three index levels and may exceed 2 GiB.
    pub const LARGE_DIR: u32 = 0x4000;
}

/// `s_feature_ro_compat`: an implementation that does not know these features must not write.
pub mod ro_compat {
    /// Only some groups have backups of superblock and descriptors.
    pub const SPARSE_SUPER: u32 = 0x1;
    /// There may be files of 2 GiB and more.
    pub const LARGE_FILE: u32 = 0x2;
    /// Intended for directories as trees, but never used; all implementations accept it.
    pub const BTREE_DIR: u32 = 0x4;
}

/// The superblock.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs, reason = "the kernel's names; docs/formats/ext2.md explains them")]
pub struct RawSuperblock {
    pub s_inodes_count: U32,
    pub s_blocks_count: U32,
    pub s_r_blocks_count: U32,
    pub s_free_blocks_count: U32,
    pub s_free_inodes_count: U32,
    pub s_first_data_block: U32,
    pub s_log_block_size: U32,
    pub s_log_cluster_size: U32,
    pub s_blocks_per_group: U32,
    pub s_clusters_per_group: U32,
    pub s_inodes_per_group: U32,
    pub s_mtime: U32,
    pub s_wtime: U32,
    pub s_mnt_count: U16,
    pub s_max_mnt_count: U16,
    pub s_magic: U16,
    pub s_state: U16,
    pub s_errors: U16,
    pub s_minor_rev_level: U16,
    pub s_lastcheck: U32,
    pub s_checkinterval: U32,
    pub s_creator_os: U32,
    pub s_rev_level: U32,
    pub s_def_resuid: U16,
    pub s_def_resgid: U16,
    pub s_first_ino: U32,
    pub s_inode_size: U16,
    pub s_block_group_nr: U16,
    pub s_feature_compat: U32,
    pub s_feature_incompat: U32,
    pub s_feature_ro_compat: U32,
    pub s_uuid: [u8; 16],
    pub s_volume_name: [u8; 16],
    pub s_last_mounted: [u8; 64],
    pub s_algorithm_usage_bitmap: U32,
    pub s_prealloc_blocks: u8,
    pub s_prealloc_dir_blocks: u8,
    pub s_reserved_gdt_blocks: U16,
    pub s_journal_uuid: [u8; 16],
    pub s_journal_inum: U32,
    pub s_journal_dev: U32,
    pub s_last_orphan: U32,
    pub s_hash_seed: [U32; 4],
    pub s_def_hash_version: u8,
    pub s_jnl_backup_type: u8,
    pub s_desc_size: U16,
    pub s_default_mount_opts: U32,
    pub s_first_meta_bg: U32,
    pub s_mkfs_time: U32,
    pub s_jnl_blocks: [U32; 17],
    pub s_blocks_count_hi: U32,
    pub s_r_blocks_count_hi: U32,
    pub s_free_blocks_count_hi: U32,
    pub s_min_extra_isize: U16,
    pub s_want_extra_isize: U16,
    pub s_flags: U32,
    pub s_reserved: [u8; 664],
    pub s_checksum: U32,
}

const _: () = assert!(size_of::<RawSuperblock>() == SUPERBLOCK_BYTES);
const _: () = assert!(std::mem::offset_of!(RawSuperblock, s_magic) == 56);
const _: () = assert!(std::mem::offset_of!(RawSuperblock, s_uuid) == 104);
const _: () = assert!(std::mem::offset_of!(RawSuperblock, s_hash_seed) == 236);
const _: () = assert!(std::mem::offset_of!(RawSuperblock, s_min_extra_isize) == 348);
const _: () = assert!(std::mem::offset_of!(RawSuperblock, s_flags) == 352);

/// A group descriptor.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs, reason = "the kernel's names; docs/formats/ext2.md explains them")]
pub struct RawGroup {
    pub bg_block_bitmap: U32,
    pub bg_inode_bitmap: U32,
    pub bg_inode_table: U32,
    pub bg_free_blocks_count: U16,
    pub bg_free_inodes_count: U16,
    pub bg_used_dirs_count: U16,
    pub bg_flags: U16,
    pub bg_reserved: [U32; 3],
}

/// Size of a group descriptor in bytes.
pub const GROUP_BYTES: usize = 32;
const _: () = assert!(size_of::<RawGroup>() == GROUP_BYTES);

/// The part of an inode that exists for all inode sizes.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs, reason = "the kernel's names; docs/formats/ext2.md explains them")]
pub struct RawInode {
    pub i_mode: U16,
    pub i_uid: U16,
    pub i_size_lo: U32,
    pub i_atime: U32,
    pub i_ctime: U32,
    pub i_mtime: U32,
    pub i_dtime: U32,
    pub i_gid: U16,
    pub i_links_count: U16,
    pub i_blocks_lo: U32,
    pub i_flags: U32,
    pub i_version: U32,
    pub i_block: [U32; 15],
    pub i_generation: U32,
    pub i_file_acl_lo: U32,
    pub i_size_high: U32,
    pub i_obso_faddr: U32,
    pub i_blocks_high: U16,
    pub i_file_acl_high: U16,
    pub i_uid_high: U16,
    pub i_gid_high: U16,
    pub i_checksum_lo: U16,
    pub i_reserved: U16,
}

/// Size of [`RawInode`] in bytes, which is the smallest inode size.
pub const INODE_BYTES: usize = 128;
const _: () = assert!(size_of::<RawInode>() == INODE_BYTES);

/// The additional fields of an inode of 256 bytes or more.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs, reason = "the kernel's names; docs/formats/ext2.md explains them")]
pub struct RawInodeExtra {
    pub i_extra_isize: U16,
    pub i_checksum_hi: U16,
    pub i_ctime_extra: U32,
    pub i_mtime_extra: U32,
    pub i_atime_extra: U32,
    pub i_crtime: U32,
    pub i_crtime_extra: U32,
    pub i_version_hi: U32,
    pub i_projid: U32,
}

/// `i_extra_isize` of inodes that this crate creates; covers all of [`RawInodeExtra`].
pub const INODE_EXTRA_BYTES: usize = 32;
const _: () = assert!(size_of::<RawInodeExtra>() == INODE_EXTRA_BYTES);

/// `i_flags`: writes are synchronous (`chattr +S`).
pub const INODE_SYNC: u32 = 0x8;
/// `i_flags`: dump(8) skips the file (`chattr +d`).
pub const INODE_NO_DUMP: u32 = 0x40;
/// `i_flags`: reading does not update the access time (`chattr +A`).
pub const INODE_NO_ACCESS_TIME: u32 = 0x80;
/// `i_flags`: changes of a directory are synchronous (`chattr +D`).
pub const INODE_DIRECTORY_SYNC: u32 = 0x1_0000;
/// `i_flags`: the file is immutable.
pub const INODE_IMMUTABLE: u32 = 0x10;
/// `i_flags`: the file can only be appended to.
pub const INODE_APPEND: u32 = 0x20;
/// `i_flags`: a directory's block 0 is the root of an index.
pub const INODE_INDEX: u32 = 0x1000;
/// `i_flags`: subdirectories are spread over the device (`chattr +T`).
pub const INODE_TOP_DIRECTORY: u32 = 0x2_0000;
/// `i_flags`: flags that change how an inode must be read: extents, inline data, encryption, case
/// folding. Flags of other features are ignored if none of these flags is set. e2fsck does the
/// same.
pub const INODE_FOREIGN: u32 = 0x5008_0800;

/// Number of direct pointers in an inode.
pub const DIRECT_BLOCKS: usize = 12;
/// Number of all pointers in an inode: direct, then single, double and triple indirect.
pub const MAP_ENTRIES: usize = 15;

/// The header of a separate block of extended attributes.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs, reason = "the kernel's names; docs/formats/ext2.md explains them")]
pub struct RawXattrHeader {
    pub h_magic: U32,
    pub h_refcount: U32,
    pub h_blocks: U32,
    pub h_hash: U32,
    pub h_checksum: U32,
    pub h_reserved: [U32; 3],
}

/// `h_magic`. The same four bytes precede the attributes inside an inode.
pub const XATTR_MAGIC: u32 = 0xea02_0000;
/// Size of the header of an attribute block in bytes.
pub const XATTR_HEADER_BYTES: usize = 32;
const _: () = assert!(size_of::<RawXattrHeader>() == XATTR_HEADER_BYTES);

/// The entry of an extended attribute. Its name follows, and the total length is rounded up to four
/// bytes.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs, reason = "the kernel's names; docs/formats/ext2.md explains them")]
pub struct RawXattrEntry {
    pub e_name_len: u8,
    pub e_name_index: u8,
    pub e_value_offs: U16,
    pub e_value_inum: U32,
    pub e_value_size: U32,
    pub e_hash: U32,
}

/// Size of an attribute's entry without its name, in bytes.
pub const XATTR_ENTRY_BYTES: usize = 16;
const _: () = assert!(size_of::<RawXattrEntry>() == XATTR_ENTRY_BYTES);
