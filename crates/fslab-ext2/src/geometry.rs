//! Arithmetic on the fixed sizes of a file system. The sizes are checked when a superblock is read
//! or made, so nothing here can overflow.

use crate::format::GROUP_BYTES;
use crate::types::{BlockNo, BlockSize, GroupNo, InodeNo};

/// The fixed sizes of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Block size.
    pub block_size: BlockSize,
    /// Total number of blocks, including the unused first block with 1 KiB blocks.
    pub blocks: u32,
    /// The first block of group 0: 1 with 1 KiB blocks, else 0.
    pub first_data_block: u32,
    /// Number of blocks in every group except the last.
    pub blocks_per_group: u32,
    /// Number of inodes in every group.
    pub inodes_per_group: u32,
    /// Inode size in bytes.
    pub inode_size: u32,
    /// The first inode that is not reserved.
    pub first_inode: InodeNo,
    /// Number of groups.
    pub groups: u32,
    /// Whether only some groups have a backup of the superblock.
    pub sparse_super: bool,
    /// Whether at most two groups have a backup (`sparse_super2`); readers can ignore this.
    pub sparse_super2: bool,
    /// Number of blocks reserved after the group descriptors, so that their table can grow.
    pub reserved_descriptor_blocks: u32,
}

impl Geometry {
    /// Returns this geometry with another total number of blocks.
    pub(crate) fn of_blocks(&self, blocks: u32) -> Self {
        let groups = blocks.saturating_sub(self.first_data_block).div_ceil(self.blocks_per_group);
        Self { blocks, groups, ..*self }
    }

    /// Returns the total number of inodes.
    #[must_use]
    pub fn inodes(&self) -> u32 {
        self.groups * self.inodes_per_group
    }

    /// Returns all groups.
    pub fn all_groups(&self) -> impl Iterator<Item = GroupNo> + use<> {
        (0..self.groups).map(GroupNo)
    }

    /// Returns the first block of a group.
    #[must_use]
    pub fn first_block(&self, group: GroupNo) -> BlockNo {
        BlockNo(self.first_data_block + group.0 * self.blocks_per_group)
    }

    /// Returns the number of blocks in a group.
    #[must_use]
    pub fn blocks_in(&self, group: GroupNo) -> u32 {
        (self.blocks - self.first_block(group).0).min(self.blocks_per_group)
    }

    /// Returns the group of a block and the position in it; `None` if no group contains the block.
    #[must_use]
    pub fn place_of_block(&self, block: BlockNo) -> Option<(GroupNo, u32)> {
        let offset = block.0.checked_sub(self.first_data_block)?;
        (block.0 < self.blocks)
            .then(|| (GroupNo(offset / self.blocks_per_group), offset % self.blocks_per_group))
    }

    /// Returns the group of an inode and the position in it; `None` for an invalid number.
    #[must_use]
    pub fn place_of_inode(&self, inode: InodeNo) -> Option<(GroupNo, u32)> {
        let offset = inode.0.checked_sub(1)?;
        (offset < self.inodes())
            .then(|| (GroupNo(offset / self.inodes_per_group), offset % self.inodes_per_group))
    }

    /// Returns the inode at a position of a group.
    #[must_use]
    pub fn inode_at(&self, group: GroupNo, index: u32) -> InodeNo {
        InodeNo(group.0 * self.inodes_per_group + index + 1)
    }

    /// Whether an inode may be used for a file: it is the root or not reserved.
    #[must_use]
    pub fn is_usable(&self, inode: InodeNo) -> bool {
        inode == InodeNo::ROOT || (inode >= self.first_inode && inode.0 <= self.inodes())
    }

    /// Returns the number of blocks in a group's inode table.
    #[must_use]
    pub fn inode_table_blocks(&self) -> u32 {
        let bytes = u64::from(self.inodes_per_group) * u64::from(self.inode_size);
        bytes.div_ceil(self.block_size.bytes_u64()) as u32
    }

    /// Returns the number of inodes in a block.
    #[must_use]
    pub fn inodes_per_block(&self) -> u32 {
        self.block_size.bytes_u32() / self.inode_size
    }

    /// Returns the number of blocks in the descriptor table.
    #[must_use]
    pub fn descriptor_blocks(&self) -> u32 {
        let bytes = u64::from(self.groups) * GROUP_BYTES as u64;
        bytes.div_ceil(self.block_size.bytes_u64()) as u32
    }

