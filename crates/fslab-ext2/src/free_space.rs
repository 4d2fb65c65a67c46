//! Free blocks and inodes: counts are in memory, bitmaps in the cache.
//!
//! A freed block or inode must not be reused before the device records it as free. Otherwise a
//! power cut could leave two files sharing a block. Until then it is recorded in [`Freed`], and its
//! bit remains set. [`Space::settle`] clears the bits once the device no longer refers to these
//! blocks and inodes.

use std::collections::{BTreeMap, HashMap};

use fslab_vfs::{Errno, FileKind};
use parking_lot::Mutex;

use crate::alloc::cluster::Cluster;
use crate::alloc::{
    BlockRequest, Counts, FileState, InodeRequest, Policy, PolicySpec, Run, place_cluster,
};
use crate::allocator::{Bitmaps, Placement, Seen};
use crate::bits;
use crate::cache::{BlockCache, Role};
use crate::error::{Error, Place, Result};
use crate::flaw::Flaw;
use crate::geometry::Geometry;
use crate::group::Group;
use crate::recent::Recent;
use crate::types::{BlockNo, GroupNo, InodeNo};

/// The time at which freed blocks and inodes may be reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Reuse {
    /// After the device has recorded them as free. Safe against power cuts.
    #[default]
    AfterFlush,
    /// Immediately, as in the kernel's ext2. For simulating the kernel's layout.
    AtOnce,
}

/// A block or inode that was freed and can't be reused yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Freeing {
    Block(BlockNo),
    Inode(InodeNo),
}

/// The free space of a volume.
pub(crate) struct Space {
    geometry: Geometry,
    groups: Vec<Group>,
    freed: BTreeMap<GroupNo, Freed>,
    reserved_blocks: u64,
    free_blocks: u64,
    free_inodes: u64,
    directories: u64,
    waiting_blocks: u64,
    waiting_inodes: u64,
    reuse: Reuse,
    /// Blocks and inodes that were freed, for `kept_changes`.
    pub recently_freed: Recent<Freeing>,
    /// The policy and its state. Methods with `&self` lock it; methods with `&mut self` need no
    /// lock.
    placement: Mutex<Placement>,
    /// Whether group descriptors differ from those on the device.
    pub changed: bool,
}

/// Blocks and inodes of a group that were freed but cannot be reused yet.
struct Freed {
    blocks: FreedBits,
    inodes: FreedBits,
}

struct FreedBits {
    bits: Box<[u8]>,
    count: u32,
}

impl FreedBits {
    fn new(length: u32) -> Self {
        Self { bits: vec![0; length.div_ceil(8) as usize].into_boxed_slice(), count: 0 }
    }

    /// Adds a bit; returns `false` if it is already set.
    fn add(&mut self, index: u32) -> bool {
        let is_new = !bits::is_set(&self.bits, index);
        bits::set(&mut self.bits, index);
        self.count += u32::from(is_new);
        is_new
    }
}

