//! A policy's view of a file system: its geometry and its free space.

use std::ops::Range;

use super::bitmap::Bitmap;
use crate::error::Result;
use crate::geometry::Geometry;
use crate::types::{BlockNo, GroupNo, InodeNo};

/// Conversions between numbers of blocks or inodes and positions in groups. Each block or inode
/// that is passed must be in a group.
impl Geometry {
    /// Returns the group that contains a block.
    #[must_use]
    pub fn group_of(&self, block: BlockNo) -> GroupNo {
        GroupNo(block.0.saturating_sub(self.first_data_block) / self.blocks_per_group)
    }

    /// Returns the position of a block in its group.
    #[must_use]
    pub fn bit_of(&self, block: BlockNo) -> u32 {
        block.0.saturating_sub(self.first_data_block) % self.blocks_per_group
    }

    /// Returns the block at a position in a group.
    #[must_use]
    pub fn block_at(&self, group: GroupNo, bit: u32) -> BlockNo {
        BlockNo(self.first_block(group).0 + bit)
    }

    /// Returns the group that contains an inode.
    #[must_use]
    pub fn group_of_inode(&self, inode: InodeNo) -> GroupNo {
        GroupNo((inode.0 - 1) / self.inodes_per_group)
    }

    /// Returns the position of an inode in its group.
    #[must_use]
    pub fn bit_of_inode(&self, inode: InodeNo) -> u32 {
        (inode.0 - 1) % self.inodes_per_group
    }

    /// Returns all groups, starting at `first` and wrapping around.
    pub fn groups_from(&self, first: GroupNo) -> impl Iterator<Item = GroupNo> + use<> {
        let groups = self.groups;
        (0..groups).map(move |step| GroupNo((first.0 % groups + step) % groups))
    }
}

/// The numbers of free blocks, free inodes and directories of one group or of all groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Free blocks.
    pub blocks: u32,
    /// Free inodes.
    pub inodes: u32,
    /// Directories.
    pub directories: u32,
}

/// The free space of a file system, as a policy sees it.
///
/// # Errors
/// Errors of reading a bitmap from the device.
pub trait Space {
    /// Returns the geometry of the file system.
    fn geometry(&self) -> &Geometry;

    /// Returns the counts of a group.
    fn counts(&self, group: GroupNo) -> Counts;

    /// Returns the sums of the counts of all groups.
    fn totals(&self) -> Counts;

    /// Returns the block bitmap of a group.
    fn blocks(&mut self, group: GroupNo) -> Result<&Bitmap>;

    /// Returns the inode bitmap of a group.
    fn inodes(&mut self, group: GroupNo) -> Result<&Bitmap>;
}

/// A run of contiguous blocks in one group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The first block.
    pub start: BlockNo,
    /// Number of blocks; at least 1.
    pub length: u32,
}

impl Run {
    /// Returns the blocks of the run.
    pub fn blocks(self) -> impl ExactSizeIterator<Item = BlockNo> + use<> {
        (self.start.0..self.start.0 + self.length).map(BlockNo)
    }
}

/// The free space of a simulated file system, in memory, for simulations and tests. Groups that
/// were never used need no memory for bitmaps.
#[derive(Clone, Debug)]
pub struct MemorySpace {
    geometry: Geometry,
    /// Number of blocks in use at the start of each group.
    overhead: u32,
    /// Number of inodes in use at the start of the first group.
    reserved_inodes: u32,
    groups: Vec<Group>,
    totals: Counts,
}

#[derive(Clone, Debug, Default)]
struct Group {
    /// `None` until first use.
    bitmaps: Option<Box<Bitmaps>>,
    directories: u32,
}

#[derive(Clone, Debug)]
struct Bitmaps {
    blocks: Bitmap,
    inodes: Bitmap,
}

impl MemorySpace {
    /// Makes the free space of an empty file system. The first `overhead` blocks of each group and
    /// the first `reserved_inodes` inodes are in use.
    #[must_use]
    pub fn new(geometry: Geometry, overhead: u32, reserved_inodes: u32) -> Self {
        let groups = vec![Group::default(); geometry.groups as usize];
        let totals = Counts::default();
        let mut space = Self { geometry, overhead, reserved_inodes, groups, totals };
        for group in (0..geometry.groups).map(GroupNo) {
            let unused = space.unused(group);
            space.totals.blocks += unused.blocks;
            space.totals.inodes += unused.inodes;
        }
        space
    }

    /// Returns the counts of a group that has not been used yet.
    fn unused(&self, group: GroupNo) -> Counts {
        let [blocks, inodes] = self.first_free(group);
        Counts {
            blocks: self.geometry.blocks_in(group) - blocks,
            inodes: self.geometry.inodes_per_group - inodes,
            directories: 0,
        }
    }

