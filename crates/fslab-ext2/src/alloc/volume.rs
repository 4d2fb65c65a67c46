//! Simulates block allocation without data: records the inode and blocks that a policy chooses for
//! each file. Writing past a file's end leaves a hole.
//!
//! Used to simulate years of use in seconds, and to test policies.

use std::ops::Range;

use ahash::AHashMap;

use super::cluster::{Cluster, Clustering, Written};
use super::policy::place_cluster;
use super::reservation::ends;
use super::space::{MemorySpace, Run, Space};
use super::{BlockRequest, DIRECT_BLOCKS, FileState, InodeRequest, Policy};
use crate::error::Result;
use crate::geometry::Geometry;
use crate::pointer_tree::{PointerPath, first_of_tree};
use crate::types::{BlockNo, FileBlock, InodeNo};

/// A simulated file system: files with their inodes and blocks, but without data.
pub struct Volume {
    space: MemorySpace,
    policy: Box<dyn Policy>,
    clustering: Clustering,
    files: AHashMap<InodeNo, File>,
}

struct File {
    directory: bool,
    /// The mapped blocks, in order of their offset in the file.
    blocks: Vec<BlockNo>,
    /// For each mapped block, its index in the file; empty for a file without holes.
    logical: Vec<u32>,
    /// Indirect blocks in the order in which a sequential reader needs them.
    indirect: Vec<Indirect>,
    state: FileState,
}

#[derive(Clone, Copy)]
struct Indirect {
    /// The index of the first file block that this indirect block maps, directly or through others.
    logical: u32,
    /// 1 for an indirect block that points to data blocks, 2 for one that points to blocks of level
    /// 1, and so on.
    level: u32,
    block: BlockNo,
}

/// A block that a reader of a file requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The block's address.
    pub block: BlockNo,
    /// Whether the block is an indirect block instead of a data block.
    pub is_indirect: bool,
}

/// Whether a write could allocate all its blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grown {
    /// All blocks were allocated.
    Whole,
    /// Some blocks are missing because the volume is full.
    NoSpace,
}

impl Volume {
    /// Makes an empty volume.
    #[must_use]
    pub fn new(space: MemorySpace, policy: Box<dyn Policy>, clustering: Clustering) -> Self {
        Self { space, policy, clustering, files: AHashMap::new() }
    }

    /// Returns the free space.
    #[must_use]
    pub fn space(&self) -> &MemorySpace {
        &self.space
    }

    /// Creates an empty file; `None` if there is no free inode.
    ///
    /// # Errors
    /// Only errors of the policy.
    pub fn create(&mut self, request: &InodeRequest) -> Result<Option<InodeNo>> {
        let Some(inode) = self.policy.place_inode(&mut self.space, request)? else {
            return Ok(None);
        };
        let taken = self.space.take_inode(inode, request.directory);
        debug_assert!(taken, "the policy placed a file at inode {inode}, which is in use");
        let file = File {
            directory: request.directory,
            blocks: Vec::new(),
            logical: Vec::new(),
            indirect: Vec::new(),
            state: FileState::default(),
        };
        self.files.insert(inode, file);
        Ok(Some(inode))
    }

    /// Returns the mapped blocks of a file, in file order. The slice is empty if the file does not
    /// exist.
    #[must_use]
    pub fn blocks(&self, inode: InodeNo) -> &[BlockNo] {
        self.file(inode).map_or(&[], |file| &file.blocks)
    }

    /// Returns the index in the file of each block in [`blocks`](Self::blocks). `None` for a file
    /// without holes, where the index is the position in that slice.
    #[must_use]
    pub fn logical_blocks(&self, inode: InodeNo) -> Option<&[u32]> {
        self.file(inode).map(|file| file.logical.as_slice()).filter(|logical| !logical.is_empty())
    }

    /// Returns the index of the file block after the last mapped one; 0 if no block is mapped.
    #[must_use]
    pub fn end(&self, inode: InodeNo) -> u32 {
        self.file(inode).map_or(0, File::end)
    }

    /// Returns the number of unmapped blocks in a range of a file.
    #[must_use]
    pub fn unmapped(&self, inode: InodeNo, range: &Range<u32>) -> u32 {
        let mapped = self.file(inode).map_or(0, |file| {
            let place = |logical| file.place_of(logical).unwrap_or_else(|place| place);
            place(range.end).saturating_sub(place(range.start))
        });
        (range.len() - mapped) as u32
    }

