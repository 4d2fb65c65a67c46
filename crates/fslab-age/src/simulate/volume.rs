//! The simulated volume, to which the operations of a workload are applied.

use std::collections::HashMap;
use std::ops::Range;

use fslab_ext2::alloc::volume::{Grown, Volume};
use fslab_ext2::alloc::{Counts, InodeRequest, MemorySpace, Space, policy};
use fslab_ext2::{BlockNo, Geometry, GroupNo, InodeNo};
use fslab_vfs::Extent;
use serde::Serialize;

use super::{Settings, Variant};
use crate::error::{Error, Result};
use crate::profile::DAY_NS;
use crate::score::{FileLayout, FreeSpace, Sums, layout_of, pieces_of};
use crate::workload::{Operation, OperationKind};

/// Approximate number of bytes that a name needs in its directory.
const NAME_BYTES: u64 = 24;

/// A simulated file system, aged by a workload.
pub struct Simulator {
    pub(super) settings: Settings,
    pub(super) geometry: Geometry,
    pub(super) volume: Volume,
    files: HashMap<u64, SimulatedFile>,
    reserved_blocks: u32,
    /// Number of operations that failed because the volume was full.
    pub(super) no_space: u64,
    pub(super) operations: u64,
    pub(super) written: u64,
    pub(super) last_ns: u64,
    next_score_ns: u64,
    pub(super) points: Vec<Point>,
}

/// The state of a volume at the end of a day.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Point {
    /// Days since the beginning.
    pub day: u64,
    /// The layout score.
    pub score: Option<f64>,
    /// Share of blocks in use, including metadata.
    pub used: f64,
    /// Number of files with at least one block.
    pub files: u64,
    /// Number of these files whose first block is in another group than the directory's inode.
    pub split: u64,
}

/// A file or directory of the simulation.
#[derive(Clone, Copy, Debug)]
pub(super) struct SimulatedFile {
    pub inode: InodeNo,
    pub directory: u64,
    pub is_directory: bool,
    pub size: u64,
    pub modified_ns: u64,
    /// For a directory, the number of its entries.
    names: u32,
}

impl Simulator {
    /// Makes an empty volume.
    ///
    /// # Errors
    /// Fails if no such volume is possible, or if the policy does not exist.
    pub fn new(settings: Settings, variant: Variant, seed: u64) -> Result<Self> {
        let geometry = settings.geometry()?;
        let unknown = || Error::parameter(format!("there is no policy '{}'", variant.policy));
        let spec = policy(variant.policy).ok_or_else(unknown)?;
        let space = MemorySpace::new(geometry, geometry.overhead(GroupNo(1)), 11);
        let reserved_blocks =
            (f64::from(geometry.blocks) * settings.reserved.clamp(0.0, 0.5)) as u32;
        let volume = Volume::new(space, (spec.build)(&geometry, seed), variant.clustering);
        let mut simulator = Self {
            settings,
            geometry,
            volume,
            files: HashMap::new(),
            reserved_blocks,
            no_space: 0,
            operations: 0,
            written: 0,
            last_ns: 0,
            next_score_ns: 0,
            points: Vec::new(),
        };
        simulator.make(&Operation::default(), true)?;
        Ok(simulator)
    }

    /// Applies an operation. Operations that do not fit on a full volume are counted.
    ///
    /// # Errors
    /// Fails if the operation contradicts earlier ones.
    pub fn apply(&mut self, operation: &Operation) -> Result<()> {
        self.take_scores(operation.time_ns);
        self.last_ns = operation.time_ns;
        self.operations += 1;
        match operation.kind {
            OperationKind::MakeDirectory => self.make(operation, true),
            OperationKind::Create | OperationKind::Symlink => self.make(operation, false),
            OperationKind::Write => self.write(operation),
            OperationKind::Truncate => self.truncate(operation),
            OperationKind::Remove | OperationKind::RemoveDirectory => self.remove(operation),
            OperationKind::Rename => self.rename(operation),
        }
    }

    /// Records the scores that are due up to a time. If several scores are due without an operation
    /// in between, all of them are equal, so only the first and the last are recorded.
    fn take_scores(&mut self, time_ns: u64) {
        let every = u64::from(self.settings.score_every_days.max(1)).saturating_mul(DAY_NS);
        while time_ns >= self.next_score_ns && self.next_score_ns < u64::MAX {
            self.points.push(self.point(self.next_score_ns / DAY_NS));
            let last = time_ns / every * every;
            self.next_score_ns = self.next_score_ns.saturating_add(every).max(last);
        }
    }

