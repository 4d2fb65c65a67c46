//! What an ext2 file system looks like on disk: fixed structures, little-endian, named as in the
//! kernel. Nothing here is checked: see `superblock`, `group` and `inode` for the valid types.
//!
//! A file system is a row of block groups of equal size (the last may be shorter):
//!
//! ```text
//! 1024 bytes | [superblock | descriptors] | block bitmap | inode bitmap | inode table | data ...
//!              groups 0, 1, 3^n, 5^n, 7^n
//! ```

use zerocopy::byteorder::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Where the superblock starts on the device, in bytes, whatever the block size.
pub const SUPERBLOCK_OFFSET: u64 = 1024;
/// The size of a superblock, in bytes.
pub const SUPERBLOCK_BYTES: usize = 1024;
/// `s_magic`.
pub const MAGIC: u16 = 0xef53;
/// `s_rev_level` of a file system with features and inodes of any size.
pub const REVISION_DYNAMIC: u32 = 1;
/// `s_state`: unmounted in order.
pub const STATE_CLEAN: u16 = 1;
/// `s_state`: contradictions were seen.
pub const STATE_ERRORS: u16 = 2;
/// `s_errors`: go on after a contradiction.
pub const ERRORS_CONTINUE: u16 = 1;
/// `s_flags`: names are hashed as signed characters.
pub const FLAG_SIGNED_HASH: u32 = 1;
/// `s_flags`: names are hashed as unsigned characters.
pub const FLAG_UNSIGNED_HASH: u32 = 2;

/// `s_feature_compat`: an implementation that does not know these may still write.
pub mod compat {
    /// Kernels may take several blocks for a directory at once; nothing stored depends on it.
    pub const DIR_PREALLOC: u32 = 0x1;
    /// There is a journal. Without `incompat::RECOVER` it holds nothing that a reader needs.
    pub const HAS_JOURNAL: u32 = 0x4;
    /// Extended attributes are used.
    pub const EXT_ATTR: u32 = 0x8;
    /// Blocks are kept for more descriptors, by an inode of their own.
    pub const RESIZE_INODE: u32 = 0x10;
    /// Directories may have an index.
    pub const DIR_INDEX: u32 = 0x20;
    /// At most two groups other than the first have a superblock.
    pub const SPARSE_SUPER2: u32 = 0x200;
}

/// `s_feature_incompat`: an implementation that does not know these must not mount.
pub mod incompat {
    /// Directory entries tell the kind of their inode.
    pub const FILETYPE: u32 = 0x2;
    /// The journal holds changes that must be replayed first.
    pub const RECOVER: u32 = 0x4;
    /// Directories may have three levels of index and more than 2 GiB.
    pub const LARGE_DIR: u32 = 0x4000;
}

/// `s_feature_ro_compat`: an implementation that does not know these must not write.
pub mod ro_compat {
    /// Only some groups keep backups of superblock and descriptors.
    pub const SPARSE_SUPER: u32 = 0x1;
    /// There may be files of 2 GiB and more.
    pub const LARGE_FILE: u32 = 0x2;
    /// Once meant for directories as trees; never used, and allowed by all.
    pub const BTREE_DIR: u32 = 0x4;
}

/// The superblock.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs, reason = "the kernel's names; docs/formats/ext2.md tells what they mean")]
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
#[allow(missing_docs, reason = "the kernel's names; docs/formats/ext2.md tells what they mean")]
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

/// The size of a group descriptor, in bytes.
pub const GROUP_BYTES: usize = 32;
const _: () = assert!(size_of::<RawGroup>() == GROUP_BYTES);

/// The part of an inode that all have.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs, reason = "the kernel's names; docs/formats/ext2.md tells what they mean")]
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

/// The size of the part of an inode that all have, in bytes; the smallest inode.
pub const INODE_BYTES: usize = 128;
const _: () = assert!(size_of::<RawInode>() == INODE_BYTES);

/// What an inode of 256 bytes or more has behind that.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs, reason = "the kernel's names; docs/formats/ext2.md tells what they mean")]
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

/// `i_extra_isize` of the inodes this crate makes: all of [`RawInodeExtra`].
pub const INODE_EXTRA_BYTES: usize = 32;
const _: () = assert!(size_of::<RawInodeExtra>() == INODE_EXTRA_BYTES);

/// `i_flags`: writes are synchronous (`chattr +S`).
pub const INODE_SYNC: u32 = 0x8;
/// `i_flags`: dump(8) leaves the file out (`chattr +d`).
pub const INODE_NO_DUMP: u32 = 0x40;
/// `i_flags`: reading changes no access time (`chattr +A`).
pub const INODE_NO_ACCESS_TIME: u32 = 0x80;
/// `i_flags`: changes of a directory are synchronous (`chattr +D`).
pub const INODE_DIRECTORY_SYNC: u32 = 0x1_0000;
/// `i_flags`: nothing may be changed.
pub const INODE_IMMUTABLE: u32 = 0x10;
/// `i_flags`: bytes may only be added at the end.
pub const INODE_APPEND: u32 = 0x20;
/// `i_flags`: a directory's block 0 is the root of an index.
pub const INODE_INDEX: u32 = 0x1000;
/// `i_flags`: directories made here are to be spread over the device (`chattr +T`).
pub const INODE_TOP_DIRECTORY: u32 = 0x2_0000;
/// `i_flags`: what changes how an inode is to be read: extents, inline data, encryption, folded
/// case. Flags of other features mean nothing without these, as e2fsck sees it too.
pub const INODE_FOREIGN: u32 = 0x5008_0800;

/// Pointers of an inode that lead to data.
pub const DIRECT_BLOCKS: usize = 12;
/// All pointers of an inode: direct, then single, double and triple indirect.
pub const MAP_ENTRIES: usize = 15;

/// The start of a region of extended attributes, in a block of its own.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs, reason = "the kernel's names; docs/formats/ext2.md tells what they mean")]
pub struct RawXattrHeader {
    pub h_magic: U32,
    pub h_refcount: U32,
    pub h_blocks: U32,
    pub h_hash: U32,
    pub h_checksum: U32,
    pub h_reserved: [U32; 3],
}

/// `h_magic`, and the four bytes before the attributes within an inode.
pub const XATTR_MAGIC: u32 = 0xea02_0000;
/// The size of the header of a block of attributes, in bytes.
pub const XATTR_HEADER_BYTES: usize = 32;
const _: () = assert!(size_of::<RawXattrHeader>() == XATTR_HEADER_BYTES);

/// An extended attribute; its name follows, and the whole is rounded up to four bytes.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs, reason = "the kernel's names; docs/formats/ext2.md tells what they mean")]
pub struct RawXattrEntry {
    pub e_name_len: u8,
    pub e_name_index: u8,
    pub e_value_offs: U16,
    pub e_value_inum: U32,
    pub e_value_size: U32,
    pub e_hash: U32,
}

/// The size of an attribute's entry without its name, in bytes.
pub const XATTR_ENTRY_BYTES: usize = 16;
const _: () = assert!(size_of::<RawXattrEntry>() == XATTR_ENTRY_BYTES);
