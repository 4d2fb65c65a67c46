//! The records of a samples file, one JSON object per line. `docs/formats/samples.md` describes
//! them.
//!
//! Fields may be added without a new version: readers treat missing fields as zero or unknown, and
//! ignore unknown ones. Any other change increases [`FORMAT`] and is described on that page.

use serde::{Deserialize, Serialize};

use crate::provenance::Provenance;
use fslab_stats::{Latency, Milestone};

/// The version of the records, stored in the provenance.
pub const FORMAT: u32 = 2;

/// A line of a samples file.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
#[serde(tag = "record", rename_all = "snake_case")]
#[expect(clippy::large_enum_variant, reason = "nearly all records are samples, the largest")]
pub enum Record {
    /// The plan, the machine and the tools. It is the first line, and is repeated when a run is
    /// resumed.
    Provenance(Box<Provenance>),
    /// The way in which a target was made.
    Target(TargetRecord),
    /// One measured phase.
    Sample(Sample),
    /// The end of a block: a workload has run on all targets in one round.
    Block(Block),
    /// A fact that a reader of the report must know.
    Note(Note),
    /// The end of the comparison; missing if it was killed.
    End(End),
}

/// A description of how a target was made.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq)]
#[serde(default)]
pub struct TargetRecord {
    /// Its name in the plan.
    pub name: String,
    /// A description of one line.
    pub description: String,
    /// The command that made the file system.
    pub mkfs: Option<String>,
    /// The BLAKE3 hash of the workload that aged the copied image, if it is known.
    pub aged_workload: Option<String>,
    /// Size in bytes of the recorded image that each run copied; `None` if each run made a new
    /// file system.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub copied_bytes: Option<u64>,
    /// The mount, in the form of a mount(8) command.
    pub mount: Option<String>,
    /// The command that mounted something over the file system.
    pub over: Option<String>,
    /// Whether the loop device bypassed the page cache for its image.
    pub loop_direct_io: Option<bool>,
    /// The share of its space that was filled before each run, in percent, as statfs reported it.
    pub filled_percent: Option<f64>,
    /// The limit of each run's memory in bytes, including the page cache.
    pub memory_limit: Option<u64>,
    /// The read-ahead of the device in KiB.
    pub read_ahead_kib: Option<u64>,
    /// The request schedulers of the device, with the active one in brackets.
    pub scheduler: Option<String>,
    /// For a file system in user space: whether its process was found. If so, the samples contain
    /// its processor time.
    pub daemon_found: Option<bool>,
    /// For a file system in user space: whether its requests could be counted.
    pub requests_counted: Option<bool>,
    /// Whether it was measured within the fslab process, without a kernel in between.
    pub in_process: bool,
}

/// One measured phase of one run.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq)]
#[serde(default)]
pub struct Sample {
    /// The identifier of its provenance.
    pub run: String,
    /// The target.
    pub target: String,
    /// The workload's label.
    pub workload: String,
    /// The phase.
    pub phase: String,
    /// The size of this point in a sweep over sizes.
    pub size_bytes: Option<u64>,
    /// The number of threads at this point of a sweep over threads. The phase's name contains it
    /// too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threads: Option<u32>,
    /// The round, from 0.
    pub round: u32,
    /// The target's position in the round's order, from 0.
    pub position: u32,
    /// The number of earlier attempts of this round's block, which were interrupted or disturbed.
    /// Reports use only the last attempt.
    pub attempt: u32,
    /// Seed of this round and workload; the same for every target.
    pub seed: u64,
    /// Number of operations done.
    pub operations: u64,
    /// Number of bytes read or written.
    pub bytes: u64,
    /// Number of threads or processes that did the work, if there is more than one.
    pub workers: Option<u32>,
    /// A description of the written data: their kind and seed, or the file that they come from.
    pub data: Option<String>,
    /// Space that the written files occupy at the end: the sum of their `st_blocks`, in bytes.
    pub stored_bytes: Option<u64>,
    /// Wall-clock time, including flushing.
    pub elapsed_ns: u64,
    /// The part of `elapsed_ns` spent in fsync and syncfs.
    pub flush_ns: u64,
    /// Processor time in user mode of this process and of the programs that the phase ran.
    pub user_ns: u64,
    /// Processor time of the kernel on behalf of the same processes.
    pub system_ns: u64,
    /// Processor time of the process that serves the file system in user space, if there is one and
    /// it was found. It is not part of `user_ns` and `system_ns`.
    pub daemon_cpu_ns: Option<u64>,
    /// The time of all processors of the machine during the phase.
    pub machine: Machine,
    /// The requests of the target's own block device.
    pub device: Option<Device>,
    /// The requests of the device that contains the image, for this target and all other users.
    pub backing: Option<Device>,
    /// Space in use on the target's own file system after the phase, in bytes, including metadata.
    pub used_bytes: Option<u64>,
    /// Requests that the kernel sent to the file system in user space, if there is one and they can
    /// be counted.
    pub fuse_requests: Option<u64>,
    /// The same requests by kind. Empty if they can't be counted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub requests: Vec<RequestCount>,
    /// The times of threads by kind. Kinds that neither ran nor waited for a processor are left
    /// out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub thread_times: Vec<ThreadTimes>,
    /// The requested state of the cache, and whether it was proven.
    pub cache: Cache,
    /// The interference during the phase, if it was large enough to distort the time.
    pub contaminated: Option<String>,
    /// The durations of single operations, by kind of operation.
    pub latencies: Vec<Latency>,
    /// The progress of the phase over time.
    pub along: Vec<Milestone>,
    /// Figures that the workload measured itself, such as the transactions per second printed by a
    /// program.
    pub metrics: Vec<OwnMetric>,
}