    /// Returns the blocks that a sequential reader of a file requests. Each indirect block comes
    /// before the first data block whose address it contains.
    #[must_use]
    pub fn read_order(&self, inode: InodeNo) -> Vec<Asked> {
        let Some(file) = self.file(inode) else { return Vec::new() };
        let mut asked = Vec::with_capacity(file.blocks.len() + file.indirect.len());
        let mut indirect = file.indirect.iter().peekable();
        for (place, block) in file.blocks.iter().enumerate() {
            let logical = file.logical_at(place);
            while let Some(due) = indirect.next_if(|one| one.logical <= logical) {
                asked.push(Asked { block: due.block, is_indirect: true });
            }
            asked.push(Asked { block: *block, is_indirect: false });
        }
        asked
    }

    fn file(&self, inode: InodeNo) -> Option<&File> {
        self.files.get(&inode)
    }

    /// Appends blocks to a file. `last_is_full` states whether the last appended block is full.
    ///
    /// # Errors
    /// Only errors of the policy.
    pub fn append(&mut self, inode: InodeNo, count: u32, last_is_full: bool) -> Result<Grown> {
        let end = self.end(inode);
        self.write(inode, end..end.saturating_add(count), last_is_full)
    }

    /// Maps the unmapped blocks in a range of a file. `last_is_full` states whether the last block
    /// of the range is full.
    ///
    /// # Errors
    /// Only errors of the policy.
    pub fn write(
        &mut self,
        inode: InodeNo,
        range: Range<u32>,
        last_is_full: bool,
    ) -> Result<Grown> {
        let Some(mut file) = self.files.remove(&inode) else {
            return Ok(Grown::NoSpace);
        };
        let answer = self.grow(inode, &mut file, range, last_is_full);
        self.files.insert(inode, file);
        answer
    }

    fn grow(
        &mut self,
        inode: InodeNo,
        file: &mut File,
        range: Range<u32>,
        last_is_full: bool,
    ) -> Result<Grown> {
        let mut next = range.start;
        while let Some(hole) = file.hole_in(next..range.end) {
            let from = hole.start;
            let most = if self.places_one(file, from)? { 1 } else { hole.len() as u32 };
            // A block past the triple-indirect tree cannot be mapped.
            let Some(path) = self.path(from) else { return Ok(Grown::NoSpace) };
            let request = file.request(self.space.geometry(), inode, &path, most);
            let Some(placed) = self.place(file, &path, request)? else {
                return Ok(Grown::NoSpace);
            };
            next = from + placed;
            if self.clustering == Clustering::Smart {
                let is_at_end = file.end() == next;
                for logical in from..next {
                    let is_full = logical + 1 < range.end || last_is_full;
                    // The simulated writer writes blocks one by one. When it writes a block of the
                    // run, the later blocks of the run do not exist yet. So only the last block of
                    // the run can be followed by existing blocks.
                    let is_last = logical + 1 == next;
                    let contiguous = if is_last { file.contiguous(logical) } else { 0 };
                    self.cluster(inode, file, logical, is_full && is_at_end, contiguous)?;
                }
            }
        }
        Ok(Grown::Whole)
    }

    fn path(&self, logical: u32) -> Option<PointerPath> {
        PointerPath::to(self.space.geometry().block_size, FileBlock(logical))
    }

    /// Whether a file block must be requested alone. With smart clustering, a block that does not
    /// follow its predecessor on the device may be moved. Later blocks should then follow its new
    /// address, so they are requested after the move.
    fn places_one(&mut self, file: &File, logical: u32) -> Result<bool> {
        let last = logical.checked_sub(1).and_then(|before| file.block(before));
        let Some(last) = last.filter(|_| self.clustering == Clustering::Smart) else {
            return Ok(self.clustering == Clustering::Smart);
        };
        let next = BlockNo(last.0 + 1);
        let geometry = *self.space.geometry();
        let beside = next.0 < geometry.blocks
            && self.space.blocks(geometry.group_of(next))?.is_free(geometry.bit_of(next));
        Ok(!beside)
    }

