//! Free blocks and inodes: counts in memory, bits in the cache.
//!
//! What is freed may not be used again before the device knows that it is free, or a power cut
//! could leave two files with one block. Until then it waits in [`Freed`]: its bits stay set, and
//! [`Space::settle`] clears them once everything that led to it is overwritten.

use std::collections::BTreeMap;

use fslab_vfs::{Errno, FileKind};

use crate::bits;
use crate::cache::{BlockCache, Role};
use crate::error::{Error, Place, Result};
use crate::geometry::Geometry;
use crate::group::Group;
use crate::numbers::{BlockNo, GroupNo, InodeNo};

/// When freed blocks and inodes may be used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Reuse {
    /// When the device knows that they are free. Safe against power cuts.
    #[default]
    AfterFlush,
    /// At once, as in the kernel's ext2. For simulation of its layout.
    AtOnce,
}

/// Free space of a volume.
pub(crate) struct Space {
    geometry: Geometry,
    groups: Vec<Group>,
    freed: BTreeMap<GroupNo, Freed>,
    reserved_blocks: u64,
    free_blocks: u64,
    free_inodes: u64,
    waiting_blocks: u64,
    waiting_inodes: u64,
    reuse: Reuse,
    /// Whether descriptors differ from those on the device.
    pub changed: bool,
}

/// What was freed in a group and waits to be usable.
struct Freed {
    blocks: Box<[u8]>,
    inodes: Box<[u8]>,
    block_count: u32,
    inode_count: u32,
}

/// Counts of a whole volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Totals {
    pub free_blocks: u64,
    pub free_inodes: u64,
    pub reserved_blocks: u64,
}

impl Space {
    pub fn new(geometry: Geometry, groups: Vec<Group>, reserved_blocks: u32, reuse: Reuse) -> Self {
        let free_blocks = groups.iter().map(|group| u64::from(group.free_blocks)).sum();
        let free_inodes = groups.iter().map(|group| u64::from(group.free_inodes)).sum();
        Self {
            geometry,
            groups,
            freed: BTreeMap::new(),
            reserved_blocks: reserved_blocks.into(),
            free_blocks,
            free_inodes,
            waiting_blocks: 0,
            waiting_inodes: 0,
            reuse,
            changed: false,
        }
    }

    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// Whether something waits to be usable.
    pub fn is_waiting(&self) -> bool {
        !self.freed.is_empty()
    }

    /// What is free or will be.
    pub fn totals(&self) -> Totals {
        Totals {
            free_blocks: self.free_blocks + self.waiting_blocks,
            free_inodes: self.free_inodes + self.waiting_inodes,
            reserved_blocks: self.reserved_blocks,
        }
    }

    /// Whether a caller may take so many blocks, now or after [`settle`](Self::settle).
    pub fn has_blocks(&self, count: u64, privileged: bool) -> bool {
        let kept = if privileged { 0 } else { self.reserved_blocks };
        self.free_blocks + self.waiting_blocks >= count + kept
    }

    /// Whether so many blocks can be had without [`settle`](Self::settle).
    pub fn has_blocks_now(&self, count: u64) -> bool {
        self.free_blocks >= count
    }

    /// Whether an inode can be had only after [`settle`](Self::settle).
    pub fn must_settle_for_inode(&self) -> bool {
        self.free_inodes == 0 && self.waiting_inodes > 0
    }

    /// Whether a block can belong to a file.
    pub fn is_data(&self, block: BlockNo) -> bool {
        let Some((no, index)) = self.geometry.place_of_block(block) else { return false };
        let group = &self.groups[no.0 as usize];
        index >= self.geometry.head_blocks(no) && !group.keeps(&self.geometry, block)
    }