/// The number of requests of one kind to a file system in user space.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct RequestCount {
    /// The name of the kind in the FUSE protocol, in lower case, such as `lookup`.
    pub kind: String,
    /// The number of requests.
    pub count: u64,
}

/// The times of the threads of one kind during a phase.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct ThreadTimes {
    /// `workload` (the thread that runs the phase), `workers` (other threads of its process),
    /// `programs` (those that the phase ran), `daemon NAME` or `kernel NAME`. NAME is the name of
    /// the threads, without numbers.
    pub kind: String,
    /// Number of threads that ran and have not ended, at least 1.
    pub threads: u32,
    /// Time on processors.
    pub running_ns: u64,
    /// Time in which threads were ready to run and waited for a processor. It lacks threads that
    /// ended during the phase, and programs.
    pub queued_ns: u64,
}

/// Returns the name of a phase at a point of a sweep over threads.
#[must_use]
pub fn of_threads(phase: &str, threads: u32) -> String {
    let plural = if threads == 1 { "" } else { "s" };
    format!("{phase}, {threads} thread{plural}")
}

/// A figure that a workload measured itself.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq)]
#[serde(default)]
pub struct OwnMetric {
    /// Its name.
    pub name: String,
    /// The figure.
    pub value: f64,
    /// Its unit. Figures in `s` or `bytes` are shown with a suitable prefix. An empty unit means a
    /// plain number.
    pub unit: String,
    /// The direction that is better.
    pub better: Better,
}

/// The better direction of a metric.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Better {
    /// Less is better, as for times, sizes and counts.
    #[default]
    Less,
    /// More is better, as for rates.
    More,
}

impl Sample {
    /// Returns the wall-clock time in seconds.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.elapsed_ns as f64 / 1e9
    }
}

/// The time of all processors together, with the precision of a scheduler tick.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, PartialEq)]
#[serde(default)]
pub struct Machine {
    /// Time in programs.
    pub user_ns: u64,
    /// Time in the kernel, including its own threads.
    pub system_ns: u64,
    /// Time spent waiting for devices.
    pub input_output_wait_ns: u64,
    /// Time taken by the hypervisor.
    pub steal_ns: u64,
    /// Bytes waiting to be written back before the phase, on all file systems.
    pub dirty_bytes_before: u64,
    /// The growth of the page cache in bytes, on all file systems. It is accurate to some hundred
    /// pages.
    pub page_cache_bytes: i64,
    /// The number of times that processors were throttled because of heat, if it is counted.
    pub throttled: Option<u64>,
}

/// Requests completed by a block device. Sectors are 512 bytes.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, PartialEq)]
#[serde(default)]
pub struct Device {
    /// Read requests.
    pub reads: u64,
    /// Read requests that were merged with another.
    pub reads_merged: u64,
    /// Sectors read.
    pub sectors_read: u64,
    /// Write requests.
    pub writes: u64,
    /// Write requests that were merged with another.
    pub writes_merged: u64,
    /// Sectors written.
    pub sectors_written: u64,
    /// Milliseconds that the read requests took in total.
    pub read_ms: u64,
    /// Milliseconds that the write requests took in total.
    pub write_ms: u64,
    /// Milliseconds during which the device had at least one request; exact to a scheduler tick.
    pub busy_ms: u64,
    /// Discard requests.
    pub discards: u64,
    /// Cache flushes.
    pub flushes: u64,
}

/// Whether the caches were in the requested state.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, PartialEq)]
#[serde(default)]
pub struct Cache {
    /// The requested state.
    pub asked: CacheState,
    /// Whether the target was unmounted and mounted before the phase.
    pub remounted: bool,
    /// Whether the pages of all files were dropped before the phase, instead of a remount, and none
    /// was left. Blocks of directories may still be cached.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub evicted: bool,
    /// Whether the state is proven. A cold state is proven in one of two ways. The first has four
    /// conditions: there was a remount, no page of the device was cached, no page of a file was
    /// resident when opened, and the device was read. In the second, pages were dropped, files were
    /// opened, and none of their pages was resident. A warm state is proven if the device was not
    /// read.
    pub proven: bool,
    /// Pages of the files that were resident when they were opened, if this was queried.
    pub resident_pages: Option<u64>,
    /// Pages of the device itself that were cached between the unmount and the mount.
    pub device_pages: Option<u64>,
    /// The reason why the state is not proven.
    pub doubt: Option<Doubt>,
}

