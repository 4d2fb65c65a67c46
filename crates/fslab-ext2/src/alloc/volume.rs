//! A file system of nothing but placements: which inode and which blocks each file has, as a policy
//! decides it. Files grow at their end and are cut there; nothing is stored in them.
//!
//! For the simulation of years of use in seconds, and for testing policies.

use std::ops::Range;

use super::cluster::{Cluster, Clustering, Written, place_cluster};
use super::space::{MemorySpace, Run, Space};
use super::{BlockRequest, DIRECT_BLOCKS, FileState, InodeRequest, Policy};
use crate::error::Result;
use crate::geometry::Geometry;
use crate::numbers::{BlockNo, FileBlock, InodeNo};

/// Files and where they lie.
pub struct Volume {
    space: MemorySpace,
    policy: Box<dyn Policy>,
    clustering: Clustering,
    /// By inode number.
    files: Vec<Option<File>>,
}

struct File {
    directory: bool,
    blocks: Vec<BlockNo>,
    /// Indirect blocks in the order in which they were needed.
    indirect: Vec<Indirect>,
    state: FileState,
}

#[derive(Clone, Copy)]
struct Indirect {
    /// The first block of the file that needs it.
    logical: u32,
    /// 1 for those that hold numbers of data blocks.
    level: u32,
    block: BlockNo,
}

/// A block that reading a file asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Which one.
    pub block: BlockNo,
    /// Whether it holds numbers of blocks instead of data.
    pub is_indirect: bool,
}

/// How much a growing file got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grown {
    /// All.
    Whole,
    /// Less; there are no more blocks.
    NoSpace,
}

impl Volume {
    /// An empty volume.
    #[must_use]
    pub fn new(space: MemorySpace, policy: Box<dyn Policy>, clustering: Clustering) -> Self {
        let inodes = space.geometry().groups * space.geometry().inodes_per_group;
        let files = std::iter::repeat_with(|| None).take(inodes as usize + 1).collect();
        Self { space, policy, clustering, files }
    }

    /// The free space.
    #[must_use]
    pub fn space(&self) -> &MemorySpace {
        &self.space
    }

    /// Makes a file of no blocks; `None` where there is no inode.
    ///
    /// # Errors
    /// None but those of the policy.
    pub fn create(&mut self, request: &InodeRequest) -> Result<Option<InodeNo>> {
        let Some(inode) = self.policy.place_inode(&mut self.space, request)? else {
            return Ok(None);
        };
        let taken = self.space.take_inode(inode, request.directory);
        debug_assert!(taken, "the policy placed a file at inode {inode}, which is in use");
        self.files[inode.0 as usize] = Some(File {
            directory: request.directory,
            blocks: Vec::new(),
            indirect: Vec::new(),
            state: FileState::default(),
        });
        Ok(Some(inode))
    }

    /// The blocks of a file, in its order; none for a file that does not exist.
    #[must_use]
    pub fn blocks(&self, inode: InodeNo) -> &[BlockNo] {
        self.file(inode).map_or(&[], |file| &file.blocks)
    }

    /// The indirect blocks of a file.
    pub fn indirect_blocks(&self, inode: InodeNo) -> impl Iterator<Item = BlockNo> {
        self.file(inode).into_iter().flat_map(|file| &file.indirect).map(|indirect| indirect.block)
    }

    /// What reading a file from its beginning asks for: its blocks, and each indirect block before
    /// the first of them whose number it holds.
    #[must_use]
    pub fn read_order(&self, inode: InodeNo) -> Vec<Asked> {
        let Some(file) = self.file(inode) else { return Vec::new() };
        let mut asked = Vec::with_capacity(file.blocks.len() + file.indirect.len());
        let mut indirect = file.indirect.iter().peekable();
        for (block, logical) in file.blocks.iter().zip(0..) {
            while let Some(due) = indirect.next_if(|one| one.logical <= logical) {
                asked.push(Asked { block: due.block, is_indirect: true });
            }
            asked.push(Asked { block: *block, is_indirect: false });
        }
        asked
    }

    fn file(&self, inode: InodeNo) -> Option<&File> {
        self.files.get(inode.0 as usize).and_then(Option::as_ref)
    }

    /// Adds blocks to the end of a file. `last_is_full` is whether the last of them is.
    ///
    /// # Errors
    /// None but those of the policy.
    pub fn append(
        &mut self,
        inode: InodeNo,
        count: u32,
        last_is_full: bool,
        writer: u32,
    ) -> Result<Grown> {
        let Some(mut file) = self.files[inode.0 as usize].take() else {
            return Ok(Grown::NoSpace);
        };
        let answer = self.grow(inode, &mut file, count, last_is_full, writer);
        self.files[inode.0 as usize] = Some(file);
        answer
    }

