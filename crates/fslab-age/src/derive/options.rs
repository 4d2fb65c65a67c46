//! How a workload is made of snapshots, and the interval between two of them.

use std::num::NonZeroU64;

use super::ShortLived;

/// How a workload is made of snapshots.
#[derive(Clone, Debug)]
pub struct Options {
    /// Decides the times of removals, and files that live less than a day.
    pub seed: u64,
    /// Whether every changed file is written anew, as in the paper; else those that grew are
    /// appended to, and those that shrank are cut.
    pub rewrite_all: bool,
    /// Instead of the directories that there were: one for so many inodes each, as the paper has
    /// one for each cylinder group.
    pub inodes_per_directory: Option<NonZeroU64>,
    /// Files that live less than a day, which snapshots do not show.
    pub short_lived: Option<ShortLived>,
    /// Size of the file system that it is meant for, in bytes; 0 for that of the snapshots.
    pub volume_bytes: u64,
}

/// From one snapshot to the next, in the time of the workload.
#[derive(Clone, Copy, Debug)]
pub struct Interval {
    pub from_ns: u64,
    pub to_ns: u64,
}
