//! The sequential benchmark of Smith and Seltzer's slides (1997) on a simulated volume: files of
//! one size are created one after another and then read. The module also determines after how many
//! blocks a policy continues a file in another group. All costs are modelled.

use serde::Serialize;

use super::disk::Disk;
use super::volume::{SimulatedFile, Simulator};
use crate::error::Result;
use crate::workload::{Operation, OperationKind};

/// Total size of the files of one size, in bytes.
pub(crate) const TOTAL: u64 = 32 << 20;

/// File sizes in KiB. Each is twice the previous one (slide 36). There are two additional sizes:
/// the largest one that an inode maps directly with blocks of 8 KiB (96 KiB), and one block more.
const SIZES_KIB: [u64; 13] = [16, 32, 64, 96, 104, 128, 256, 512, 1024, 2048, 4096, 8192, 16_384];

pub(crate) fn sizes() -> impl Iterator<Item = u64> {
    SIZES_KIB.iter().map(|size| size << 10)
}

/// Number of files per directory.
pub(crate) const PER_DIRECTORY: u64 = 25;

/// The first file number of the benchmark. Workloads use neither this number nor those that follow
/// it.
const FIRST_NUMBER: u64 = 1 << 62;

/// Number of blocks of the file that [`Simulator::first_switch`] creates; more than an inode maps
/// directly.
const FILE_BLOCKS: u64 = 64;

/// The results for files of one size.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct BySize {
    /// Size of each file in bytes.
    pub size_bytes: u64,
    /// Modelled throughput of creating these files, in bytes per second.
    pub modelled_create: f64,
    /// Modelled throughput of reading these files, in bytes per second.
    pub modelled_read: f64,
    /// The layout score of these files.
    pub score: Option<f64>,
}

/// The point in a file at which a policy leaves the group of the file's first block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct FirstSwitch {
    /// Number of blocks before that point, or all blocks of the file if the policy does not switch.
    pub blocks: u64,
    /// The size of these blocks in bytes.
    pub bytes: u64,
    /// Whether the first block is in the group of the file's directory.
    pub begins_at_home: bool,
    /// Whether the policy switches groups within the first 64 blocks.
    pub leaves: bool,
}

impl Simulator {
    /// For each size, creates and reads files with a total of 32 MiB, then removes them.
    ///
    /// # Errors
    /// Fails if the policy returns an error. A full volume is not an error; the results then cover
    /// the files that fit.
    pub fn sequential(&mut self, disk: &Disk) -> Result<Vec<BySize>> {
        sizes()
            .map(|size| {
                self.with_files(TOTAL / size, size, |simulator, files| BySize {
                    size_bytes: size,
                    modelled_create: simulator.throughput(files, disk, true),
                    modelled_read: simulator.throughput(files, disk, false),
                    score: simulator.score_of(files),
                })
            })
            .collect()
    }

    /// Creates a file and determines after how many blocks the policy switches to another group.
    ///
    /// # Errors
    /// Fails if the policy returns an error.
    pub fn first_switch(&mut self) -> Result<FirstSwitch> {
        let block = self.block_bytes();
        self.with_files(1, FILE_BLOCKS * block, |simulator, files| {
            let file = &files[0];
            let groups: Vec<_> = simulator
                .volume
                .blocks(file.inode)
                .iter()
                .map(|block| simulator.geometry.group_of(*block))
                .collect();
            let stays = groups.iter().take_while(|group| Some(*group) == groups.first());
            let blocks = stays.count() as u64;
            FirstSwitch {
                blocks,
                bytes: blocks * block,
                begins_at_home: !simulator.is_split(file),
                leaves: blocks < groups.len() as u64,
            }
        })
    }

    /// Creates `count` files of `size` bytes in new directories, calls `work` with them, and
    /// removes them.
    fn with_files<T>(
        &mut self,
        count: u64,
        size: u64,
        work: impl FnOnce(&Self, &[SimulatedFile]) -> T,
    ) -> Result<T> {
        let directory = |file: u64| FIRST_NUMBER + (1 << 32) + file / PER_DIRECTORY;
        let of = |kind, file, directory, length| Operation {
            time_ns: self.last_ns,
            kind,
            file,
            directory,
            length,
            ..Operation::default()
        };
        let mut making = Vec::new();
        for number in 0..count {
            let (file, home) = (FIRST_NUMBER + number, directory(number));
            if number % PER_DIRECTORY == 0 {
                making.push(of(OperationKind::MakeDirectory, home, 0, 0));
            }
            making.push(of(OperationKind::Create, file, home, 0));
            making.push(of(OperationKind::Write, file, home, size));
        }
        let removing = making.iter().rev().filter(|one| one.kind.makes());
        let removing: Vec<Operation> =
            removing.map(|one| of(OperationKind::Remove, one.file, one.directory, 0)).collect();
        let counts = (self.operations, self.written, self.no_space);
        making.iter().try_for_each(|operation| self.apply(operation))?;
        let done = work(self, &self.numbered(FIRST_NUMBER..FIRST_NUMBER + count));
        removing.iter().try_for_each(|operation| self.apply(operation))?;
        (self.operations, self.written, self.no_space) = counts;
        Ok(done)
    }

    fn score_of(&self, files: &[SimulatedFile]) -> Option<f64> {
        let mut sums = crate::score::Sums::default();
        files.iter().for_each(|file| sums.add(&self.layout(file.inode), self.is_split(file)));
        sums.score()
    }
}
