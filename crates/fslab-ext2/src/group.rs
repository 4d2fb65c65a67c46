//! Block groups: the addresses of a group's bitmaps and inode table, and its counts.

use zerocopy::{FromBytes, IntoBytes};

use fslab_vfs::BlockDevice;

use crate::error::{Error, Place, Result};
use crate::flaw::Flaw;
use crate::format::{GROUP_BYTES, RawGroup};
use crate::geometry::Geometry;
use crate::types::{BlockNo, GroupNo, InodeNo};

/// A checked group descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    /// Address of the block bitmap.
    pub block_bitmap: BlockNo,
    /// Address of the inode bitmap.
    pub inode_bitmap: BlockNo,
    /// Address of the first block of the inode table.
    pub inode_table: BlockNo,
    /// Number of free blocks.
    pub free_blocks: u32,
    /// Number of free inodes.
    pub free_inodes: u32,
    /// Number of directories.
    pub directories: u32,
}

impl Group {
    /// Reads and checks all descriptors.
    ///
    /// # Errors
    /// [`Error::Damaged`] at the first invalid descriptor; errors of the device.
    pub fn read_all(device: &dyn BlockDevice, geometry: &Geometry) -> Result<Vec<Self>> {
        let mut bytes = vec![0; geometry.groups as usize * GROUP_BYTES];
        let table = geometry.descriptors_of(GroupNo(0));
        device.read_at(geometry.offset_of(table), &mut bytes)?;
        let pieces = bytes.chunks_exact(GROUP_BYTES);
        geometry.all_groups().zip(pieces).map(|(no, raw)| Self::parse(geometry, no, raw)).collect()
    }

    fn parse(geometry: &Geometry, no: GroupNo, bytes: &[u8]) -> Result<Self> {
        let damaged = |what| Error::damaged(Place::Group(no), what);
        let raw = RawGroup::read_from_bytes(bytes)
            .map_err(|_short: zerocopy::SizeError<_, _>| damaged(Flaw::DescriptorCutShort))?;
        let group = Self {
            block_bitmap: BlockNo(raw.bg_block_bitmap.get()),
            inode_bitmap: BlockNo(raw.bg_inode_bitmap.get()),
            inode_table: BlockNo(raw.bg_inode_table.get()),
            free_blocks: raw.bg_free_blocks_count.get().into(),
            free_inodes: raw.bg_free_inodes_count.get().into(),
            directories: raw.bg_used_dirs_count.get().into(),
        };
        match group.contradiction(geometry, no) {
            Some(what) => Err(damaged(what)),
            None => Ok(group),
        }
    }

    fn contradiction(&self, geometry: &Geometry, no: GroupNo) -> Option<Flaw> {
        // The addition saturates, because the metadata of a short last group could extend past the
        // highest block number.
        let start = geometry.first_block(no).0.saturating_add(geometry.head_blocks(no));
        let end = geometry.first_block(no).0 + geometry.blocks_in(no);
        let within = |block: BlockNo, length: u32| {
            block.0 >= start && block.0 < end && length <= end - block.0
        };
        let table =
            self.inode_table.0..self.inode_table.0.saturating_add(geometry.inode_table_blocks());
        if !within(self.block_bitmap, 1) || !within(self.inode_bitmap, 1) {
            Some(Flaw::BitmapOutside)
        } else if !within(self.inode_table, geometry.inode_table_blocks()) {
            Some(Flaw::InodeTableOutside)
        } else if self.block_bitmap == self.inode_bitmap
            || table.contains(&self.block_bitmap.0)
            || table.contains(&self.inode_bitmap.0)
        {
            Some(Flaw::GroupOverlap)
        } else if self.free_blocks > geometry.blocks_in(no)
            || self.free_inodes > geometry.inodes_per_group
            || self.directories > geometry.inodes_per_group - self.free_inodes
        {
            Some(Flaw::CountsTooLarge)
        } else {
            None
        }
    }

    /// Returns the block of the inode table that contains an inode, and the inode's offset in that
    /// block; `None` for an invalid number.
    pub(crate) fn place_of_inode(
        groups: &[Self],
        geometry: &Geometry,
        no: InodeNo,
    ) -> Option<(BlockNo, usize)> {
        let (group, index) = geometry.place_of_inode(no)?;
        let per_block = geometry.inodes_per_block();
        let table = groups[group.0 as usize].inode_table;
        let offset = (index % per_block * geometry.inode_size) as usize;
        Some((BlockNo(table.0 + index / per_block), offset))
    }

    /// Encodes the descriptor.
    #[must_use]
    pub fn to_raw(&self) -> RawGroup {
        RawGroup {
            bg_block_bitmap: self.block_bitmap.0.into(),
            bg_inode_bitmap: self.inode_bitmap.0.into(),
            bg_inode_table: self.inode_table.0.into(),
            bg_free_blocks_count: (self.free_blocks as u16).into(),
            bg_free_inodes_count: (self.free_inodes as u16).into(),
            bg_used_dirs_count: (self.directories as u16).into(),
            bg_flags: 0.into(),
            bg_reserved: [0.into(); 3],
        }
    }

    /// Whether a block belongs to the group's bitmaps or inode table.
    #[must_use]
    pub fn keeps(&self, geometry: &Geometry, block: BlockNo) -> bool {
        let table_end = self.inode_table.0 + geometry.inode_table_blocks();
        block == self.block_bitmap
            || block == self.inode_bitmap
            || (self.inode_table.0..table_end).contains(&block.0)
    }
}

/// Encodes the descriptor table that follows each superblock.
#[must_use]
pub fn descriptor_table(groups: &[Group]) -> Vec<u8> {
    groups.iter().flat_map(|group| group.to_raw().as_bytes().to_vec()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{BlockSize, InodeNo};

    /// The last group, at the end of 2^32 blocks, has only 255 blocks, fewer than its descriptors
    /// need.
    #[test]
    fn group_metadata_past_the_largest_block_number_is_damage() {
        let geometry = Geometry {
            block_size: BlockSize::new(4096).unwrap_or(BlockSize::MIN),
            blocks: u32::MAX,
            first_data_block: 0,
            blocks_per_group: 32_760,
            inodes_per_group: 16,
            inode_size: 128,
            first_inode: InodeNo(11),
            groups: 131_105,
            sparse_super: false,
            sparse_super2: false,
            reserved_descriptor_blocks: 0,
        };
        let (no, block) = (GroupNo(131_104), u32::MAX - 5);
        assert_eq!((geometry.blocks_in(no), geometry.head_blocks(no)), (255, 1026));
        let raw = RawGroup {
            bg_block_bitmap: block.into(),
            bg_inode_bitmap: (block + 1).into(),
            bg_inode_table: (block + 2).into(),
            bg_free_blocks_count: 0.into(),
            bg_free_inodes_count: 0.into(),
            bg_used_dirs_count: 0.into(),
            bg_flags: 0.into(),
            bg_reserved: [0.into(); 3],
        };
        let answer = Group::parse(&geometry, no, raw.as_bytes());
        assert!(matches!(answer, Err(Error::Damaged(_))), "{answer:?}");
    }
}