    /// Takes a free block: `goal`, else the next free one, in its group first.
    pub fn take_block(&mut self, cache: &BlockCache, goal: BlockNo) -> Result<BlockNo> {
        let (first, index) = self.geometry.place_of_block(goal).unwrap_or((GroupNo(0), 0));
        for step in 0..self.geometry.groups {
            let no = GroupNo((first.0 + step) % self.geometry.groups);
            if self.groups[no.0 as usize].free_blocks == 0 {
                continue;
            }
            let start = if step == 0 { index } else { 0 };
            if let Some(block) = self.take_block_in(cache, no, start)? {
                return Ok(block);
            }
        }
        Err(Errno::NOSPC.into())
    }

    fn take_block_in(
        &mut self,
        cache: &BlockCache,
        no: GroupNo,
        start: u32,
    ) -> Result<Option<BlockNo>> {
        let length = self.geometry.blocks_in(no);
        let found =
            cache.modify(self.groups[no.0 as usize].block_bitmap, Role::Bitmap, |bits| {
                let index = bits::first_clear(bits, start..length)
                    .or_else(|| bits::first_clear(bits, 0..start.min(length)))?;
                bits::set(bits, index);
                Some(index)
            })?;
        let Some(index) = found else {
            return Err(Error::damaged(Place::Group(no), "fewer blocks are free than counted"));
        };
        let block = BlockNo(self.geometry.first_block(no).0 + index);
        if !self.is_data(block) {
            return Err(Error::damaged(Place::Group(no), "metadata is marked free"));
        }
        self.groups[no.0 as usize].free_blocks -= 1;
        self.free_blocks -= 1;
        self.changed = true;
        Ok(Some(block))
    }

    /// Gives a block back.
    pub fn free_block(&mut self, cache: &BlockCache, owner: InodeNo, block: BlockNo) -> Result<()> {
        let damaged = |what| Error::damaged(Place::Block(owner, block), what);
        let Some((no, index)) = self.geometry.place_of_block(block).filter(|_| self.is_data(block))
        else {
            return Err(damaged("points to what is no data block"));
        };
        let bitmap = self.groups[no.0 as usize].block_bitmap;
        if !bits::is_set(&*cache.read(bitmap)?, index) {
            return Err(damaged("is in use and marked free"));
        }
        let freed = Self::freed_in(&mut self.freed, &self.geometry, no);
        if bits::is_set(&freed.blocks, index) {
            return Err(damaged("belongs to two files, or to one twice"));
        }
        bits::set(&mut freed.blocks, index);
        freed.block_count += 1;
        self.waiting_blocks += 1;
        self.changed = true;
        cache.forget(block);
        if self.reuse == Reuse::AtOnce { self.settle(cache) } else { Ok(()) }
    }

