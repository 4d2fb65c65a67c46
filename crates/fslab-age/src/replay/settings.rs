//! The settings of a replay, and its counts.

use std::path::PathBuf;

use fslab_vfs::Credentials;
use serde::{Deserialize, Serialize};

use crate::profile::DAY_NS;

/// The content that is written to files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Data {
    /// Incompressible bytes that differ from file to file.
    Real,
    /// No bytes are written; space is allocated with fallocate.
    Fallocate,
    /// No bytes are written and no space is allocated; only the sizes of files are set.
    None,
}

/// The reaction to a full target or quota, if a sync did not free enough space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WhenFull {
    /// Fail; the replay can be resumed after space has been freed.
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
    /// The owner of all files, instead of the owners in the workload; must be set unless the caller
    /// is root.
    pub owner: Option<Credentials>,
    /// Number of threads.
    pub threads: usize,
    /// Interval between syncs of the target, in nanoseconds of workload time. Without syncs,
    /// short-lived files would never get blocks.
    pub sync_every_ns: u64,
    /// The path of the checkpoint file; `None` for no checkpoints.
    pub checkpoint: Option<PathBuf>,
    /// Approximate number of operations between checkpoints.
    pub checkpoint_every: u64,
    /// The identity of the workload, for the checkpoint.
    pub workload_hash: String,
    /// Interval in days between calls of `Observer::day`, which is also called at the end of the
    /// workload. With 0, it is never called.
    pub observe_every_days: u32,
}

impl Default for Settings {
    /// One thread that writes real bytes, syncs once per day of the workload, stops at a full
    /// target and keeps no checkpoints.
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

/// The counts of a replay, which continue when it is resumed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replayed {
    /// Operations of the workload that were processed, including skipped ones.
    pub operations: u64,
    /// Bytes written or allocated.
    pub bytes_written: u64,
    /// Operations that did not fit at first and were retried with no other operation running, after
    /// a sync.
    #[serde(default)]
    pub late: u64,
    /// Operations that did not fit, because there was no space or inode, or because of a quota.
    pub no_space: u64,
    /// Operations on files that were skipped earlier.
    pub left_out: u64,
    /// Operations that a killed replay had already performed.
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