impl Cache {
    /// Returns a copy with `proven` and `doubt` set, which follow from the other fields and from
    /// the device's requests.
    #[must_use]
    pub fn judged(self, device: Option<Device>) -> Self {
        let doubt = match self.asked {
            CacheState::NotAsked => None,
            CacheState::Cold => self.doubt_that_cold(device),
            CacheState::Warm => match device {
                None => Some(Doubt::NoDevice),
                Some(device) if device.sectors_read > 0 => Some(Doubt::DeviceRead),
                Some(_) => None,
            },
        };
        Self { proven: doubt.is_none() && self.asked != CacheState::NotAsked, doubt, ..self }
    }

    fn doubt_that_cold(&self, device: Option<Device>) -> Option<Doubt> {
        match device {
            // Data other than file contents may still be cached.
            _ if self.evicted && self.resident_pages.is_none() => Some(Doubt::FilesOnly),
            _ if self.evicted && self.resident_pages == Some(0) => None,
            _ if !self.remounted && !self.evicted => Some(Doubt::NotRemounted),
            _ if self.resident_pages.unwrap_or(0) > 0 => Some(Doubt::FilesResident),
            _ if self.device_pages.unwrap_or(0) > 0 => Some(Doubt::DeviceResident),
            None => Some(Doubt::NoDevice),
            Some(device) if device.sectors_read == 0 => Some(Doubt::DeviceNotRead),
            Some(_) => None,
        }
    }
}

/// A reason why the state of the cache is not proven.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "snake_case")]
pub enum Doubt {
    /// The target was not unmounted and mounted before a cold phase.
    NotRemounted,
    /// Pages of its files were in memory when they were opened.
    FilesResident,
    /// Pages of its device were in memory between unmount and mount.
    DeviceResident,
    /// A cold phase read nothing from the device: its data were in memory, or are never stored.
    DeviceNotRead,
    /// A warm phase read from the device.
    DeviceRead,
    /// The target has no device whose counters could prove anything.
    NoDevice,
    /// The pages of files were dropped, but the phase opened no file. Names and inodes may still be
    /// cached.
    FilesOnly,
}

impl Doubt {
    /// Returns the reason in words.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::NotRemounted => "the target was not remounted",
            Self::FilesResident => "pages of its files were in memory",
            Self::DeviceResident => "pages of its device were in memory",
            Self::DeviceNotRead => "nothing was read from its device",
            Self::DeviceRead => "its device was read",
            Self::NoDevice => "it has no device of its own with counters",
            Self::FilesOnly => {
                "only pages of files are proven to be dropped, and the phase opened no files"
            }
        }
    }
}

/// The state of the caches that a phase requests.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum CacheState {
    /// No state is requested.
    #[default]
    NotAsked,
    /// No data of the target may be in memory.
    Cold,
    /// All data to be read are in memory.
    Warm,
}

/// A fact that a reader of the report must know.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct Note {
    /// The kind of fact.
    pub kind: NoteKind,
    /// The target that it concerns.
    pub target: Option<String>,
    /// The workload that it concerns.
    pub workload: Option<String>,
    /// The fact, in one sentence.
    pub text: String,
}

/// The kind of a note.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum NoteKind {
    /// A target was skipped, because the machine lacks something.
    LeftOut,
    /// A target or workload failed; its later samples are missing.
    Failed,
    /// Anything else.
    Remark,
}

/// One workload in one round, run on every remaining target.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq)]
#[serde(default)]
pub struct Block {
    /// The identifier of its provenance.
    pub run: String,
    /// The workload's label.
    pub workload: String,
    /// The round, from 0.
    pub round: u32,
    /// The attempt, as in its samples.
    pub attempt: u32,
    /// The times of the targets, in the order of their runs.
    pub cells: Vec<CellTime>,
}

/// The time of one workload on one target, including making and removing the target.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq)]
#[serde(default)]
pub struct CellTime {
    /// The target.
    pub target: String,
    /// Wall-clock seconds in total.
    pub seconds: f64,
    /// Whether the workload ended without an error.
    pub done: bool,
}

/// The end of a comparison.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct End {
    /// The reason.
    pub reason: EndReason,
    /// Number of complete rounds.
    pub rounds: u32,
    /// Wall-clock time of the whole comparison.
    pub elapsed_seconds: u64,
}

/// The reason why a comparison ended.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum EndReason {
    /// All rounds were run.
    Finished,
    /// Every interval was as narrow as the plan asks, before the maximum number of rounds.
    Narrow,
    /// The next round would have exceeded the plan's time limit.
    TimeLimit,
    /// The run was interrupted.
    Interrupted,
}
