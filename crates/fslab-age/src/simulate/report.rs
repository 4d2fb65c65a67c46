//! The results of a simulation.

use std::collections::BTreeSet;

use fslab_ext2::alloc::DIRECT_BLOCKS;
use fslab_ext2::alloc::volume::Asked;
use serde::Serialize;

use super::disk::Disk;
use super::volume::{Point, SimulatedFile, Simulator};
use crate::profile::DAY_NS;
use crate::score::{FreeSpace, Score, Sums};

/// The results for the hot files, which the last days of the workload changed.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Hot {
    /// The layout of the hot files.
    #[serde(flatten)]
    pub sums: Sums,
    /// Layout score of the hot files.
    pub score: Option<f64>,
    /// Total size of the hot files in bytes.
    pub bytes: u64,
    /// Number of hot files with more blocks than an inode maps directly. A policy may continue such
    /// files in another group.
    pub large: u64,
    /// Bytes of the hot files, as a share of the bytes of all files, from 0 to 1.
    pub share_of_bytes: f64,
    /// Number of hot files, as a share of the number of all files, from 0 to 1.
    pub share_of_files: f64,
    /// Modelled throughput of reading all hot files, in bytes per second.
    pub modelled_read: f64,
    /// Modelled throughput of overwriting all hot files, in bytes per second.
    pub modelled_write: f64,
}

/// The number of split files within a maximum distance from their directories.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Distant {
    /// Maximum distance in groups.
    pub groups: u32,
    /// Number of split files within this distance.
    pub files: u64,
}

/// An aged volume.
#[derive(Clone, Debug)]
pub struct Aged {
    /// Size of the volume, in bytes.
    pub volume_bytes: u64,
    /// Number of operations performed.
    pub operations: u64,
    /// Bytes written.
    pub written: u64,
    /// Simulated time in days.
    pub days: f64,
    /// Number of operations that failed at least partly because the volume was full.
    pub no_space: u64,
    /// The layout of all files.
    pub score: Score,
    /// Free space.
    pub free: FreeSpace,
    /// Share of the blocks in use, from 0 to 1.
    pub used: f64,
    /// Total size of all files in bytes.
    pub bytes: u64,
    /// The hot files.
    pub hot: Hot,
    /// Split files by distance from their directories, cumulative (slide 41 of Smith and Seltzer
    /// 1997).
    pub distant: Vec<Distant>,
    /// The score over time.
    pub points: Vec<Point>,
    /// Modelled throughput of reading all files in directory order, in bytes per second.
    pub modelled_read: f64,
    /// The name of the modelled disk.
    pub disk: &'static str,
}

impl Simulator {
    /// Returns the results of the simulation.
    #[must_use]
    pub fn finish(&mut self, disk: &'static Disk) -> Aged {
        let day = self.last_ns / DAY_NS;
        let last = self.point(day + 1);
        self.points.push(last);
        let mut score = Score::new(self.block_bytes());
        let mut files: Vec<_> = self.files().map(|(number, file)| (number, *file)).collect();
        files.sort_unstable_by_key(|(number, file)| (file.directory, *number));
        let mut before: Option<(u64, u64)> = None;
        for (_, file) in &files {
            let layout = self.layout(file.inode);
            score.add(&layout, self.is_split(file));
            let same = before.filter(|(directory, _)| *directory == file.directory);
            if let (Some((_, from)), Some(to)) = (same, layout.first) {
                score.distances.add(from, to);
            }
            before = layout.end.map(|end| (file.directory, end)).or(before);
            self.pieces(file.inode).into_iter().for_each(|blocks| score.add_piece(blocks));
        }
        let all: Vec<_> = files.iter().map(|(_, file)| *file).collect();
        Aged {
            volume_bytes: u64::from(self.geometry.blocks) * self.block_bytes(),
            operations: self.operations,
            written: self.written,
            days: self.last_ns as f64 / DAY_NS as f64,
            no_space: self.no_space,
            free: self.free_space(),
            used: last.used,
            bytes: bytes_of(&all),
            hot: self.hot(&all, disk),
            distant: self.distant(&all),
            points: std::mem::take(&mut self.points),
            modelled_read: self.throughput(&all, disk, false),
            disk: disk.name,
            score,
        }
    }