impl Freed {
    /// Clears the bits of all freed blocks and inodes, or none if a bitmap cannot be read.
    fn clear_bits(&self, cache: &mut BlockCache, group: &Group) -> Result<()> {
        let parts = [(group.block_bitmap, &self.blocks), (group.inode_bitmap, &self.inodes)];
        let parts = parts.into_iter().filter(|(_, freed)| freed.count > 0);
        // Load both bitmaps into the cache before the first change, because reading a bitmap can
        // fail.
        for (bitmap, _) in parts.clone() {
            cache.modify(bitmap, Role::Bitmap, |_| {})?;
        }
        for (bitmap, freed) in parts {
            cache.modify(bitmap, Role::Bitmap, |bits| {
                bits.iter_mut().zip(&freed.bits).for_each(|(byte, freed)| *byte &= !freed);
            })?;
        }
        Ok(())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Totals {
    pub free_blocks: u64,
    pub free_inodes: u64,
    pub reserved_blocks: u64,
}

impl Space {
    pub fn new(
        geometry: Geometry,
        groups: Vec<Group>,
        reserved_blocks: u32,
        reuse: Reuse,
        policy: (&PolicySpec, u64),
    ) -> Self {
        let (spec, seed) = policy;
        let placement = Placement {
            policy: (spec.build)(&geometry, seed),
            bitmaps: Bitmaps::default(),
            files: HashMap::new(),
        };
        let free_blocks = groups.iter().map(|group| u64::from(group.free_blocks)).sum();
        let free_inodes = groups.iter().map(|group| u64::from(group.free_inodes)).sum();
        let directories = groups.iter().map(|group| u64::from(group.directories)).sum();
        Self {
            placement: Mutex::new(placement),
            geometry,
            groups,
            freed: BTreeMap::new(),
            reserved_blocks: reserved_blocks.into(),
            free_blocks,
            free_inodes,
            directories,
            waiting_blocks: 0,
            waiting_inodes: 0,
            reuse,
            recently_freed: Recent::default(),
            changed: false,
        }
    }

    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// Whether any freed block or inode cannot be reused yet.
    pub fn is_waiting(&self) -> bool {
        !self.freed.is_empty()
    }

    /// Returns the totals of free blocks and inodes, including those that cannot be reused yet.
    pub fn totals(&self) -> Totals {
        Totals {
            free_blocks: self.free_blocks + self.waiting_blocks,
            free_inodes: self.free_inodes + self.waiting_inodes,
            reserved_blocks: self.reserved_blocks,
        }
    }

    /// Whether a caller may allocate `count` blocks, now or after [`settle`](Self::settle).
    pub fn has_blocks(&self, count: u64, privileged: bool) -> bool {
        let kept = if privileged { 0 } else { self.reserved_blocks };
        self.free_blocks + self.waiting_blocks >= count + kept
    }

    /// Whether `count` blocks are available without [`settle`](Self::settle).
    pub fn has_blocks_now(&self, count: u64) -> bool {
        self.free_blocks >= count
    }

    /// Whether an inode is available only after [`settle`](Self::settle).
    pub fn must_settle_for_inode(&self) -> bool {
        self.free_inodes == 0 && self.waiting_inodes > 0
    }

    /// Whether a block can belong to a file.
    pub fn is_data(&self, block: BlockNo) -> bool {
        let Some((no, index)) = self.geometry.place_of_block(block) else { return false };
        let group = &self.groups[no.0 as usize];
        index >= self.geometry.head_blocks(no) && !group.keeps(&self.geometry, block)
    }

    /// Allocates at least one free block for a file; the policy chooses where.
    pub fn take_blocks(
        &mut self,
        cache: &mut BlockCache,
        no: InodeNo,
        request: &BlockRequest,
    ) -> Result<Run> {
        let (policy, mut seen, files) = self.policy(cache);
        let mut passing = FileState::default();
        let state = match request.regular {
            true => files.entry(no).or_default(),
            // State is kept only for regular files, because it is discarded when the last handle of
            // a file is closed.
            false => &mut passing,
        };
        let run = policy.place_blocks(&mut seen, state, request)?.ok_or(Errno::NOSPC)?;
        self.mark_blocks(cache, run)?;
        Ok(run)
    }

    /// Allocates a contiguous run to which a file's cluster will be moved; `None` if the cluster
    /// should not be moved. `old` contains the cluster's first and last block.
    pub fn take_cluster(
        &mut self,
        cache: &mut BlockCache,
        no: InodeNo,
        request: &BlockRequest,
        old: (BlockNo, BlockNo),
    ) -> Result<Option<Run>> {
        let (policy, mut seen, files) = self.policy(cache);
        let run = place_cluster(policy, &mut seen, files.entry(no).or_default(), request, old)?;
        run.map(|run| self.mark_blocks(cache, run).map(|()| run)).transpose()
    }

    /// Returns the cluster of a file that is being written.
    pub fn cluster_mut(&mut self, no: InodeNo) -> &mut Cluster {
        &mut self.placement.get_mut().files.entry(no).or_default().cluster
    }

    /// Returns the policy, its view of the free space, and its state of each file.
    fn policy<'a>(
        &'a mut self,
        cache: &'a BlockCache,
    ) -> (&'a mut dyn Policy, Seen<'a>, &'a mut HashMap<InodeNo, FileState>) {
        let totals = Counts {
            blocks: self.free_blocks as u32,
            inodes: self.free_inodes as u32,
            directories: self.directories as u32,
        };
        let Placement { policy, bitmaps, files } = self.placement.get_mut();
        let (geometry, groups) = (&self.geometry, &*self.groups);
        (policy.as_mut(), Seen { geometry, groups, cache, totals, bitmaps }, files)
    }

    fn mark_blocks(&mut self, cache: &mut BlockCache, run: Run) -> Result<()> {
        let place = self.geometry.place_of_block(run.start);
        let (no, index) = place.filter(|_| run.blocks().all(|block| self.is_data(block))).ok_or(
            Error::damaged(Place::Group(self.geometry.group_of(run.start)), Flaw::MetadataFree),
        )?;
        let group = &mut self.groups[no.0 as usize];
        let bitmaps = &mut self.placement.get_mut().bitmaps.blocks;
        let was_free =
            bitmaps.taken(no, index..index + run.length) && group.free_blocks >= run.length;
        if !was_free {
            return Err(Error::damaged(Place::Group(no), Flaw::TooFewFreeBlocks));
        }
        cache.modify(group.block_bitmap, Role::Bitmap, |bits| {
            bits::set_range(bits, index..index + run.length);
        })?;
        group.free_blocks -= run.length;
        self.free_blocks -= u64::from(run.length);
        self.changed = true;
        Ok(())
    }

    /// Frees a block for immediate reuse. Used if nothing refers to the block yet, or with
    /// [`Reuse::AtOnce`].
    pub fn untake_block(&mut self, cache: &mut BlockCache, block: BlockNo) -> Result<()> {
        let Some((no, index)) = self.geometry.place_of_block(block) else { return Ok(()) };
        let group = &mut self.groups[no.0 as usize];
        cache.modify(group.block_bitmap, Role::Bitmap, |bits| bits::clear(bits, index))?;
        self.placement.get_mut().bitmaps.blocks.released(no, index);
        group.free_blocks += 1;
        self.free_blocks += 1;
        cache.forget(block);
        Ok(())
    }

    /// Discards the policy's state of a file.
    pub fn closed(&self, no: InodeNo) {
        let mut placement = self.placement.lock();
        if let Some(mut state) = placement.files.remove(&no) {
            placement.policy.file_closed(&mut state);
        }
    }

    /// Returns the number of files for which the policy keeps state.
    #[cfg(test)]
    pub fn files_known(&self) -> usize {
        self.placement.lock().files.len()
    }

    pub fn free_block(
        &mut self,
        cache: &mut BlockCache,
        owner: InodeNo,
        block: BlockNo,
    ) -> Result<()> {
        let damaged = |what| Error::damaged(Place::Block(owner, block), what);
        let Some((no, index)) = self.geometry.place_of_block(block).filter(|_| self.is_data(block))
        else {
            return Err(damaged(Flaw::NotData));
        };
        let bitmap = self.groups[no.0 as usize].block_bitmap;
        if !cache.look(bitmap, |bits| bits::is_set(bits, index))? {
            return Err(damaged(Flaw::MarkedFree));
        }
        if self.reuse == Reuse::AtOnce {
            self.changed = true;
            return self.untake_block(cache, block);
        }
        if !Self::freed_in(&mut self.freed, &self.geometry, no).blocks.add(index) {
            return Err(damaged(Flaw::BelongsTwice));
        }
        self.waiting_blocks += 1;
        self.recently_freed.add(Freeing::Block(block));
        self.changed = true;
        cache.release(block);
        Ok(())
    }

    fn freed_in<'a>(
        freed: &'a mut BTreeMap<GroupNo, Freed>,
        geometry: &Geometry,
        no: GroupNo,
    ) -> &'a mut Freed {
        freed.entry(no).or_insert_with(|| Freed {
            blocks: FreedBits::new(geometry.blocks_per_group),
            inodes: FreedBits::new(geometry.inodes_per_group),
        })
    }

    /// Allocates a free inode; the policy chooses which.
    pub fn take_inode(
        &mut self,
        cache: &mut BlockCache,
        request: &InodeRequest,
    ) -> Result<InodeNo> {
        let (policy, mut seen, _) = self.policy(cache);
        let inode = policy.place_inode(&mut seen, request)?.ok_or(Errno::NOSPC)?;
        let no = self.geometry.group_of_inode(inode);
        let index = self.geometry.bit_of_inode(inode);
        let damaged = |what| Error::damaged(Place::Group(no), what);
        if !self.geometry.is_usable(inode) || inode == InodeNo::ROOT {
            return Err(damaged(Flaw::ReservedInodesFree));
        }
        let group = &mut self.groups[no.0 as usize];
        let bitmaps = &mut self.placement.get_mut().bitmaps.inodes;
        if !bitmaps.taken(no, index..index + 1) || group.free_inodes == 0 {
            return Err(damaged(Flaw::TooFewFreeInodes));
        }
        cache.modify(group.inode_bitmap, Role::Bitmap, |bits| bits::set(bits, index))?;
        group.free_inodes -= 1;
        group.directories += u32::from(request.directory);
        self.directories += u64::from(request.directory);
        self.free_inodes -= 1;
        self.changed = true;
        Ok(inode)
    }

    pub fn free_inode(
        &mut self,
        cache: &mut BlockCache,
        no: InodeNo,
        kind: FileKind,
    ) -> Result<()> {
        let damaged = |what| Error::damaged(Place::Inode(no), what);
        let (group_no, index) =
            self.geometry.place_of_inode(no).ok_or_else(|| damaged(Flaw::NoSuchInode))?;
        let group = &mut self.groups[group_no.0 as usize];
        if !cache.look(group.inode_bitmap, |bits| bits::is_set(bits, index))? {
            return Err(damaged(Flaw::MarkedFree));
        }
        if !Self::freed_in(&mut self.freed, &self.geometry, group_no).inodes.add(index) {
            return Err(damaged(Flaw::FreedTwice));
        }
        let directory = u32::from(kind == FileKind::Directory).min(group.directories);
        group.directories -= directory;
        self.directories -= u64::from(directory);
        self.waiting_inodes += 1;
        self.recently_freed.add(Freeing::Inode(no));
        self.changed = true;
        if self.reuse == Reuse::AtOnce { self.settle(cache) } else { Ok(()) }
    }

    /// Calls `call` with each block and inode that was freed and can't be reused yet.
    pub fn each_freed(&self, mut call: impl FnMut(Freeing)) {
        for (no, freed) in &self.freed {
            let first = self.geometry.first_block(*no);
            bits::each_set(&freed.blocks.bits, |at| call(Freeing::Block(BlockNo(first.0 + at))));
            bits::each_set(&freed.inodes.bits, |at| {
                call(Freeing::Inode(self.geometry.inode_at(*no, at)));
            });
        }
    }

    /// Records a block or inode that an earlier process freed; `None` if the volume does not have
    /// it.
    pub fn restore_freed(&mut self, one: Freeing) -> Option<()> {
        match one {
            Freeing::Block(block) => {
                let (no, at) =
                    self.geometry.place_of_block(block).filter(|_| self.is_data(block))?;
                let is_new = Self::freed_in(&mut self.freed, &self.geometry, no).blocks.add(at);
                self.waiting_blocks += u64::from(is_new);
            }
            Freeing::Inode(inode) => {
                let (no, at) = self.geometry.place_of_inode(inode)?;
                let is_new = Self::freed_in(&mut self.freed, &self.geometry, no).inodes.add(at);
                self.waiting_inodes += u64::from(is_new);
            }
        }
        Some(())
    }

    /// Sets the free blocks, free inodes and directories of a group; `None` if the group does not
    /// exist or a count is too large.
    pub fn restore_group(&mut self, no: GroupNo, counts: [u32; 3]) -> Option<()> {
        let [blocks, inodes, directories] = counts;
        let group = self.groups.get_mut(no.0 as usize)?;
        if blocks > self.geometry.blocks_in(no) || inodes > self.geometry.inodes_per_group {
            return None;
        }
        self.free_blocks = self.free_blocks - u64::from(group.free_blocks) + u64::from(blocks);
        self.free_inodes = self.free_inodes - u64::from(group.free_inodes) + u64::from(inodes);
        self.directories = self.directories - u64::from(group.directories) + u64::from(directories);
        (group.free_blocks, group.free_inodes, group.directories) = (blocks, inodes, directories);
        Some(())
    }

    /// Allows reuse of freed blocks and inodes, which the device must no longer refer to. If the
    /// bitmaps of a group cannot be read, its freed blocks and inodes wait for the next call.
    ///
    /// On a mount with `-o keep`, blocks and inodes freed by the current operation also wait for
    /// the next call. If this daemon dies, the next one may restore the state before the operation.
    pub fn settle(&mut self, cache: &mut BlockCache) -> Result<()> {
        let recent = self.recently_freed.get().to_vec();
        recent.iter().for_each(|one| self.withdraw(*one));
        let answer = self.settle_all(cache);
        let unknown = recent.into_iter().filter(|one| self.restore_freed(*one).is_none()).count();
        debug_assert_eq!(unknown, 0, "the volume has what it has freed");
        answer
    }

    /// Removes a block or inode from the recorded freed ones.
    fn withdraw(&mut self, one: Freeing) {
        let place = match one {
            Freeing::Block(block) => self.geometry.place_of_block(block),
            Freeing::Inode(no) => self.geometry.place_of_inode(no),
        };
        let Some((no, index)) = place else { return };
        let Some(freed) = self.freed.get_mut(&no) else { return };
        let (bits, waiting) = match one {
            Freeing::Block(_) => (&mut freed.blocks, &mut self.waiting_blocks),
            Freeing::Inode(_) => (&mut freed.inodes, &mut self.waiting_inodes),
        };
        if bits::is_set(&bits.bits, index) {
            bits::clear(&mut bits.bits, index);
            bits.count -= 1;
            *waiting -= 1;
        }
    }

    fn settle_all(&mut self, cache: &mut BlockCache) -> Result<()> {
        while let Some((no, freed)) = self.freed.pop_first() {
            if let Err(error) = freed.clear_bits(cache, &self.groups[no.0 as usize]) {
                self.freed.insert(no, freed);
                return Err(error);
            }
            let group = &mut self.groups[no.0 as usize];
            let Placement { policy, bitmaps, .. } = self.placement.get_mut();
            bits::each_set(&freed.blocks.bits, |index| bitmaps.blocks.released(no, index));
            bits::each_set(&freed.inodes.bits, |index| {
                bitmaps.inodes.released(no, index);
                policy.inode_freed(&self.geometry, self.geometry.inode_at(no, index));
            });
            let (blocks, inodes) = (freed.blocks.count, freed.inodes.count);
            group.free_blocks += blocks;
            group.free_inodes += inodes;
            self.free_blocks += u64::from(blocks);
            self.free_inodes += u64::from(inodes);
            self.waiting_blocks -= u64::from(blocks);
            self.waiting_inodes -= u64::from(inodes);
        }
        Ok(())
    }
}
