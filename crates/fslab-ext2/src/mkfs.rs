//! Makes a file system. Equal options and device sizes give identical images.
//!
//! The device is discarded first; then only nonzero blocks are written, so an image is sparse.

use fslab_vfs::{BlockDevice, FileKind, Permissions, Timestamp};
use zerocopy::FromZeros;

use crate::bits;
use crate::dir::{self, EntryKind, HashVersion};
use crate::error::{Error, Result};
use crate::format::{
    ERRORS_CONTINUE, FLAG_SIGNED_HASH, FLAG_UNSIGNED_HASH, INODE_BYTES, INODE_EXTRA_BYTES, MAGIC,
    MAP_ENTRIES, REVISION_DYNAMIC, RawSuperblock, STATE_CLEAN, compat, incompat, ro_compat,
};
use crate::geometry::Geometry;
use crate::group::Group;
use crate::inode::Inode;
use crate::superblock::Superblock;
use crate::types::{BlockNo, BlockSize, GroupNo, InodeNo};

/// Minimum number of blocks for files in the last group, as in mke2fs; a smaller group is left out.
const LAST_GROUP_MIN: u32 = 50;
/// Maximum number of inodes in a group, because its counters have 16 bits.
const GROUP_COUNT_MAX: u32 = 65_528;
/// Number of inodes in use in a new file system: the reserved inodes and `lost+found`.
const FIRST_INODES: u32 = 11;
const LOST_AND_FOUND: InodeNo = InodeNo(11);

/// The parameters of a new file system.
#[derive(Clone, Debug)]
pub struct MkfsOptions {
    /// Block size; more than 4 KiB only with `simulation`.
    pub block_size: BlockSize,
    /// Allows block sizes that most kernels cannot mount.
    pub simulation: bool,
    /// Inode size in bytes: 128, or a power of two up to the block size.
    pub inode_size: u32,
    /// Blocks per group; `None` for the number of bits in a bitmap block.
    pub blocks_per_group: Option<u32>,
    /// Bytes of the device per inode.
    pub bytes_per_inode: u32,
    /// Percentage of blocks reserved for the superuser, at most 50.
    pub reserved_percent: u8,
    /// Volume name of at most 16 bytes.
    pub label: Vec<u8>,
    /// The UUID, which must not be all zeros.
    pub uuid: [u8; 16],
    /// The hash function of directory indexes; `None` if directories must not have an index.
    pub index: Option<HashVersion>,
    /// Whether names are hashed as signed characters, the convention of most machines.
    pub signed_hash: bool,
    /// Seed of the name hashes.
    pub hash_seed: [u32; 4],
    /// Allows indexes of three levels (the `large_dir` feature).
    pub large_directories: bool,
    /// The time of creation.
    pub now: Timestamp,
    /// Owner of the root directory.
    pub root_owner: (u32, u32),
}

impl Default for MkfsOptions {
    /// The defaults of mke2fs, except for the UUID, which is a fixed placeholder.
    fn default() -> Self {
        Self {
            block_size: BlockSize::KERNEL_MAX,
            simulation: false,
            inode_size: 256,
            blocks_per_group: None,
            bytes_per_inode: 16_384,
            reserved_percent: 5,
            label: Vec::new(),
            uuid: *b"fslab-ext2-image",
            index: Some(HashVersion::HalfMd4),
            signed_hash: true,
            hash_seed: [0x6673_6c61, 0x6200_0001, 0x6578_7432, 0x7365_6564],
            large_directories: false,
            now: Timestamp::default(),
            root_owner: (0, 0),
        }
    }
}

/// Makes a file system that fills the device.
///
/// # Errors
/// [`Error::BadParameters`] if the parameters are inconsistent or do not fit the device; errors of
/// the device.
pub fn mkfs(device: &dyn BlockDevice, options: &MkfsOptions) -> Result<()> {
    options.check()?;
    let geometry = options.plan(device.size())?;
    // All checks come before the first change of the device.
    device.discard(0, device.size())?;
    let maker = Maker { device, options, groups: groups(&geometry), geometry };
    maker.write()
}

impl MkfsOptions {
    /// Checks whether [`mkfs`] would accept these options on a device of this size.
    ///
    /// # Errors
    /// [`Error::BadParameters`] if it would not.
    pub fn check_for(&self, device_bytes: u64) -> Result<()> {
        self.check()?;
        self.plan(device_bytes).map(drop)
    }