    fn distant(&self, all: &[SimulatedFile]) -> Vec<Distant> {
        let mut counts = vec![0_u64; self.geometry.groups as usize];
        for groups in all.iter().filter_map(|file| self.groups_from_home(file)) {
            if let Some(count) = counts.get_mut(groups as usize) {
                *count += 1;
            }
        }
        // Files at distance 0 are not split.
        let mut files = 0;
        let split = counts.iter().enumerate().skip(1).map(|(groups, count)| {
            files += count;
            Distant { groups: groups as u32, files }
        });
        split.collect()
    }

    fn hot(&self, all: &[SimulatedFile], disk: &Disk) -> Hot {
        let since = self.last_ns.saturating_sub(u64::from(self.settings.hot_days) * DAY_NS);
        let is_hot = |file: &SimulatedFile| file.modified_ns >= since && file.size > 0;
        let files: Vec<_> = all.iter().filter(|file| is_hot(file)).copied().collect();
        let sums = self.sums(is_hot);
        let share = |part: u64, whole: u64| part as f64 / whole.max(1) as f64;
        let bytes = bytes_of(&files);
        let stored = all.iter().filter(|file| file.size > 0).count() as u64;
        Hot {
            sums,
            score: sums.score(),
            bytes,
            large: files.iter().filter(|file| self.is_large(file)).count() as u64,
            share_of_bytes: share(bytes, bytes_of(all)),
            share_of_files: share(files.len() as u64, stored),
            modelled_read: self.throughput(&files, disk, false),
            modelled_write: self.throughput(&files, disk, true),
        }
    }

    fn is_large(&self, file: &SimulatedFile) -> bool {
        self.volume.blocks(file.inode).len() > DIRECT_BLOCKS as usize
    }

    /// Returns the modelled throughput of reading or overwriting files in the given order, in bytes
    /// per second. For each file, the inode is read first, then the blocks, with each indirect
    /// block just before its first use. A block of inodes is read only once, because it remains
    /// cached. After overwriting, it is written once.
    pub(super) fn throughput(&self, files: &[SimulatedFile], disk: &Disk, writes: bool) -> f64 {
        let mut arm = disk.arm();
        let block = self.block_bytes();
        let mut inodes = BTreeSet::new();
        for file in files {
            let inode = self.inode_offset(file);
            if inodes.insert(inode) {
                arm.read(inode, block);
            }
            let asked = self.volume.read_order(file.inode);
            let together = |one: &Asked, next: &Asked| {
                next.block.0 == one.block.0 + 1 && (!writes || one.is_indirect == next.is_indirect)
            };
            for piece in asked.chunk_by(together) {
                let at = self.geometry.offset_of(piece[0].block);
                let bytes = piece.len() as u64 * block;
                match writes && !piece[0].is_indirect {
                    true => arm.write(at, bytes),
                    false => arm.read(at, bytes),
                }
            }
        }
        if writes {
            inodes.into_iter().for_each(|inode| arm.write(inode, block));
        }
        let bytes = bytes_of(files);
        if arm.elapsed_us() == 0.0 { 0.0 } else { bytes as f64 / arm.elapsed_us() * 1e6 }
    }

    /// Returns the offset of the block that contains a file's inode, in the inode table of its
    /// group.
    fn inode_offset(&self, file: &SimulatedFile) -> u64 {
        let geometry = &self.geometry;
        let (group, bit) = (geometry.group_of_inode(file.inode), geometry.bit_of_inode(file.inode));
        let table = geometry.first_block(group).0 + geometry.head_blocks(group) + 2;
        (u64::from(table) + u64::from(bit / geometry.inodes_per_block())) * self.block_bytes()
    }
}

/// Returns the total size of files. The sum saturates, because sizes in a workload are arbitrary.
fn bytes_of(files: &[SimulatedFile]) -> u64 {
    files.iter().fold(0, |sum, file| sum.saturating_add(file.size))
}