    pub(super) fn point(&self, day: u64) -> Point {
        let sums = self.sums(|_| true);
        let usable = self.geometry.blocks.max(1);
        let used = 1.0 - f64::from(self.counts().blocks) / f64::from(usable);
        Point { day, score: sums.score(), used, files: sums.files, split: sums.split }
    }

    fn make(&mut self, operation: &Operation, is_directory: bool) -> Result<()> {
        if self.files.contains_key(&operation.file) {
            let index = self.operations.saturating_sub(1);
            return Err(Error::Operation { index, what: "it creates a file that exists already" });
        }
        let is_root = operation.file == 0;
        let parent = match self.files.get(&operation.directory) {
            Some(file) => file.inode,
            None if is_root => InodeNo::ROOT,
            None => return self.refuse(),
        };
        let top_level = operation.directory == 0;
        let request = InodeRequest { parent, directory: is_directory, top_level };
        let Some(inode) = self.volume.create(&request)? else { return self.refuse() };
        let file = SimulatedFile {
            inode,
            directory: operation.directory,
            is_directory,
            size: 0,
            modified_ns: operation.time_ns,
            names: 0,
        };
        self.files.insert(operation.file, file);
        if is_directory {
            self.map(inode, 0..1, true)?;
        }
        if is_root { Ok(()) } else { self.count_name(operation.directory, 1) }
    }

    /// Counts an operation that does not fit, which is not an error.
    fn refuse(&mut self) -> Result<()> {
        self.no_space += 1;
        Ok(())
    }

    /// Adds `change` to the number of names in a directory. A directory grows with its names, but
    /// it never shrinks.
    fn count_name(&mut self, directory: u64, change: i32) -> Result<()> {
        let block = u64::from(self.geometry.block_size.bytes_u32());
        let Some(file) = self.files.get_mut(&directory) else { return Ok(()) };
        file.names = file.names.saturating_add_signed(change);
        let inode = file.inode;
        let wanted = (u64::from(file.names) * NAME_BYTES).div_ceil(block).max(1);
        let end = self.volume.end(inode);
        if wanted > u64::from(end) {
            self.map(inode, end..end + 1, true).map(|_grown| ())
        } else {
            Ok(())
        }
    }

    fn write(&mut self, operation: &Operation) -> Result<()> {
        let Some(file) = self.files.get_mut(&operation.file) else { return self.refuse() };
        file.modified_ns = operation.time_ns;
        let (inode, end) = (file.inode, operation.offset.saturating_add(operation.length));
        if operation.length == 0 {
            return Ok(());
        }
        self.written = self.written.saturating_add(operation.length);
        if end > self.geometry.size_max() {
            return self.refuse();
        }
        let block = self.block_bytes();
        // The number of blocks in the largest possible file fits in 32 bits.
        let range = (operation.offset / block) as u32..end.div_ceil(block) as u32;
        if self.map(inode, range, end.is_multiple_of(block))? {
            self.volume.close(inode);
        }
        // The size does not include bytes that do not fit.
        let fits = end.min(u64::from(self.volume.end(inode)) * block);
        if let Some(file) = self.files.get_mut(&operation.file) {
            file.size = file.size.max(fits);
        }
        Ok(())
    }

    /// Maps the unmapped blocks in a range of a file; returns whether any were unmapped.
    fn map(&mut self, inode: InodeNo, range: Range<u32>, last_is_full: bool) -> Result<bool> {
        let missing = self.volume.unmapped(inode, &range);
        if missing == 0 {
            return Ok(false);
        }
        if self.counts().blocks < self.reserved_blocks.saturating_add(missing) {
            return self.refuse().map(|()| true);
        }
        match self.volume.write(inode, range, last_is_full)? {
            Grown::Whole => Ok(true),
            Grown::NoSpace => self.refuse().map(|()| true),
        }
    }

    fn truncate(&mut self, operation: &Operation) -> Result<()> {
        let Some(file) = self.files.get_mut(&operation.file) else { return self.refuse() };
        (file.size, file.modified_ns) = (operation.length, operation.time_ns);
        let block = u64::from(self.geometry.block_size.bytes_u32());
        let kept = operation.length.div_ceil(block).min(u64::from(u32::MAX));
        self.volume.truncate(file.inode, kept as u32);
        Ok(())
    }

    fn remove(&mut self, operation: &Operation) -> Result<()> {
        let Some(file) = self.files.remove(&operation.file) else { return self.refuse() };
        self.volume.remove(file.inode);
        if let Some(parent) = self.files.get_mut(&file.directory) {
            parent.names = parent.names.saturating_sub(1);
        }
        Ok(())
    }

