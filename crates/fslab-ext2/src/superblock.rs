//! The superblock as a validated type, which is read and checked once and written with new counts.

use zerocopy::{FromBytes, IntoBytes};

use fslab_vfs::BlockDevice;

use crate::dir::{Form, HashVersion, Hasher, Rules};
use crate::error::{Error, Place, Result};
use crate::flaw::Flaw;
use crate::format::{
    FLAG_SIGNED_HASH, FLAG_UNSIGNED_HASH, GROUP_BYTES, INODE_BYTES, MAGIC, REVISION_DYNAMIC,
    RawSuperblock, STATE_CLEAN, STATE_ERRORS, SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET, compat,
    incompat, ro_compat,
};
use crate::geometry::Geometry;
use crate::group::{Group, descriptor_table};
use crate::types::{BlockSize, GroupNo, InodeNo};
use crate::unknown_features::ForeignFeatures;

/// Maximum number of groups; their descriptors need 64 MiB of memory.
const GROUPS_MAX: u32 = 1 << 21;
/// Minimum number of blocks in a group other than the last.
const BLOCKS_PER_GROUP_MIN: u32 = 256;

/// A checked superblock.
#[derive(Clone, Debug)]
pub struct Superblock {
    raw: RawSuperblock,
    geometry: Geometry,
}

impl Superblock {
    /// Reads and checks the primary superblock of a device.
    ///
    /// # Errors
    /// [`Error::NotExt2`] if there is none, [`Error::UnknownFeatures`] if it has unknown `incompat`
    /// features, [`Error::Damaged`], and errors of the device.
    pub fn read(device: &dyn BlockDevice) -> Result<Self> {
        let mut bytes = [0; SUPERBLOCK_BYTES];
        if device.size() < SUPERBLOCK_OFFSET + SUPERBLOCK_BYTES as u64 {
            return Err(Error::NotExt2("the device is too small for a superblock"));
        }
        device.read_at(SUPERBLOCK_OFFSET, &mut bytes)?;
        let superblock = Self::parse(&bytes)?;
        let geometry = &superblock.geometry;
        if u64::from(geometry.blocks) * geometry.block_size.bytes_u64() > device.size() {
            return Err(damaged(Flaw::DeviceTooSmall));
        }
        Ok(superblock)
    }

    /// Returns a short tag computed from the volume's UUID. The tag distinguishes inodes of this
    /// file system from inodes of another one, for example after a new mkfs.
    #[must_use]
    pub fn uuid_tag(&self) -> u32 {
        let words = self.raw.s_uuid.as_chunks().0.iter();
        words.fold(0, |tag, word| tag ^ u32::from_le_bytes(*word))
    }

    /// Checks a superblock.
    ///
    /// # Errors
    /// The same as [`read`](Self::read).
    pub fn parse(bytes: &[u8; SUPERBLOCK_BYTES]) -> Result<Self> {
        let raw = RawSuperblock::read_from_bytes(bytes)
            .map_err(|_short: zerocopy::SizeError<_, _>| damaged(Flaw::CutShort))?;
        if raw.s_magic.get() != MAGIC {
            return Err(Error::NotExt2("no superblock at byte 1024"));
        }
        if raw.s_rev_level.get() > REVISION_DYNAMIC {
            return Err(Error::NotExt2("its revision is newer than 1"));
        }
        let foreign = ForeignFeatures::of(&raw);
        refuse(foreign.forbidding_reads())?;
        let geometry = geometry(&raw).or_else(|error| {
            // An inconsistency may be valid with an unknown feature, so unknown features are
            // reported first.
            refuse(foreign)?;
            Err(error)
        })?;
        Ok(Self { raw, geometry })
    }

    pub(crate) fn new(raw: RawSuperblock, geometry: Geometry) -> Self {
        Self { raw, geometry }
    }

    /// Returns the fixed sizes.
    #[must_use]
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Returns all fields as stored.
    #[must_use]
    pub fn raw(&self) -> &RawSuperblock {
        &self.raw
    }

    pub(crate) fn raw_mut(&mut self) -> &mut RawSuperblock {
        &mut self.raw
    }