    fn check(&self) -> Result<()> {
        let refuse =
            |holds: bool, what| if holds { Ok(()) } else { Err(Error::BadParameters(what)) };
        refuse(
            self.simulation || self.block_size <= BlockSize::KERNEL_MAX,
            "block sizes above 4 KiB are only for simulations; request a simulation to use them",
        )?;
        let fits = (INODE_BYTES as u32..=self.block_size.bytes_u32()).contains(&self.inode_size);
        refuse(
            fits && self.inode_size.is_power_of_two(),
            "the inode size must be a power of two from 128 to the block size",
        )?;
        refuse(self.reserved_percent <= 50, "at most 50 percent of the blocks can be reserved")?;
        refuse(self.label.len() <= 16, "a label must have at most 16 bytes")?;
        refuse(!self.label.contains(&0), "a label must not contain a NUL byte")?;
        refuse(self.uuid != [0; 16], "the UUID must not be zero")?;
        refuse(
            self.bytes_per_inode >= 1024,
            "the number of bytes for each inode must be at least 1024",
        )?;
        refuse(
            self.index.is_some() || !self.large_directories,
            "large directories need directory indexes",
        )
    }

    fn plan(&self, device_bytes: u64) -> Result<Geometry> {
        let block_size = self.block_size;
        let most = block_size.bits().min(GROUP_COUNT_MAX);
        let blocks_per_group = self.blocks_per_group.unwrap_or(most);
        if !(256..=most).contains(&blocks_per_group) || !blocks_per_group.is_multiple_of(8) {
            return Err(Error::BadParameters(
                "the number of blocks in a group must be a multiple of 8, at least 256, and at \
                 most 65528 or 8 times the block size in bytes, whichever is smaller",
            ));
        }
        let blocks = u32::try_from(device_bytes / block_size.bytes_u64())
            .map_err(|_over: std::num::TryFromIntError| Error::BadParameters("too many blocks"))?;
        let first_data_block = u32::from(block_size == BlockSize::MIN);
        let mut geometry = Geometry {
            block_size,
            blocks,
            first_data_block,
            blocks_per_group,
            inodes_per_group: 0,
            inode_size: self.inode_size,
            first_inode: InodeNo::FIRST_FREE,
            groups: blocks.saturating_sub(first_data_block).div_ceil(blocks_per_group),
            sparse_super: true,
            sparse_super2: false,
            reserved_descriptor_blocks: 0,
        };
        self.set_inodes(&mut geometry)?;
        cut_last_group(&mut geometry);
        if geometry.groups.checked_mul(geometry.inodes_per_group).is_none() {
            return Err(Error::BadParameters(
                "too many inodes; set more bytes for each inode (-i)",
            ));
        }
        let first = geometry.overhead(GroupNo(0)) + lost_and_found_blocks(block_size) + 1;
        if geometry.groups == 0 || geometry.blocks_in(GroupNo(0)) <= first {
            return Err(Error::BadParameters("the device is too small"));
        }
        Ok(geometry)
    }

    /// Sets the number of inodes in each group, so that they fill whole blocks and whole bytes of
    /// the bitmap.
    fn set_inodes(&self, geometry: &mut Geometry) -> Result<()> {
        if geometry.groups == 0 {
            return Err(Error::BadParameters("the device is too small"));
        }
        let bytes = u64::from(geometry.blocks) * geometry.block_size.bytes_u64();
        let wanted = bytes / u64::from(self.bytes_per_inode);
        let unit = geometry.inodes_per_block().max(8);
        let most = geometry.block_size.bits().min(GROUP_COUNT_MAX) / unit * unit;
        let per_group = wanted.div_ceil(u64::from(geometry.groups)).min(u64::from(most)) as u32;
        geometry.inodes_per_group = per_group.max(FIRST_INODES + 1).next_multiple_of(unit);
        let overhead = geometry.overhead(GroupNo(0));
        if overhead >= geometry.blocks_per_group {
            return Err(Error::BadParameters("a group has no room for its inodes"));
        }
        Ok(())
    }
}