    fn grow(
        &mut self,
        inode: InodeNo,
        file: &mut File,
        count: u32,
        last_is_full: bool,
        writer: u32,
    ) -> Result<Grown> {
        let end = file.blocks.len() as u32 + count;
        while (file.blocks.len() as u32) < end {
            let from = file.blocks.len() as u32;
            let most = if self.places_one(file)? { 1 } else { end - from };
            let mut request = file.request(self.space.geometry(), inode, from, most);
            request.writer = writer;
            if !self.place(file, request)? {
                return Ok(Grown::NoSpace);
            }
            if self.clustering == Clustering::Smart {
                for logical in from..file.blocks.len() as u32 {
                    self.cluster(inode, file, logical, logical + 1 < end || last_is_full)?;
                }
            }
        }
        Ok(Grown::Whole)
    }

    /// Whether the next block of a file is to be placed alone: what is not beside its predecessor
    /// may be moved, and what follows is to follow it there.
    fn places_one(&mut self, file: &File) -> Result<bool> {
        let Some(last) = file.blocks.last().filter(|_| self.clustering == Clustering::Smart) else {
            return Ok(self.clustering == Clustering::Smart);
        };
        let next = BlockNo(last.0 + 1);
        let geometry = *self.space.geometry();
        let beside = next.0 < geometry.blocks
            && self.space.blocks(geometry.group_of(next))?.is_free(geometry.bit_of(next));
        Ok(!beside)
    }

    /// Gives a file the blocks of a request, and the indirect blocks it misses; `false` where
    /// there is no space, and then the file is as it was.
    fn place(&mut self, file: &mut File, mut request: BlockRequest) -> Result<bool> {
        let missing = request.missing;
        let before = file.indirect.len();
        loop {
            let placed = self.policy.place_blocks(&mut self.space, &mut file.state, &request)?;
            let Some(run) = placed else {
                for indirect in file.indirect.drain(before..) {
                    release(&mut self.space, indirect.block);
                }
                return Ok(false);
            };
            let taken = self.space.take(run);
            debug_assert!(taken, "the policy placed blocks at {run:?}, which are in use");
            let mut blocks = run.blocks();
            while request.missing > 0
                && let Some(block) = blocks.next()
            {
                let single = request.logical.0 == DIRECT_BLOCKS;
                let level = request.missing;
                file.indirect.push(Indirect { logical: request.logical.0, level, block });
                request.first_indirect = request.first_indirect.or(single.then_some(block));
                request.missing -= 1;
                (request.nearest, request.holder) = (None, Some(block));
            }
            if blocks.len() > 0 {
                file.blocks.extend(blocks);
                return Ok(true);
            }
            debug_assert!(missing > 0, "the policy placed no block");
        }
    }

    fn cluster(&mut self, inode: InodeNo, file: &mut File, logical: u32, full: bool) -> Result<()> {
        let address = file.blocks[logical as usize];
        let logical = FileBlock(logical);
        let written = Written { logical, address, ends_file: full, contiguous: 0 };
        let most = Cluster::blocks_max(self.space.geometry().block_size.bytes_u32());
        let mut cluster = std::mem::take(&mut file.state.cluster);
        let answer = cluster.written(&written, most, |range| self.relocate(inode, file, range));
        file.state.cluster = cluster;
        answer
    }

    fn relocate(
        &mut self,
        inode: InodeNo,
        file: &mut File,
        range: Range<u32>,
    ) -> Result<Option<BlockNo>> {
        let mut request = file.request(self.space.geometry(), inode, range.start, 1);
        request.missing = 0;
        request.wanted = range.len() as u32;
        let range = range.start as usize..range.end as usize;
        let old = (file.blocks[range.start], file.blocks[range.end - 1]);
        let (policy, space) = (self.policy.as_mut(), &mut self.space);
        let Some(run) = place_cluster(policy, space, &mut file.state, &request, old)? else {
            return Ok(None);
        };
        let taken = self.space.take(run);
        debug_assert!(taken, "a cluster was placed at {run:?}, which is in use");
        for (block, new) in file.blocks[range.clone()].iter_mut().zip(run.blocks()) {
            release(&mut self.space, *block);
            *block = new;
        }
        Ok(Some(file.blocks[range.end - 1]))
    }

    /// Cuts a file to its first `count` blocks.
    pub fn truncate(&mut self, inode: InodeNo, count: u32) {
        let Some(mut file) = self.files[inode.0 as usize].take() else { return };
        file.cut(&mut self.space, count);
        self.policy.file_closed(&mut file.state);
        file.state = FileState::default();
        self.files[inode.0 as usize] = Some(file);
    }

    /// Forgets what is remembered of a file for writing on.
    pub fn close(&mut self, inode: InodeNo) {
        if let Some(file) = self.files[inode.0 as usize].as_mut() {
            self.policy.file_closed(&mut file.state);
            file.state.cluster = Cluster::default();
        }
    }

    /// Takes a file away.
    pub fn remove(&mut self, inode: InodeNo) {
        self.truncate(inode, 0);
        if let Some(file) = self.files[inode.0 as usize].take() {
            let released = self.space.release_inode(inode, file.directory);
            debug_assert!(released, "inode {inode} of a file was not in use");
            self.policy.inode_freed(self.space.geometry(), inode);
        }
    }
}