    /// Returns the first block of the descriptor table in a group with a superblock.
    #[must_use]
    pub fn descriptors_of(&self, group: GroupNo) -> BlockNo {
        BlockNo(self.first_block(group).0 + 1)
    }

    /// Whether a group has a superblock and descriptors. With `sparse_super2`, which is supported
    /// only for reading, the answer is known only for the first group.
    #[must_use]
    pub fn has_superblock(&self, group: GroupNo) -> bool {
        if self.sparse_super2 {
            return group.0 == 0;
        }
        let is_power_of = |base: u32| {
            let mut rest = group.0;
            while rest.is_multiple_of(base) {
                rest /= base;
            }
            rest == 1
        };
        !self.sparse_super || group.0 <= 1 || [3, 5, 7].into_iter().any(is_power_of)
    }

    /// Returns the number of blocks at the start of a group for the superblock and the group
    /// descriptors. This includes the blocks reserved for the growth of the descriptor table.
    #[must_use]
    pub fn head_blocks(&self, group: GroupNo) -> u32 {
        match self.has_superblock(group) {
            true => 1 + self.descriptor_blocks() + self.reserved_descriptor_blocks,
            false => 0,
        }
    }

    /// Returns the number of metadata blocks in a group.
    #[must_use]
    pub fn overhead(&self, group: GroupNo) -> u32 {
        self.head_blocks(group) + 2 + self.inode_table_blocks()
    }

    /// Returns the offset of a block on the device, in bytes.
    #[must_use]
    pub fn offset_of(&self, block: BlockNo) -> u64 {
        u64::from(block.0) * self.block_size.bytes_u64()
    }

    /// Returns the maximum file size in bytes. It is limited by the reach of an inode's pointers
    /// and by the 32-bit count of sectors.
    #[must_use]
    pub fn size_max(&self) -> u64 {
        let pointers = u64::from(self.block_size.pointers());
        let reach = 12 + pointers + pointers.pow(2) + pointers.pow(3);
        // A slightly too high estimate of the number of indirect blocks in a file with this many
        // sectors.
        let sectors = u64::from(u32::MAX);
        let countable = sectors * 512 / self.block_size.bytes_u64();
        let indirect = 1 + pointers + 1 + countable.div_ceil(pointers);
        reach.min(countable.saturating_sub(indirect)) * self.block_size.bytes_u64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn geometry(block_size: u32) -> Geometry {
        Geometry {
            block_size: BlockSize::new(block_size).unwrap_or(BlockSize::MIN),
            blocks: 100_000,
            first_data_block: u32::from(block_size == 1024),
            blocks_per_group: 8192,
            inodes_per_group: 1024,
            inode_size: 256,
            first_inode: InodeNo(11),
            groups: 13,
            sparse_super: true,
            sparse_super2: false,
            reserved_descriptor_blocks: 0,
        }
    }

    #[test]
    fn backups_are_in_powers_of_3_5_and_7() {
        let geometry = geometry(1024);
        let backups: Vec<_> =
            (0..200).filter(|group| geometry.has_superblock(GroupNo(*group))).collect();
        assert_eq!(backups, [0, 1, 3, 5, 7, 9, 25, 27, 49, 81, 125]);
    }

    #[test]
    fn block_and_inode_numbers_map_to_groups_and_back() {
        let geometry = geometry(1024);
        assert_eq!(geometry.place_of_block(BlockNo(0)), None);
        assert_eq!(geometry.place_of_block(BlockNo(100_000)), None);
        assert_eq!(geometry.place_of_block(BlockNo(8192)), Some((GroupNo(0), 8191)));
        assert_eq!(geometry.place_of_block(BlockNo(8193)), Some((GroupNo(1), 0)));
        assert_eq!(geometry.place_of_inode(InodeNo(0)), None);
        assert_eq!(geometry.place_of_inode(InodeNo(1025)), Some((GroupNo(1), 0)));
        assert_eq!(geometry.inode_at(GroupNo(1), 0), InodeNo(1025));
        assert_eq!(geometry.blocks_in(GroupNo(12)), 99_999 - 12 * 8192);
    }

    #[test]
    fn file_size_is_limited_by_pointers_or_sector_count() {
        assert_eq!(geometry(1024).size_max(), (12 + 256 + 256 * 256 + 256 * 256 * 256) * 1024);
        let two_tib = 2 << 40;
        let largest = geometry(4096).size_max();
        assert!(largest < two_tib && largest > two_tib - (4 << 30), "{largest}");
    }
}