/// Drops a last group that is too short for its own metadata and some files.
pub(crate) fn cut_last_group(geometry: &mut Geometry) {
    let last = GroupNo(geometry.groups - 1);
    if geometry.groups > 1 && geometry.blocks_in(last) < geometry.overhead(last) + LAST_GROUP_MIN {
        geometry.blocks = geometry.first_block(last).0;
        geometry.groups -= 1;
    }
}

/// Returns the number of blocks in `lost+found`: 16 KiB, but at least two and at most twelve
/// blocks, as in mke2fs.
fn lost_and_found_blocks(block_size: BlockSize) -> u32 {
    (16_384 / block_size.bytes_u32()).clamp(2, 12)
}

/// Builds a group without files. Its bitmaps and inode table follow its superblock and descriptors.
pub(crate) fn new_group(geometry: &Geometry, no: GroupNo) -> Group {
    let start = geometry.first_block(no).0 + geometry.head_blocks(no);
    Group {
        block_bitmap: BlockNo(start),
        inode_bitmap: BlockNo(start + 1),
        inode_table: BlockNo(start + 2),
        free_blocks: geometry.blocks_in(no) - geometry.overhead(no),
        free_inodes: geometry.inodes_per_group,
        directories: 0,
    }
}

fn groups(geometry: &Geometry) -> Vec<Group> {
    let mut groups: Vec<Group> = geometry.all_groups().map(|no| new_group(geometry, no)).collect();
    if let Some(first) = groups.first_mut() {
        first.free_blocks -= 1 + lost_and_found_blocks(geometry.block_size);
        first.free_inodes -= FIRST_INODES;
        first.directories = 2;
    }
    groups
}

struct Maker<'a> {
    device: &'a dyn BlockDevice,
    options: &'a MkfsOptions,
    geometry: Geometry,
    groups: Vec<Group>,
}