    /// Allocates the blocks of a request and the missing indirect blocks. Returns the number of
    /// data blocks added to the file. `None` if there is no space; the file is then unchanged.
    fn place(
        &mut self,
        file: &mut File,
        path: &PointerPath,
        mut request: BlockRequest,
    ) -> Result<Option<u32>> {
        let missing = request.missing;
        let mut made: Vec<Indirect> = Vec::new();
        loop {
            let placed = self.policy.place_blocks(&mut self.space, &mut file.state, &request)?;
            let Some(run) = placed else {
                for indirect in made {
                    release(&mut self.space, indirect.block);
                }
                return Ok(None);
            };
            let taken = self.space.take(run);
            debug_assert!(taken, "the policy placed blocks at {run:?}, which are in use");
            let mut blocks = run.blocks();
            while request.missing > 0
                && let Some(block) = blocks.next()
            {
                let single = path.levels() == 1;
                let level = request.missing;
                let logical = path.first_below(level as usize);
                made.push(Indirect { logical, level, block });
                request.first_indirect = request.first_indirect.or(single.then_some(block));
                request.missing -= 1;
                (request.nearest, request.holder) = (None, Some(block));
            }
            if blocks.len() > 0 {
                let count = blocks.len() as u32;
                file.insert(request.logical.0, blocks, made);
                return Ok(Some(count));
            }
            debug_assert!(missing > 0, "the policy placed no block");
        }
    }

