//! How a replay is done, and what it counts.

use std::path::PathBuf;

use fslab_vfs::Credentials;
use serde::{Deserialize, Serialize};

use crate::profile::DAY_NS;

/// What is written into files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Data {
    /// Bytes that do not compress, other ones for each file.
    Real,
    /// Nothing: space is reserved by fallocate.
    Fallocate,
    /// Nothing: files get their sizes and no space.
    None,
}

/// What to do when the target is full, or a quota is reached, and writing everything back made no
/// room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WhenFull {
    /// End with an error; after making room, the replay can go on.
    Stop,
    /// Leave out what does not fit, count it and go on.
    Skip,
}

/// How a replay is done.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What is written.
    pub data: Data,
    /// What to do when there is no space.
    pub when_full: WhenFull,
    /// In whose name, instead of the owners of the workload; whoever is not root must say.
    pub owner: Option<Credentials>,
    /// Threads.
    pub threads: usize,
    /// Everything is written back whenever so much time of the workload has passed, in
    /// nanoseconds: without, files that live shorter than a replay takes would get no place.
    pub sync_every_ns: u64,
    /// Where to keep checkpoints; none are kept without.
    pub checkpoint: Option<PathBuf>,
    /// Operations from one checkpoint to the next, about.
    pub checkpoint_every: u64,
    /// The identity of the workload, for the checkpoint.
    pub workload_hash: String,
    /// The observer is called at the end of every so many days and of the workload; 0 for never.
    pub observe_every_days: u32,
}

impl Default for Settings {
    /// One thread that writes real bytes, writes everything back once in a day of the workload,
    /// stops at a full target and keeps no checkpoints.
    fn default() -> Self {
        Self {
            data: Data::Real,
            when_full: WhenFull::Stop,
            owner: None,
            threads: 1,
            sync_every_ns: DAY_NS,
            checkpoint: None,
            checkpoint_every: u64::MAX / 4,
            workload_hash: String::new(),
            observe_every_days: 0,
        }
    }
}

/// What a replay has done; the counts go on over a resumption.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replayed {
    /// Operations of the workload that were taken, done or not.
    pub operations: u64,
    /// Bytes written, or reserved.
    pub bytes_written: u64,
    /// Operations that did not fit until everything was written back and other threads waited.
    #[serde(default)]
    pub late: u64,
    /// Operations that did not fit: no space, no inode, a quota.
    pub no_space: u64,
    /// Operations on what an earlier one left out.
    pub left_out: u64,
    /// Operations that a killed replay had done already.
    pub repeated: u64,
}

impl Replayed {
    pub(super) fn add(&mut self, other: &Self) {
        self.operations += other.operations;
        self.bytes_written += other.bytes_written;
        self.late += other.late;
        self.no_space += other.no_space;
        self.left_out += other.left_out;
        self.repeated += other.repeated;
    }
}