    /// Returns the bytes to store.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.raw.as_bytes()
    }

    /// Whether the file system is marked clean and no error was recorded.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.raw.s_state.get() & (STATE_CLEAN | STATE_ERRORS) == STATE_CLEAN
    }

    /// Returns an error if the file system has an unknown feature in any of the three sets. Such a
    /// file system must be neither changed nor checked. This includes unknown `compat` features,
    /// although a kernel may write despite them. An example is the journal: after writes that
    /// bypass it, its next replay would cause damage.
    ///
    /// # Errors
    /// [`Error::UnknownFeatures`].
    pub fn check_writable(&self) -> Result<()> {
        refuse(ForeignFeatures::of(&self.raw))
    }

    /// Checks that the file system is supported and clean, so that it may be resized or tuned.
    ///
    /// # Errors
    /// The same as [`check_writable`](Self::check_writable), and [`Error::BadParameters`] if it is
    /// not clean.
    pub(crate) fn check_in_order(&self) -> Result<()> {
        self.check_writable()?;
        if self.is_clean() && self.raw.s_last_orphan.get() == 0 {
            return Ok(());
        }
        Err(Error::BadParameters("it was not unmounted cleanly; repair it first"))
    }

    /// Whether the superblock refers to a journal. If it also has the journal feature,
    /// [`check_writable`](Self::check_writable) fails.
    pub(crate) fn has_stray_journal(&self) -> bool {
        let raw = &self.raw;
        raw.s_journal_inum.get() != 0
            || raw.s_journal_dev.get() != 0
            || raw.s_journal_uuid.iter().any(|byte| *byte != 0)
    }

    /// Removes all references to a journal.
    pub(crate) fn forget_journal(&mut self) {
        self.raw.s_journal_inum = 0.into();
        self.raw.s_journal_dev = 0.into();
        self.raw.s_journal_uuid.fill(0);
    }

    /// Whether a `compat` feature is set.
    #[must_use]
    pub fn has_compat(&self, feature: u32) -> bool {
        self.raw.s_feature_compat.get() & feature != 0
    }

    /// Whether an `incompat` feature is set.
    #[must_use]
    pub fn has_incompat(&self, feature: u32) -> bool {
        self.raw.s_feature_incompat.get() & feature != 0
    }

    /// Returns the number of blocks reserved for the superuser.
    #[must_use]
    pub fn reserved_blocks(&self) -> u32 {
        self.raw.s_r_blocks_count.get()
    }

    /// Returns the seed of name hashes.
    #[must_use]
    pub fn hash_seed(&self) -> [u32; 4] {
        self.raw.s_hash_seed.map(zerocopy::little_endian::U32::get)
    }

    /// Returns the hash function for newly indexed directories; half-MD4 if the stored number is
    /// unknown.
    #[must_use]
    pub fn hash_version(&self) -> HashVersion {
        HashVersion::from_code(self.raw.s_def_hash_version).unwrap_or(HashVersion::HalfMd4)
    }

    /// Whether names are hashed as signed characters. They are if no flag is set, because nearly
    /// all images come from machines with signed characters.
    #[must_use]
    pub fn hash_is_signed(&self) -> bool {
        let flags = self.raw.s_flags.get();
        flags & FLAG_SIGNED_HASH != 0 || flags & FLAG_UNSIGNED_HASH == 0
    }

    /// Returns the rules for directories that follow from the features.
    pub(crate) fn directory_rules(&self) -> Rules {
        let is_indexed = self.has_compat(compat::DIR_INDEX);
        let has_large = self.has_incompat(incompat::LARGE_DIR);
        Rules {
            hasher: Hasher::new(self.hash_version(), self.hash_is_signed(), self.hash_seed()),
            form: if is_indexed { Form::Indexed } else { Form::Linear },
            levels: if has_large { Rules::LEVELS_LARGE } else { Rules::LEVELS },
            shrink: false,
            kinds: self.has_incompat(incompat::FILETYPE),
        }
    }

    /// Sets the sizes of a file system that grew or shrank. The percentage of reserved blocks does
    /// not change.
    pub(crate) fn set_sizes(&mut self, after: &Geometry) {
        let reserved = u64::from(self.reserved_blocks()) * u64::from(after.blocks)
            / u64::from(self.geometry.blocks);
        self.raw.s_blocks_count = after.blocks.into();
        self.raw.s_inodes_count = after.inodes().into();
        self.raw.s_r_blocks_count = (reserved as u32).into();
    }

    /// Sets the counts of free blocks and inodes to the sums over all groups.
    pub(crate) fn set_free(&mut self, groups: &[Group]) {
        let blocks: u32 = groups.iter().map(|group| group.free_blocks).sum();
        let inodes: u32 = groups.iter().map(|group| group.free_inodes).sum();
        self.raw.s_free_blocks_count = blocks.into();
        self.raw.s_free_inodes_count = inodes.into();
    }

    /// Writes the backup copies of superblock and descriptors, which are in later groups.
    pub(crate) fn write_copies(
        &mut self,
        device: &dyn BlockDevice,
        geometry: &Geometry,
        groups: &[Group],
    ) -> Result<()> {
        let table = descriptor_table(groups);
        for no in geometry.all_groups().skip(1).filter(|no| geometry.has_superblock(*no)) {
            self.raw.s_block_group_nr = (no.0 as u16).into();
            device.write_at(geometry.offset_of(geometry.descriptors_of(no)), &table)?;
            device.write_at(geometry.offset_of(geometry.first_block(no)), self.as_bytes())?;
        }
        self.raw.s_block_group_nr = 0.into();
        Ok(())
    }

    /// Writes the descriptors and the superblock of the first group. The new state takes effect
    /// with the superblock, which is written after everything else is durable.
    pub(crate) fn write_first(&self, device: &dyn BlockDevice, groups: &[Group]) -> Result<()> {
        let table = self.geometry.offset_of(self.geometry.descriptors_of(GroupNo(0)));
        device.write_at(table, &descriptor_table(groups))?;
        device.flush()?;
        device.write_at(SUPERBLOCK_OFFSET, self.as_bytes())?;
        Ok(device.flush()?)
    }

    /// Returns the volume name, whose bytes have no fixed encoding.
    #[must_use]
    pub fn label(&self) -> &[u8] {
        let name = &self.raw.s_volume_name;
        let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
        &name[..end]
    }
}

