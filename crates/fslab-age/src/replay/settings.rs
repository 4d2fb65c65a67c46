//! The settings of a replay, and its counts.

use std::path::PathBuf;

use fslab_vfs::Credentials;
use serde::{Deserialize, Serialize};

use crate::profile::DAY_NS;

/// The content written into files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Data {
    /// Incompressible bytes that differ from file to file.
    Real,
    /// No bytes; space is allocated with fallocate.
    Fallocate,
    /// No bytes and no space; files only get their sizes.
    None,
}

/// The reaction to a full target or quota if writing everything back freed no space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WhenFull {
    /// Fail; the replay can be resumed after making space.
    Stop,
    /// Skip and count operations that do not fit.
    Skip,
}

/// The settings of a replay.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The content to write.
    pub data: Data,
    /// The reaction to a lack of space.
    pub when_full: WhenFull,
    /// The owner of all files, instead of the owners in the workload; required for callers other
    /// than root.
    pub owner: Option<Credentials>,
    /// Number of threads.
    pub threads: usize,
    /// Interval in workload time, in nanoseconds, after which everything is written back. Without
    /// it, files that live shorter than the replay takes would never be allocated.
    pub sync_every_ns: u64,
    /// The checkpoint file; without one, no checkpoints are kept.
    pub checkpoint: Option<PathBuf>,
    /// Approximate number of operations between checkpoints.
    pub checkpoint_every: u64,
    /// The identity of the workload, for the checkpoint.
    pub workload_hash: String,
    /// Interval in days after which the observer is called, in addition to the end of the workload;
    /// 0 for never.
    pub observe_every_days: u32,
}

impl Default for Settings {
    /// One thread that writes real bytes, writes everything back once per day of the workload,
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

/// The counts of a replay; they continue when it is resumed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replayed {
    /// Operations of the workload that were processed, whether done or not.
    pub operations: u64,
    /// Bytes written or allocated.
    pub bytes_written: u64,
    /// Operations that did not fit at first and were tried again alone after writing everything
    /// back.
    #[serde(default)]
    pub late: u64,
    /// Operations that did not fit: no space, no inode, a quota.
    pub no_space: u64,
    /// Operations on files that were left out earlier.
    pub left_out: u64,
    /// Operations that a killed replay had already done.
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