impl Maker<'_> {
    fn write(&self) -> Result<()> {
        self.write_bitmaps()?;
        self.write_directories()?;
        let mut superblock = self.superblock();
        superblock.write_copies(self.device, &self.geometry, &self.groups)?;
        // The primary superblock is written last, so that an interrupted run leaves no file system.
        superblock.write_first(self.device, &self.groups)
    }

    fn write_bytes(&self, block: BlockNo, bytes: &[u8]) -> Result<()> {
        Ok(self.device.write_at(self.geometry.offset_of(block), bytes)?)
    }

    /// Returns the root directory's block: the first after group 0's inodes.
    fn first_data(&self) -> BlockNo {
        let first = GroupNo(0);
        BlockNo(self.geometry.first_block(first).0 + self.geometry.overhead(first))
    }

    fn write_bitmaps(&self) -> Result<()> {
        let geometry = &self.geometry;
        for (no, group) in geometry.all_groups().zip(&self.groups) {
            let length = geometry.blocks_in(no);
            let blocks = bits::bitmap(geometry.block_size, length - group.free_blocks, length);
            self.write_bytes(group.block_bitmap, &blocks)?;
            let length = geometry.inodes_per_group;
            let inodes = bits::bitmap(geometry.block_size, length - group.free_inodes, length);
            self.write_bytes(group.inode_bitmap, &inodes)?;
        }
        Ok(())
    }

    fn write_directories(&self) -> Result<()> {
        let root = self.first_data();
        let lost = BlockNo(root.0 + 1);
        let lost_blocks = lost_and_found_blocks(self.geometry.block_size);
        let mut block = vec![0; self.geometry.block_size.bytes()];
        let rules = self.superblock().directory_rules();
        dir::create(&mut block, &rules, InodeNo::ROOT, InodeNo::ROOT);
        let record = (dir::entry::RECORD_MIN, b"lost+found".as_slice());
        dir::entry::insert(&mut block, record.0, record.1, LOST_AND_FOUND, EntryKind::DIRECTORY)
            .map_err(|flaw| Error::BadParameters(flaw.message()))?;
        self.write_bytes(root, &block)?;
        dir::create(&mut block, &rules, LOST_AND_FOUND, InodeNo::ROOT);
        self.write_bytes(lost, &block)?;
        dir::entry::clear(&mut block, 0);
        for index in 1..lost_blocks {
            self.write_bytes(BlockNo(lost.0 + index), &block)?;
        }
        self.write_inode(&self.directory(InodeNo::ROOT, 0o755, 3, root, 1))?;
        self.write_inode(&self.directory(LOST_AND_FOUND, 0o700, 2, lost, lost_blocks))
    }

    fn directory(&self, no: InodeNo, mode: u32, links: u32, first: BlockNo, blocks: u32) -> Inode {
        let mut map = [0; MAP_ENTRIES];
        (0..blocks).for_each(|index| map[index as usize] = first.0 + index);
        let permissions = Permissions::new(mode);
        let owner = self.options.root_owner;
        Inode {
            size: u64::from(blocks) * self.geometry.block_size.bytes_u64(),
            sectors: blocks * self.geometry.block_size.sectors(),
            map,
            ..Inode::new(no, FileKind::Directory, permissions, owner, links, self.options.now)
        }
    }

    fn write_inode(&self, inode: &Inode) -> Result<()> {
        let mut bytes = vec![0; self.geometry.inode_size as usize];
        Inode::clear(&mut bytes);
        inode.store(&mut bytes);
        let start = self.geometry.offset_of(self.groups[0].inode_table);
        let at = start + u64::from(inode.no.0 - 1) * u64::from(self.geometry.inode_size);
        Ok(self.device.write_at(at, &bytes)?)
    }

    fn superblock(&self) -> Superblock {
        let mut raw = RawSuperblock::new_zeroed();
        self.set_sizes(&mut raw);
        self.set_features(&mut raw);
        let now = self.options.now.seconds.clamp(0, i64::from(u32::MAX)) as u32;
        raw.s_wtime = now.into();
        raw.s_lastcheck = now.into();
        raw.s_mkfs_time = now.into();
        raw.s_max_mnt_count = u16::MAX.into();
        raw.s_magic = MAGIC.into();
        raw.s_state = STATE_CLEAN.into();
        raw.s_errors = ERRORS_CONTINUE.into();
        raw.s_rev_level = REVISION_DYNAMIC.into();
        raw.s_uuid = self.options.uuid;
        raw.s_volume_name[..self.options.label.len()].copy_from_slice(&self.options.label);
        let mut superblock = Superblock::new(raw, self.geometry);
        superblock.set_free(&self.groups);
        superblock
    }

    fn set_sizes(&self, raw: &mut RawSuperblock) {
        let geometry = &self.geometry;
        let reserved = u64::from(geometry.blocks) * u64::from(self.options.reserved_percent) / 100;
        raw.s_inodes_count = geometry.inodes().into();
        raw.s_blocks_count = geometry.blocks.into();
        raw.s_r_blocks_count = (reserved as u32).into();
        raw.s_first_data_block = geometry.first_data_block.into();
        raw.s_log_block_size = geometry.block_size.log().into();
        raw.s_log_cluster_size = geometry.block_size.log().into();
        raw.s_blocks_per_group = geometry.blocks_per_group.into();
        raw.s_clusters_per_group = geometry.blocks_per_group.into();
        raw.s_inodes_per_group = geometry.inodes_per_group.into();
        raw.s_first_ino = geometry.first_inode.0.into();
        raw.s_inode_size = (geometry.inode_size as u16).into();
        if geometry.inode_size > INODE_BYTES as u32 {
            raw.s_min_extra_isize = (INODE_EXTRA_BYTES as u16).into();
            raw.s_want_extra_isize = (INODE_EXTRA_BYTES as u16).into();
        }
    }

    fn set_features(&self, raw: &mut RawSuperblock) {
        /// `s_default_mount_opts`: enables user xattrs and POSIX ACLs.
        const XATTRS_AND_LISTS: u32 = 0xc;
        let options = self.options;
        let index = if options.index.is_some() { compat::DIR_INDEX } else { 0 };
        raw.s_feature_compat = (compat::EXT_ATTR | index).into();
        let large = if options.large_directories { incompat::LARGE_DIR } else { 0 };
        raw.s_feature_incompat = (incompat::FILETYPE | large).into();
        raw.s_feature_ro_compat = (ro_compat::SPARSE_SUPER | ro_compat::LARGE_FILE).into();
        raw.s_def_hash_version = options.index.unwrap_or(HashVersion::HalfMd4).code();
        raw.s_hash_seed = options.hash_seed.map(Into::into);
        raw.s_flags =
            if options.signed_hash { FLAG_SIGNED_HASH } else { FLAG_UNSIGNED_HASH }.into();
        raw.s_default_mount_opts = XATTRS_AND_LISTS.into();
    }
}