fn refuse(features: ForeignFeatures) -> Result<()> {
    if features.is_empty() { Ok(()) } else { Err(Error::UnknownFeatures(features)) }
}

fn damaged(what: Flaw) -> Error {
    Error::damaged(Place::Superblock, what)
}

fn ensure(holds: bool, what: Flaw) -> Result<()> {
    if holds { Ok(()) } else { Err(damaged(what)) }
}

/// Reads and checks the sizes. Afterwards, plain arithmetic on them cannot overflow.
fn geometry(raw: &RawSuperblock) -> Result<Geometry> {
    let block_size = BlockSize::from_log(raw.s_log_block_size.get())
        .ok_or_else(|| damaged(Flaw::BadBlockSize))?;
    let dynamic = raw.s_rev_level.get() == REVISION_DYNAMIC;
    let blocks = raw.s_blocks_count.get();
    let first_data_block = raw.s_first_data_block.get();
    let blocks_per_group = raw.s_blocks_per_group.get();
    ensure(first_data_block == u32::from(block_size == BlockSize::MIN), Flaw::BadFirstBlock)?;
    ensure(blocks > first_data_block, Flaw::NoBlocks)?;
    let fits = (BLOCKS_PER_GROUP_MIN..=block_size.bits()).contains(&blocks_per_group);
    ensure(fits && blocks_per_group.is_multiple_of(8), Flaw::BadBlocksPerGroup)?;
    ensure(raw.s_log_cluster_size == raw.s_log_block_size, Flaw::ClustersDiffer)?;
    let groups = (blocks - first_data_block).div_ceil(blocks_per_group);
    ensure(groups <= GROUPS_MAX, Flaw::TooManyGroups)?;
    let reserved = u32::from(raw.s_reserved_gdt_blocks.get());
    let geometry = Geometry {
        block_size,
        blocks,
        first_data_block,
        blocks_per_group,
        inodes_per_group: raw.s_inodes_per_group.get(),
        inode_size: if dynamic { raw.s_inode_size.get().into() } else { INODE_BYTES as u32 },
        first_inode: InodeNo(if dynamic { raw.s_first_ino.get() } else { 11 }),
        groups,
        sparse_super: raw.s_feature_ro_compat.get() & ro_compat::SPARSE_SUPER != 0,
        sparse_super2: raw.s_feature_compat.get() & compat::SPARSE_SUPER2 != 0,
        reserved_descriptor_blocks: reserved,
    };
    check_inodes(raw, &geometry)?;
    ensure(reserved <= block_size.pointers(), Flaw::TooManyReservedDescriptors)?;
    let (first, least) = (GroupNo(0), geometry.overhead(GroupNo(0)));
    ensure(least < geometry.blocks_in(first), Flaw::NoRoomForFiles)?;
    ensure(raw.s_r_blocks_count.get() <= blocks, Flaw::TooManyReservedBlocks)?;
    Ok(geometry)
}

fn check_inodes(raw: &RawSuperblock, geometry: &Geometry) -> Result<()> {
    let inode_size = geometry.inode_size;
    let fits = (INODE_BYTES as u32..=geometry.block_size.bytes_u32()).contains(&inode_size);
    ensure(inode_size.is_power_of_two() && fits, Flaw::BadInodeSize)?;
    let per_group = geometry.inodes_per_group;
    ensure((8..=geometry.block_size.bits()).contains(&per_group), Flaw::BadInodesPerGroup)?;
    let inodes = u64::from(per_group) * u64::from(geometry.groups);
    ensure(inodes == u64::from(raw.s_inodes_count.get()), Flaw::BadInodeCount)?;
    ensure(geometry.first_inode.0 >= 11, Flaw::BadFirstInode)?;
    ensure(u64::from(geometry.first_inode.0) < inodes, Flaw::NoInodesForFiles)?;
    let descriptors = u64::from(geometry.groups) * GROUP_BYTES as u64;
    let in_one_group = u64::from(geometry.blocks_per_group) * geometry.block_size.bytes_u64();
    ensure(descriptors < in_one_group, Flaw::DescriptorsTooLarge)
}
