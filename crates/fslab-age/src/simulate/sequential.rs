//! The slides' sequential benchmark on a simulated volume: files of one size, created one after the
//! other, then read; and where the policy puts the blocks of one file. What it costs is modelled.

use serde::Serialize;

use super::disk::Disk;
use super::volume::{SimulatedFile, Simulator};
use crate::error::Result;
use crate::workload::{Operation, OperationKind};

/// Bytes of all files of one size.
pub(crate) const TOTAL: u64 = 32 << 20;

/// Files of one size, doubling: slide 36. Between them, the largest that an inode of 8 KiB blocks
/// maps itself, 96 KiB, and one of a block more.
const SIZES_KIB: [u64; 13] = [16, 32, 64, 96, 104, 128, 256, 512, 1024, 2048, 4096, 8192, 16_384];

/// Bytes of the files, one size after the other.
pub(crate) fn sizes() -> impl Iterator<Item = u64> {
    SIZES_KIB.iter().map(|size| size << 10)
}

/// Files of a directory.
pub(crate) const PER_DIRECTORY: u64 = 25;

/// Numbers from here on are no workload's.
const FIRST_NUMBER: u64 = 1 << 62;

/// Blocks of the file whose places are told: more than an inode maps itself.
const FILE_BLOCKS: u64 = 64;

/// Files of one size.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct BySize {
    /// Bytes of each file.
    pub size_bytes: u64,
    /// Modelled: creating them, in bytes a second.
    pub modelled_create: f64,
    /// Modelled: reading them, in bytes a second.
    pub modelled_read: f64,
    /// Their layout score.
    pub score: Option<f64>,
}

/// Where a policy leaves the group of a file's first block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct FirstSwitch {
    /// Blocks before it leaves it; all blocks of the file where it does not.
    pub blocks: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Whether the first block is in the group of the file's directory.
    pub begins_at_home: bool,
    /// Whether it leaves at all within the first 64 blocks.
    pub leaves: bool,
}

impl Simulator {
    /// Creates and reads 32 MiB of files of each size, and removes them again.
    ///
    /// # Errors
    /// Those of the policy; a full volume is none, and its figures are those of what fitted.
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

    /// Where the blocks of a new file go.
    ///
    /// # Errors
    /// Those of the policy.
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

    /// Does something with files of a size in directories of their own, which are gone after it.
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
