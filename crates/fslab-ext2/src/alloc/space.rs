//! What a policy sees of a file system: its geometry, its free space, and nothing else.

use std::ops::Range;

use super::bitmap::Bitmap;
use crate::error::Result;
use crate::geometry::Geometry;
use crate::numbers::{BlockNo, GroupNo, InodeNo};

/// Places in groups, for numbers that are known to be in one.
impl Geometry {
    /// The group that a block is in.
    #[must_use]
    pub fn group_of(&self, block: BlockNo) -> GroupNo {
        GroupNo(block.0.saturating_sub(self.first_data_block) / self.blocks_per_group)
    }

    /// The place of a block in its group.
    #[must_use]
    pub fn bit_of(&self, block: BlockNo) -> u32 {
        block.0.saturating_sub(self.first_data_block) % self.blocks_per_group
    }

    /// The block at a place in a group.
    #[must_use]
    pub fn block_at(&self, group: GroupNo, bit: u32) -> BlockNo {
        BlockNo(self.first_block(group).0 + bit)
    }

    /// The group that an inode is in.
    #[must_use]
    pub fn group_of_inode(&self, inode: InodeNo) -> GroupNo {
        GroupNo((inode.0 - 1) / self.inodes_per_group)
    }

    /// The place of an inode in its group.
    #[must_use]
    pub fn bit_of_inode(&self, inode: InodeNo) -> u32 {
        (inode.0 - 1) % self.inodes_per_group
    }

    /// All groups, from `first` on and around.
    pub fn groups_from(&self, first: GroupNo) -> impl Iterator<Item = GroupNo> + use<> {
        let groups = self.groups;
        (0..groups).map(move |step| GroupNo((first.0 % groups + step) % groups))
    }
}

/// What is free, and how many directories there are: in a group, or in all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Free blocks.
    pub blocks: u32,
    /// Free inodes.
    pub inodes: u32,
    /// Directories.
    pub directories: u32,
}

/// The free space of a file system, as a policy may look at it.
///
/// # Errors
/// Bitmaps may have to be read; what the store answers is passed on.
pub trait Space {
    /// How blocks and inodes are numbered.
    fn geometry(&self) -> &Geometry;

    /// What is free in a group.
    fn counts(&self, group: GroupNo) -> Counts;

    /// What is free in all groups.
    fn totals(&self) -> Counts;

    /// A group's blocks.
    fn blocks(&mut self, group: GroupNo) -> Result<&Bitmap>;

    /// A group's inodes.
    fn inodes(&mut self, group: GroupNo) -> Result<&Bitmap>;
}

/// Blocks side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The first.
    pub start: BlockNo,
    /// How many; at least 1. All in one group.
    pub length: u32,
}

impl Run {
    /// The blocks.
    pub fn blocks(self) -> impl ExactSizeIterator<Item = BlockNo> + use<> {
        (self.start.0..self.start.0 + self.length).map(BlockNo)
    }
}

/// A file system's free space without the file system: for simulation and tests.
#[derive(Clone, Debug)]
pub struct MemorySpace {
    geometry: Geometry,
    groups: Vec<Group>,
    totals: Counts,
}

#[derive(Clone, Debug)]
struct Group {
    blocks: Bitmap,
    inodes: Bitmap,
    directories: u32,
}

impl MemorySpace {
    /// A file system in which each group's first `overhead` blocks and the first
    /// `reserved_inodes` inodes are in use.
    #[must_use]
    pub fn new(geometry: Geometry, overhead: u32, reserved_inodes: u32) -> Self {
        let mut groups = Vec::new();
        for group in (0..geometry.groups).map(GroupNo) {
            let length = geometry.blocks_in(group);
            let mut blocks = Bitmap::new(length);
            let mut inodes = Bitmap::new(geometry.inodes_per_group);
            let reserved = if group.0 == 0 { reserved_inodes } else { 0 };
            // New bitmaps are all free.
            let _taken = blocks.take(0..overhead.min(length));
            let _taken = inodes.take(0..reserved.min(geometry.inodes_per_group));
            groups.push(Group { blocks, inodes, directories: 0 });
        }
        let totals = Counts {
            blocks: groups.iter().map(|group| group.blocks.free()).sum(),
            inodes: groups.iter().map(|group| group.inodes.free()).sum(),
            directories: 0,
        };
        Self { geometry, groups, totals }
    }

    /// Marks blocks as in use; `false`, and nothing done, if one already was.
    #[must_use]
    pub fn take(&mut self, run: Run) -> bool {
        let (group, bits) = self.place(run);
        let taken =
            self.groups.get_mut(group.0 as usize).is_some_and(|group| group.blocks.take(bits));
        self.totals.blocks -= if taken { run.length } else { 0 };
        taken
    }

    /// Marks blocks as free; `false`, and nothing done, if one already was.
    #[must_use]
    pub fn release(&mut self, run: Run) -> bool {
        let (group, bits) = self.place(run);
        let released =
            self.groups.get_mut(group.0 as usize).is_some_and(|group| group.blocks.release(bits));
        self.totals.blocks += if released { run.length } else { 0 };
        released
    }

    /// The free blocks of a group, as places in it, in order.
    pub fn free_runs(&self, group: GroupNo) -> impl Iterator<Item = Range<u32>> {
        self.groups.get(group.0 as usize).into_iter().flat_map(|group| group.blocks.free_runs())
    }

    fn place(&self, run: Run) -> (GroupNo, Range<u32>) {
        let bit = self.geometry.bit_of(run.start);
        (self.geometry.group_of(run.start), bit..bit + run.length)
    }

    /// Marks an inode as in use; `false`, and nothing done, if it already was.
    #[must_use]
    pub fn take_inode(&mut self, inode: InodeNo, directory: bool) -> bool {
        let bit = self.geometry.bit_of_inode(inode);
        let group = &mut self.groups[self.geometry.group_of_inode(inode).0 as usize];
        let taken = group.inodes.take(bit..bit + 1);
        if taken {
            group.directories += u32::from(directory);
            self.totals.directories += u32::from(directory);
            self.totals.inodes -= 1;
        }
        taken
    }

    /// Marks an inode as free; `false`, and nothing done, if it already was.
    #[must_use]
    pub fn release_inode(&mut self, inode: InodeNo, directory: bool) -> bool {
        let bit = self.geometry.bit_of_inode(inode);
        let group = &mut self.groups[self.geometry.group_of_inode(inode).0 as usize];
        let released = group.inodes.release(bit..bit + 1);
        if released {
            group.directories -= u32::from(directory);
            self.totals.directories -= u32::from(directory);
            self.totals.inodes += 1;
        }
        released
    }
}

impl Space for MemorySpace {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn counts(&self, group: GroupNo) -> Counts {
        let group = &self.groups[group.0 as usize];
        Counts {
            blocks: group.blocks.free(),
            inodes: group.inodes.free(),
            directories: group.directories,
        }
    }

    fn totals(&self) -> Counts {
        self.totals
    }

    fn blocks(&mut self, group: GroupNo) -> Result<&Bitmap> {
        Ok(&self.groups[group.0 as usize].blocks)
    }

    fn inodes(&mut self, group: GroupNo) -> Result<&Bitmap> {
        Ok(&self.groups[group.0 as usize].inodes)
    }
}