fn release(space: &mut MemorySpace, block: BlockNo) {
    let released = space.release(Run { start: block, length: 1 });
    debug_assert!(released, "block {block} of a file was not in use");
}

impl File {
    /// What is to be asked for the blocks from `logical` on, up to `most` of them.
    fn request(
        &self,
        geometry: &Geometry,
        inode: InodeNo,
        logical: u32,
        most: u32,
    ) -> BlockRequest {
        let place = MapPlace::of(logical, geometry.block_size.pointers());
        let at = |logical: Option<u32>| {
            logical.and_then(|logical| self.blocks.get(logical as usize).copied())
        };
        let before = at(logical.checked_sub(1)).filter(|_| place.index > 0);
        let (nearest, holder) = match place.missing {
            0 => (before, self.indirect_of(1).filter(|_| logical >= DIRECT_BLOCKS)),
            1 if logical == DIRECT_BLOCKS => (at(Some(DIRECT_BLOCKS - 1)), None),
            missing if place.is_root => (self.indirect_of(missing - 1), None),
            missing => (self.indirect_of(missing), self.indirect_of(missing + 1)),
        };
        BlockRequest {
            home: geometry.group_of_inode(inode),
            regular: !self.directory,
            logical: FileBlock(logical),
            missing: place.missing,
            wanted: most.min(place.room),
            index: place.index,
            before,
            nearest,
            holder,
            last_direct: at(Some(DIRECT_BLOCKS - 1)),
            first_indirect: self.indirect.first().map(|indirect| indirect.block),
            writer: 0,
        }
    }

    /// The latest indirect block of a level.
    fn indirect_of(&self, level: u32) -> Option<BlockNo> {
        self.indirect.iter().rfind(|one| one.level == level).map(|one| one.block)
    }

    fn cut(&mut self, space: &mut MemorySpace, count: u32) {
        let kept = self.blocks.len().min(count as usize);
        let mut run: Option<Run> = None;
        // Side by side they are released at once; most are.
        for block in self.blocks.drain(kept..) {
            match &mut run {
                Some(run) if run.start.0 + run.length == block.0 => run.length += 1,
                _ => release_run(space, run.replace(Run { start: block, length: 1 })),
            }
        }
        release_run(space, run);
        while let Some(indirect) = self.indirect.pop_if(|indirect| indirect.logical >= count) {
            release(space, indirect.block);
        }
    }
}

fn release_run(space: &mut MemorySpace, run: Option<Run>) {
    let Some(run) = run else { return };
    // Files may go on from one group to the next without a gap only where groups have no metadata.
    let group_end = {
        let geometry = space.geometry();
        let group = geometry.group_of(run.start);
        geometry.block_at(group, 0).0 + geometry.blocks_in(group)
    };
    let here = run.length.min(group_end - run.start.0);
    let released = space.release(Run { length: here, ..run });
    debug_assert!(released, "blocks {run:?} of a file were not in use");
    if here < run.length {
        let rest = Run { start: BlockNo(group_end), length: run.length - here };
        release_run(space, Some(rest));
    }
}

/// Where the number of a block of a file is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct MapPlace {
    /// In its array.
    index: u32,
    /// Places from there to the array's end.
    room: u32,
    /// Indirect blocks that a file which ends just before it misses.
    missing: u32,
    /// Whether the topmost of these is one that the inode points to.
    is_root: bool,
}

impl MapPlace {
    fn of(logical: u32, pointers: u32) -> Self {
        let Some(mut rest) = logical.checked_sub(DIRECT_BLOCKS).map(u64::from) else {
            let room = DIRECT_BLOCKS - logical;
            return Self { index: logical, room, missing: 0, is_root: false };
        };
        let mut size = u64::from(pointers);
        let mut levels = 1;
        while rest >= size {
            rest -= size;
            size *= u64::from(pointers);
            levels += 1;
        }
        let missing = (1..=levels)
            .take_while(|level| rest.is_multiple_of(u64::from(pointers).pow(*level)))
            .count() as u32;
        // The root is needed with the first block only.
        let missing = if rest == 0 { levels } else { missing };
        let index = (rest % u64::from(pointers)) as u32;
        Self { index, room: pointers - index, missing, is_root: rest == 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indirect_blocks_are_missing_where_a_new_array_begins() {
        let missing = |logical| MapPlace::of(logical, 256).missing;
        let double = 12 + 256;
        let triple = double + 256 * 256;
        assert_eq!([0, 11, 12, 13, double - 1].map(missing), [0, 0, 1, 0, 0]);
        assert_eq!([double, double + 1, double + 256].map(missing), [2, 0, 1]);
        assert_eq!([triple, triple + 256, triple + 65_536].map(missing), [3, 1, 2]);
        assert_eq!(MapPlace::of(double + 300, 256).index, 44);
        assert_eq!(MapPlace::of(double + 300, 256).room, 212);
    }
}