    /// Returns the first free block and the first free inode of a group that has not been used yet.
    fn first_free(&self, group: GroupNo) -> [u32; 2] {
        let reserved = if group.0 == 0 { self.reserved_inodes } else { 0 };
        [
            self.overhead.min(self.geometry.blocks_in(group)),
            reserved.min(self.geometry.inodes_per_group),
        ]
    }

    /// Returns the bitmaps of a group; they are allocated at the first use.
    fn bitmaps(&mut self, group: GroupNo) -> &mut Bitmaps {
        let [first_block, first_inode] = self.first_free(group);
        let geometry = &self.geometry;
        self.groups[group.0 as usize].bitmaps.get_or_insert_with(|| {
            let mut blocks = Bitmap::new(geometry.blocks_in(group));
            let mut inodes = Bitmap::new(geometry.inodes_per_group);
            // In a new bitmap all bits are free, so this cannot fail.
            let _taken = blocks.take(0..first_block);
            let _taken = inodes.take(0..first_inode);
            Box::new(Bitmaps { blocks, inodes })
        })
    }

    /// Marks blocks as in use. Returns `false` without changing any bit if one of them is already
    /// in use.
    #[must_use]
    pub fn take(&mut self, run: Run) -> bool {
        let (group, bits) = self.place(run);
        let taken = group.0 < self.geometry.groups && self.bitmaps(group).blocks.take(bits);
        self.totals.blocks -= if taken { run.length } else { 0 };
        taken
    }

    /// Marks blocks as free. Returns `false` without changing any bit if one of them is already
    /// free.
    #[must_use]
    pub fn release(&mut self, run: Run) -> bool {
        let (group, bits) = self.place(run);
        let released = group.0 < self.geometry.groups && self.bitmaps(group).blocks.release(bits);
        self.totals.blocks += if released { run.length } else { 0 };
        released
    }

    /// Returns the runs of free blocks in a group in ascending order, as positions in the group.
    pub fn free_runs(&self, group: GroupNo) -> impl Iterator<Item = Range<u32>> {
        let bitmaps = self.groups.get(group.0 as usize).map(|group| group.bitmaps.as_ref());
        let unused = bitmaps.filter(Option::is_none).map(|_| {
            let [first_block, _] = self.first_free(group);
            first_block..self.geometry.blocks_in(group)
        });
        let used = bitmaps.flatten().into_iter().flat_map(|bitmaps| bitmaps.blocks.free_runs());
        used.chain(unused.filter(|run| !run.is_empty()))
    }

    fn place(&self, run: Run) -> (GroupNo, Range<u32>) {
        let bit = self.geometry.bit_of(run.start);
        (self.geometry.group_of(run.start), bit..bit + run.length)
    }

    /// Marks an inode as in use. Returns `false` without changing anything if it is already in use.
    #[must_use]
    pub fn take_inode(&mut self, inode: InodeNo, directory: bool) -> bool {
        let bit = self.geometry.bit_of_inode(inode);
        let group = self.geometry.group_of_inode(inode);
        let taken = self.bitmaps(group).inodes.take(bit..bit + 1);
        if taken {
            self.groups[group.0 as usize].directories += u32::from(directory);
            self.totals.directories += u32::from(directory);
            self.totals.inodes -= 1;
        }
        taken
    }

    /// Marks an inode as free. Returns `false` without changing anything if it is already free.
    #[must_use]
    pub fn release_inode(&mut self, inode: InodeNo, directory: bool) -> bool {
        let bit = self.geometry.bit_of_inode(inode);
        let group = self.geometry.group_of_inode(inode);
        let released = self.bitmaps(group).inodes.release(bit..bit + 1);
        if released {
            self.groups[group.0 as usize].directories -= u32::from(directory);
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
        let Group { bitmaps, directories } = &self.groups[group.0 as usize];
        let free = match bitmaps {
            None => self.unused(group),
            Some(bitmaps) => Counts {
                blocks: bitmaps.blocks.free(),
                inodes: bitmaps.inodes.free(),
                directories: 0,
            },
        };
        Counts { directories: *directories, ..free }
    }

    fn totals(&self) -> Counts {
        self.totals
    }

    fn blocks(&mut self, group: GroupNo) -> Result<&Bitmap> {
        Ok(&self.bitmaps(group).blocks)
    }

    fn inodes(&mut self, group: GroupNo) -> Result<&Bitmap> {
        Ok(&self.bitmaps(group).inodes)
    }
}