    fn freed_in<'a>(
        freed: &'a mut BTreeMap<GroupNo, Freed>,
        geometry: &Geometry,
        no: GroupNo,
    ) -> &'a mut Freed {
        let bytes = |bits: u32| vec![0; bits.div_ceil(8) as usize].into_boxed_slice();
        freed.entry(no).or_insert_with(|| Freed {
            blocks: bytes(geometry.blocks_per_group),
            inodes: bytes(geometry.inodes_per_group),
            block_count: 0,
            inode_count: 0,
        })
    }

    /// Takes a free inode: a file near its directory, a directory where there is most room.
    pub fn take_inode(
        &mut self,
        cache: &BlockCache,
        parent: InodeNo,
        kind: FileKind,
    ) -> Result<InodeNo> {
        let parent = self.geometry.place_of_inode(parent).map_or(GroupNo(0), |(group, _)| group);
        let chosen = match kind {
            FileKind::Directory => self.group_for_directory(),
            _ => self.group_for_file(parent),
        };
        let no = chosen.ok_or(Errno::NOSPC)?;
        let group = &mut self.groups[no.0 as usize];
        let length = self.geometry.inodes_per_group;
        let index = cache.modify(group.inode_bitmap, Role::Bitmap, |bits| {
            let index = bits::first_clear(bits, 0..length)?;
            bits::set(bits, index);
            Some(index)
        })?;
        let damaged = |what| Error::damaged(Place::Group(no), what);
        let index = index.ok_or_else(|| damaged("fewer inodes are free than counted"))?;
        let inode = self.geometry.inode_at(no, index);
        if inode < self.geometry.first_inode {
            return Err(damaged("reserved inodes are marked free"));
        }
        group.free_inodes -= 1;
        group.directories += u32::from(kind == FileKind::Directory);
        self.free_inodes -= 1;
        self.changed = true;
        Ok(inode)
    }

    /// The fewest directories among the groups with an average number of free inodes (4.4BSD).
    fn group_for_directory(&self) -> Option<GroupNo> {
        let average = (self.free_inodes / self.groups.len() as u64) as u32;
        let fits = |group: &Group| group.free_inodes > 0 && group.free_inodes >= average;
        let candidates = self.geometry.all_groups().zip(&self.groups);
        candidates
            .filter(|(_, group)| fits(group))
            .min_by_key(|(no, group)| (group.directories, no.0))
            .map(|(no, _)| no)
    }

    fn group_for_file(&self, parent: GroupNo) -> Option<GroupNo> {
        let count = self.geometry.groups;
        let cyclic = || (0..count).map(|step| (parent.0 + step) % count);
        let inodes = |no: &u32| self.groups[*no as usize].free_inodes > 0;
        let both = |no: &u32| inodes(no) && self.groups[*no as usize].free_blocks > 0;
        cyclic().find(both).or_else(|| cyclic().find(inodes)).map(GroupNo)
    }

    /// Gives an inode back.
    pub fn free_inode(&mut self, cache: &BlockCache, no: InodeNo, kind: FileKind) -> Result<()> {
        let damaged = |what| Error::damaged(Place::Inode(no), what);
        let (group_no, index) =
            self.geometry.place_of_inode(no).ok_or_else(|| damaged("does not exist"))?;
        let group = &mut self.groups[group_no.0 as usize];
        if !bits::is_set(&*cache.read(group.inode_bitmap)?, index) {
            return Err(damaged("is in use and marked free"));
        }
        let freed = Self::freed_in(&mut self.freed, &self.geometry, group_no);
        if bits::is_set(&freed.inodes, index) {
            return Err(damaged("was freed twice"));
        }
        bits::set(&mut freed.inodes, index);
        freed.inode_count += 1;
        group.directories = group.directories.saturating_sub((kind == FileKind::Directory).into());
        self.waiting_inodes += 1;
        self.changed = true;
        if self.reuse == Reuse::AtOnce { self.settle(cache) } else { Ok(()) }
    }

    /// Makes what was freed usable: nothing on the device leads to it any more.
    pub fn settle(&mut self, cache: &BlockCache) -> Result<()> {
        while let Some((no, freed)) = self.freed.pop_first() {
            let group = &mut self.groups[no.0 as usize];
            let subtract = |bits: &mut [u8], freed: &[u8]| {
                bits.iter_mut().zip(freed).for_each(|(byte, freed)| *byte &= !freed);
            };
            if freed.block_count > 0 {
                let change = |bits: &mut [u8]| subtract(bits, &freed.blocks);
                cache.modify(group.block_bitmap, Role::Bitmap, change)?;
            }
            if freed.inode_count > 0 {
                let change = |bits: &mut [u8]| subtract(bits, &freed.inodes);
                cache.modify(group.inode_bitmap, Role::Bitmap, change)?;
            }
            group.free_blocks += freed.block_count;
            group.free_inodes += freed.inode_count;
            self.free_blocks += u64::from(freed.block_count);
            self.free_inodes += u64::from(freed.inode_count);
            self.waiting_blocks -= u64::from(freed.block_count);
            self.waiting_inodes -= u64::from(freed.inode_count);
        }
        Ok(())
    }
}