    fn cluster(
        &mut self,
        inode: InodeNo,
        file: &mut File,
        logical: u32,
        ends_file: bool,
        contiguous: u32,
    ) -> Result<()> {
        let Some(address) = file.block(logical) else { return Ok(()) };
        let most = Cluster::blocks_max(self.space.geometry().block_size.bytes_u32());
        let contiguous = contiguous.min(most);
        let written = Written { logical: FileBlock(logical), address, ends_file, contiguous };
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
        let Some(path) = self.path(range.start) else { return Ok(None) };
        let mut request = file.request(self.space.geometry(), inode, &path, 1);
        request.missing = 0;
        request.wanted = range.len() as u32;
        // The blocks of a cluster are consecutive in the file and all mapped, so one search
        // suffices.
        let Ok(first) = file.place_of(range.start) else { return Ok(None) };
        let range = first..first + range.len();
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

    /// Truncates a file to its first `count` blocks.
    pub fn truncate(&mut self, inode: InodeNo, count: u32) {
        let Some(file) = self.files.get_mut(&inode) else { return };
        file.cut(&mut self.space, count);
        self.policy.file_closed(&mut file.state);
        file.state = FileState::default();
    }

    /// Discards the policy's state for a file that is no longer written.
    pub fn close(&mut self, inode: InodeNo) {
        if let Some(file) = self.files.get_mut(&inode) {
            self.policy.file_closed(&mut file.state);
            file.state.cluster = Cluster::default();
        }
    }

    /// Removes a file.
    pub fn remove(&mut self, inode: InodeNo) {
        self.truncate(inode, 0);
        if let Some(file) = self.files.remove(&inode) {
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
    /// Builds the request for up to `most` blocks, starting at the file block at the end of `path`.
    fn request(
        &self,
        geometry: &Geometry,
        inode: InodeNo,
        path: &PointerPath,
        most: u32,
    ) -> BlockRequest {
        let (logical, index) = (path.logical().0, path.index());
        let missing = self.missing(path);
        let before = logical.checked_sub(1).filter(|_| index > 0 && missing == 0);
        let (nearest, holder) = match missing {
            0 => (
                self.last_in(logical - index..logical),
                self.indirect_at(1, path.first_below(1)).filter(|_| path.levels() > 0),
            ),
            // All indirect blocks of the path are missing, so the first missing pointer is in the
            // inode.
            missing if missing as usize == path.levels() => {
                let root = (1..missing).rev().find_map(|level| self.root(geometry, level));
                (root.or_else(|| self.last_in(0..DIRECT_BLOCKS)), None)
            }
            missing => {
                let first = |level: u32| path.first_below(level as usize);
                let row = first(missing + 1)..first(missing);
                let beside = |one: &&Indirect| one.level == missing && row.contains(&one.logical);
                let beside = self.indirect.iter().rfind(beside);
                (beside.map(|one| one.block), self.indirect_at(missing + 1, row.start))
            }
        };
        BlockRequest {
            home: geometry.group_of_inode(inode),
            regular: !self.directory,
            logical: path.logical(),
            missing,
            wanted: most.min(path.room()),
            index,
            before: before.and_then(|before| self.block(before)),
            nearest,
            holder,
            last_direct: self.block(DIRECT_BLOCKS - 1),
            first_indirect: self.root(geometry, 1),
        }
    }

    /// Returns the number of missing indirect blocks on a path.
    fn missing(&self, path: &PointerPath) -> u32 {
        let has =
            |level: &u32| self.indirect_at(*level, path.first_below(*level as usize)).is_some();
        let levels = path.levels() as u32;
        (1..=levels).find(has).map_or(levels, |level| level - 1)
    }

    /// Returns the indirect block at `level` whose range starts at the file block `first`.
    fn indirect_at(&self, level: u32, first: u32) -> Option<BlockNo> {
        let from = self.indirect.partition_point(|one| one.logical < first);
        let here = self.indirect[from..].iter().take_while(|one| one.logical == first);
        here.into_iter().find(|one| one.level == level).map(|one| one.block)
    }

    /// Returns the indirect block at `level` that the inode points to.
    fn root(&self, geometry: &Geometry, level: u32) -> Option<BlockNo> {
        let first = u32::try_from(first_of_tree(geometry.block_size, level)).ok()?;
        self.indirect_at(level, first)
    }

    /// Returns the position of a file block among the mapped blocks, or the position to insert it
    /// at.
    fn place_of(&self, logical: u32) -> std::result::Result<usize, usize> {
        match self.logical.is_empty() {
            true if (logical as usize) < self.blocks.len() => Ok(logical as usize),
            true => Err(self.blocks.len()),
            false => self.logical.binary_search(&logical),
        }
    }

    fn logical_at(&self, place: usize) -> u32 {
        self.logical.get(place).copied().unwrap_or(place as u32)
    }

    fn block(&self, logical: u32) -> Option<BlockNo> {
        self.place_of(logical).ok().map(|place| self.blocks[place])
    }

    fn end(&self) -> u32 {
        self.blocks.len().checked_sub(1).map_or(0, |last| self.logical_at(last) + 1)
    }

    /// Returns how many of the following file blocks are contiguous with this one on the device.
    fn contiguous(&self, logical: u32) -> u32 {
        let Some(first) = self.block(logical) else { return 0 };
        let follows = |more: &u32| self.block(logical + more) == Some(BlockNo(first.0 + more));
        (1..).take_while(follows).count() as u32
    }

    /// Returns the last mapped block in a range.
    fn last_in(&self, range: Range<u32>) -> Option<BlockNo> {
        let behind = self.place_of(range.end).unwrap_or_else(|place| place);
        let place = behind.checked_sub(1)?;
        (self.logical_at(place) >= range.start).then(|| self.blocks[place])
    }

    /// Returns the first run of unmapped blocks in a range.
    fn hole_in(&self, range: Range<u32>) -> Option<Range<u32>> {
        let (mut start, mut place) = (range.start, self.place_of(range.start));
        while let Ok(at) = place {
            start += 1;
            place = if start < range.end { self.place_of(start) } else { Err(at + 1) };
        }
        let next = place.err().filter(|place| *place < self.blocks.len());
        let end = next.map_or(range.end, |place| self.logical_at(place).min(range.end));
        (start < end).then_some(start..end)
    }

    /// Adds newly mapped blocks, which are consecutive in the file, and new indirect blocks.
    fn insert(
        &mut self,
        first: u32,
        blocks: impl ExactSizeIterator<Item = BlockNo>,
        indirect: Vec<Indirect>,
    ) {
        for new in indirect {
            let at = self.indirect.partition_point(|one| one.logical <= new.logical);
            // Indirect blocks whose ranges start at the same file block are sorted by level,
            // highest first.
            let above = self.indirect[..at].iter().rev();
            let below = above.take_while(|one| one.logical == new.logical && one.level < new.level);
            let at = at - below.count();
            self.indirect.insert(at, new);
        }
        let place = self.place_of(first).unwrap_or_else(|place| place);
        if !self.logical.is_empty() || first as usize != self.blocks.len() {
            if self.logical.is_empty() {
                self.logical = (0..self.blocks.len() as u32).collect();
            }
            self.logical.splice(place..place, first..first + blocks.len() as u32);
        }
        self.blocks.splice(place..place, blocks);
    }

    fn cut(&mut self, space: &mut MemorySpace, count: u32) {
        let kept = self.place_of(count).unwrap_or_else(|place| place);
        self.logical.truncate(kept);
        let mut run: Option<Run> = None;
        // Releasing contiguous blocks together is faster, and most blocks are contiguous.
        for block in self.blocks.drain(kept..) {
            match &mut run {
                Some(run) if run.start.0 + run.length == block.0 => run.length += 1,
                _ => release_run(space, run.replace(Run { start: block, length: 1 })),
            }
        }
        release_run(space, run);
        // Compare with the end of the mapped blocks, not with `count`. If the file has holes, an
        // indirect block for a range before `count` may no longer map any block.
        let end = self.end();
        while let Some(indirect) = self.indirect.pop_if(|indirect| indirect.logical >= end) {
            release(space, indirect.block);
        }
    }
}

fn release_run(space: &mut MemorySpace, run: Option<Run>) {
    let Some(run) = run else { return };
    // A run may span two groups if groups contain no metadata. Release the part of each group
    // separately.
    let (_, group_last) = ends(space.geometry(), space.geometry().group_of(run.start));
    let here = run.length.min(group_last + 1 - run.start.0);
    let released = space.release(Run { length: here, ..run });
    debug_assert!(released, "blocks {run:?} of a file were not in use");
    if here < run.length {
        let rest = Run { start: BlockNo(group_last + 1), length: run.length - here };
        release_run(space, Some(rest));
    }
}

#[cfg(test)]
mod tests {
    use fslab_vfs_testing::environment::seed;
    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg64;

    use super::super::tests::{geometry, indirect_blocks};
    use super::*;

    fn file_with(volume: &mut Volume) -> InodeNo {
        let request = InodeRequest { parent: InodeNo::ROOT, directory: false, top_level: false };
        volume.create(&request).ok().flatten().unwrap_or(InodeNo::ROOT)
    }

    fn volume() -> Volume {
        let geometry = geometry(4, 2048);
        let policy = (super::super::POLICIES[0].build)(&geometry, 1);
        Volume::new(MemorySpace::new(geometry, 40, 11), policy, Clustering::Smart)
    }

    /// Writes and truncates at random offsets, and compares the mapped blocks with a set. After the
    /// file is removed, all its blocks must be free.
    #[test]
    fn a_sparse_file_maps_what_was_written_and_nothing_else() {
        use std::collections::BTreeSet;
        let mut volume = volume();
        let free = volume.space().totals().blocks;
        let inode = file_with(&mut volume);
        let mut random = Pcg64::seed_from_u64(seed());
        let mut mapped: BTreeSet<u32> = BTreeSet::new();
        for step in 0..600 {
            let bits = random.random_range(1..18);
            let from = random.random_range(0..1_u32 << bits);
            let range = from..from + random.random_range(1..20);
            let missing = range.clone().filter(|block| !mapped.contains(block)).count() as u32;
            assert_eq!(volume.unmapped(inode, &range), missing, "step {step}");
            if step % 50 == 49 {
                volume.truncate(inode, from);
                mapped.split_off(&from);
            } else if mapped.len() < 3000 {
                let grown = volume.write(inode, range.clone(), true);
                assert_eq!(grown.ok(), Some(Grown::Whole), "step {step}");
                mapped.extend(range);
            }
            let dense: Vec<u32> = (0..mapped.len() as u32).collect();
            let found = volume.logical_blocks(inode).unwrap_or(&dense);
            assert!(found.iter().eq(&mapped), "step {step}");
            let all: Vec<_> = volume
                .blocks(inode)
                .iter()
                .copied()
                .chain(indirect_blocks(&volume, inode))
                .collect();
            let distinct: BTreeSet<_> = all.iter().collect();
            assert_eq!(distinct.len(), all.len(), "step {step}");
            assert_eq!(free - volume.space().totals().blocks, all.len() as u32, "step {step}");
            assert_eq!(volume.read_order(inode).len(), all.len());
        }
        volume.remove(inode);
        assert_eq!(volume.space().totals().blocks, free);
    }

    #[test]
    fn block_far_past_the_end_allocates_only_its_indirect_blocks() {
        let mut volume = volume();
        let inode = file_with(&mut volume);
        let far = 12 + 256 + 65_536 + 70_000;
        assert_eq!(volume.write(inode, far..far + 1, true).ok(), Some(Grown::Whole));
        assert_eq!((volume.blocks(inode).len(), indirect_blocks(&volume, inode).len()), (1, 3));
        assert_eq!((volume.end(inode), volume.logical_blocks(inode)), (far + 1, Some(&[far][..])));
        assert_eq!(volume.write(inode, 0..13, true).ok(), Some(Grown::Whole));
        assert_eq!((volume.blocks(inode).len(), indirect_blocks(&volume, inode).len()), (14, 4));
    }
}