    fn rename(&mut self, operation: &Operation) -> Result<()> {
        let Some(file) = self.files.get_mut(&operation.file) else { return self.refuse() };
        let old = std::mem::replace(&mut file.directory, operation.directory);
        self.count_name(operation.directory, 1)?;
        self.count_name(old, -1)
    }

    pub(super) fn counts(&self) -> Counts {
        self.volume.space().totals()
    }

    pub(super) fn block_bytes(&self) -> u64 {
        u64::from(self.geometry.block_size.bytes_u32())
    }

    /// Returns the files with these numbers, in order. Missing files are skipped.
    pub(super) fn numbered(&self, numbers: Range<u64>) -> Vec<SimulatedFile> {
        numbers.filter_map(|number| self.files.get(&number).copied()).collect()
    }

    /// Returns the distance between a file's first block and its directory's inode, in groups.
    /// `None` if the block or the directory does not exist.
    pub(super) fn groups_from_home(&self, file: &SimulatedFile) -> Option<u32> {
        let directory = self.files.get(&file.directory)?;
        let home = self.geometry.group_of_inode(directory.inode);
        let first = self.volume.blocks(file.inode).first()?;
        Some(self.geometry.group_of(*first).0.abs_diff(home.0))
    }

    /// Returns the regular files with their numbers.
    pub(super) fn files(&self) -> impl Iterator<Item = (u64, &SimulatedFile)> {
        let regular = self.files.iter().filter(|(_, file)| !file.is_directory);
        regular.map(|(number, file)| (*number, file))
    }

    /// Sums the layouts of the files for which `wanted` returns `true`.
    pub(super) fn sums(&self, wanted: impl Fn(&SimulatedFile) -> bool) -> Sums {
        let mut sums = Sums::default();
        for (_, file) in self.files().filter(|(_, file)| wanted(file)) {
            let layout = self.layout(file.inode);
            sums.add(&layout, self.is_split(file));
        }
        sums
    }

    pub(super) fn layout(&self, inode: InodeNo) -> FileLayout {
        if let Some(extents) = self.sparse_extents(inode) {
            return layout_of(&extents, self.geometry.size_max(), self.block_bytes());
        }
        let blocks = self.volume.blocks(inode);
        let breaks = blocks.windows(2).filter(|pair| pair[1].0 != pair[0].0 + 1).count() as u64;
        let at = |block: &BlockNo| self.geometry.offset_of(*block);
        FileLayout {
            blocks: blocks.len() as u64,
            breaks,
            pieces: breaks + u64::from(!blocks.is_empty()),
            first: blocks.first().map(at),
            end: blocks.last().map(|block| at(block) + self.block_bytes()),
        }
    }

    /// Returns the lengths of a file's contiguous pieces, in blocks.
    pub(super) fn pieces(&self, inode: InodeNo) -> Vec<u64> {
        if let Some(extents) = self.sparse_extents(inode) {
            return pieces_of(&extents, self.geometry.size_max(), self.block_bytes());
        }
        let pieces = self.volume.blocks(inode).chunk_by(|one, next| next.0 == one.0 + 1);
        pieces.map(|piece| piece.len() as u64).collect()
    }

    /// Returns every block of a sparse file as an extent; `None` for a file without holes.
    fn sparse_extents(&self, inode: InodeNo) -> Option<Vec<Extent>> {
        let (logical, length) = (self.volume.logical_blocks(inode)?, self.block_bytes());
        let extent = |(logical, block): (&u32, &BlockNo)| Extent {
            logical: u64::from(*logical) * length,
            physical: self.geometry.offset_of(*block),
            length,
        };
        Some(logical.iter().zip(self.volume.blocks(inode)).map(extent).collect())
    }

    /// Whether a file's first block is in another group than its directory's inode.
    pub(super) fn is_split(&self, file: &SimulatedFile) -> bool {
        self.groups_from_home(file).is_some_and(|groups| groups > 0)
    }

    /// Returns a histogram of the free space by the sizes of its runs.
    pub(super) fn free_space(&self) -> FreeSpace {
        let mut free = FreeSpace::default();
        for group in self.geometry.all_groups() {
            for run in self.volume.space().free_runs(group) {
                free.add(u64::from(run.end - run.start) * self.block_bytes());
            }
        }
        free
    }

    /// Returns the free runs of blocks in a group.
    pub(super) fn free_runs(&self, group: GroupNo) -> Vec<Range<u32>> {
        self.volume.space().free_runs(group).collect()
    }
}
