//! The records of a samples file, one JSON object a line; `docs/formats/samples.md` tells of them.
//!
//! Fields may be added: readers take absent ones as zero or unknown and leave unknown ones alone.
//! Any other change raises [`FORMAT`], and its page says what changed.

use serde::{Deserialize, Serialize};

use crate::provenance::Provenance;
use fslab_stats::{Latency, Milestone};

/// Version of the records, as the provenance says it.
pub const FORMAT: u32 = 2;

/// A line of a samples file.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
#[serde(tag = "record", rename_all = "snake_case")]
#[expect(clippy::large_enum_variant, reason = "nearly all records are samples, the largest")]
pub enum Record {
    /// What was run, where and with what: the first line, and again where a run was resumed.
    Provenance(Box<Provenance>),
    /// How a target was made.
    Target(TargetRecord),
    /// One measured phase.
    Sample(Sample),
    /// A workload's runs of one round are done on all targets.
    Block(Block),
    /// Something a reader must know.
    Note(Note),
    /// How the comparison ended; missing where it was killed.
    End(End),
}

/// How a target was made, as it was done the first time.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq)]
#[serde(default)]
pub struct TargetRecord {
    /// Its name in the plan.
    pub name: String,
    /// One line: what it is.
    pub description: String,
    /// The command that made the file system.
    pub mkfs: Option<String>,
    /// The workload that aged the image it is a copy of, where that is known: its BLAKE3 hash.
    pub aged_workload: Option<String>,
    /// The mount, as mount(8) would be told.
    pub mount: Option<String>,
    /// The command that mounted something over it.
    pub over: Option<String>,
    /// Whether the loop device bypassed the page cache for its image.
    pub loop_direct_io: Option<bool>,
    /// Share of its space that was filled before each run, in percent, as statfs told.
    pub filled_percent: Option<f64>,
    /// Bound on the memory of each run, the page cache included, in bytes.
    pub memory_limit: Option<u64>,
    /// Read-ahead of the device.
    pub read_ahead_kib: Option<u64>,
    /// Request schedulers of the device, the active one in brackets.
    pub scheduler: Option<String>,
    /// For a file system in user space: whether its process was found, so that its processor time
    /// is in the samples.
    pub daemon_found: Option<bool>,
    /// For a file system in user space: whether its requests could be counted.
    pub requests_counted: Option<bool>,
    /// Measured within the fslab process, without a kernel in between.
    pub in_process: bool,
}

/// One measured phase of one run.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq)]
#[serde(default)]
pub struct Sample {
    /// Id of the provenance it belongs to.
    pub run: String,
    /// The target.
    pub target: String,
    /// The workload's label.
    pub workload: String,
    /// The phase.
    pub phase: String,
    /// For a sweep over sizes: the size of this point.
    pub size_bytes: Option<u64>,
    /// For a sweep over threads: how many work at this point; the phase's name says it, too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threads: Option<u32>,
    /// The round, from 0.
    pub round: u32,
    /// Which place the target had in the round's order, from 0.
    pub position: u32,
    /// 0, or how often this round's block was begun before: it was cut short, or the machine did
    /// other things meanwhile. Only the last attempt counts.
    pub attempt: u32,
    /// Seed of this round and workload; the same for every target.
    pub seed: u64,
    /// Operations done.
    pub operations: u64,
    /// Bytes read or written.
    pub bytes: u64,
    /// Threads or processes that did it, where there is more than one.
    pub workers: Option<u32>,
    /// What the bytes are: a kind and its seed, or the file they come from.
    pub data: Option<String>,
    /// Space that what was written takes in the end: st_blocks of its files, in bytes.
    pub stored_bytes: Option<u64>,
    /// Wall-clock time, flushing included.
    pub elapsed_ns: u64,
    /// Of it, time spent in fsync and syncfs.
    pub flush_ns: u64,
    /// Processor time in user mode: of this process, and of the programmes the phase ran.
    pub user_ns: u64,
    /// Processor time of the kernel on their behalf.
    pub system_ns: u64,
    /// Processor time of the process that serves the file system in user space, where there is
    /// one and it was found. Not part of the two above.
    pub daemon_cpu_ns: Option<u64>,
    /// What all processors of the machine did meanwhile.
    pub machine: Machine,
    /// What the target's own block device did.
    pub device: Option<Device>,
    /// What the device did on which the image lies, for this target and for all others on it.
    pub backing: Option<Device>,
    /// Space in use on the target's own file system afterwards, its own structures included.
    pub used_bytes: Option<u64>,
    /// Requests the kernel sent to the file system in user space, where there is one and they
    /// can be counted.
    pub fuse_requests: Option<u64>,
    /// What was asked of the cache, and whether it was so.
    pub cache: Cache,
    /// What else the machine was doing, where it was enough to distort the time.
    pub contaminated: Option<String>,
    /// How long single operations took, by kind of operation.
    pub latencies: Vec<Latency>,
    /// How far the phase had come at what time.
    pub along: Vec<Milestone>,
    /// What the workload measured itself, such as the transactions a second that a program prints.
    pub metrics: Vec<OwnMetric>,
}

/// The name of a phase at a point of a sweep over threads.
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
    /// Its unit; `s` and `bytes` are shown scaled, an empty one is a plain number.
    pub unit: String,
    /// Whether more of it is better.
    pub better: Better,
}

/// Which direction of a metric is good.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Better {
    /// Times, sizes, counts.
    #[default]
    Less,
    /// Rates.
    More,
}

impl Sample {
    /// Seconds of wall-clock time.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.elapsed_ns as f64 / 1e9
    }
}

/// Time of all processors together, exact to a scheduler tick.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, PartialEq)]
#[serde(default)]
pub struct Machine {
    /// In programmes.
    pub user_ns: u64,
    /// In the kernel, its own threads included.
    pub system_ns: u64,
    /// Waiting for devices.
    pub input_output_wait_ns: u64,
    /// Taken by the hypervisor.
    pub steal_ns: u64,
    /// Bytes of files that were waiting to be written back before the phase, of all file systems.
    pub dirty_bytes_before: u64,
    /// How much the page cache grew, of all file systems; right to some hundred pages.
    pub page_cache_bytes: i64,
    /// How often a processor was slowed down because it was hot, where that is counted.
    pub throttled: Option<u64>,
}

/// Requests completed by a block device. Sectors are 512 bytes.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, PartialEq)]
#[serde(default)]
pub struct Device {
    /// Read requests.
    pub reads: u64,
    /// Read requests that were joined to another.
    pub reads_merged: u64,
    /// Sectors read.
    pub sectors_read: u64,
    /// Write requests.
    pub writes: u64,
    /// Write requests that were joined to another.
    pub writes_merged: u64,
    /// Sectors written.
    pub sectors_written: u64,
    /// Discard requests.
    pub discards: u64,
    /// Cache flushes.
    pub flushes: u64,
}

/// Whether the caches were as the phase asked.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, PartialEq)]
#[serde(default)]
pub struct Cache {
    /// What the phase asked for.
    pub asked: CacheState,
    /// Everything was unmounted and mounted before.
    pub remounted: bool,
    /// Instead, the pages of all files were dropped before, and found gone; blocks of directories
    /// may have stayed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub evicted: bool,
    /// Whether it is proven. Cold: the file systems were unmounted and mounted, no page of a file
    /// was resident when it was opened, and the device was read; or pages were dropped, files were
    /// opened, and no page was resident. Warm: the device was not read.
    pub proven: bool,
    /// Pages of the files that were resident when they were opened, where that was asked.
    pub resident_pages: Option<u64>,
    /// Pages of the device itself that were cached between unmount and mount.
    pub device_pages: Option<u64>,
    /// Why it is not proven.
    pub doubt: Option<Doubt>,
}

impl Cache {
    /// With the verdict that follows from what is known and from what the device did.
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
            // What is read besides files may be cached.
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

/// Why the state of the cache is not proven.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "snake_case")]
pub enum Doubt {
    /// The target was not unmounted and mounted before a cold phase.
    NotRemounted,
    /// Pages of its files were in memory when they were opened.
    FilesResident,
    /// Pages of its device were in memory between unmount and mount.
    DeviceResident,
    /// A cold phase read nothing from the device: what it read was in memory, or is never stored.
    DeviceNotRead,
    /// A warm phase read from the device.
    DeviceRead,
    /// The target has no device whose counters could prove anything.
    NoDevice,
    /// The pages of files were dropped, and the phase opened none: names and inodes are not proven.
    FilesOnly,
}

impl Doubt {
    /// In words.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::NotRemounted => "the target was not remounted",
            Self::FilesResident => "pages of its files were in memory",
            Self::DeviceResident => "pages of its device were in memory",
            Self::DeviceNotRead => "nothing was read from its device",
            Self::DeviceRead => "its device was read",
            Self::NoDevice => "no device of its own has counters",
            Self::FilesOnly => "only pages of files are proven to be dropped, and it opened none",
        }
    }
}

/// What a phase asks of the caches.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum CacheState {
    /// Nothing.
    #[default]
    NotAsked,
    /// Nothing of the target may be in memory.
    Cold,
    /// All that is read is in memory.
    Warm,
}

/// Something a reader must know.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct Note {
    /// What sort of thing.
    pub kind: NoteKind,
    /// The target it is about.
    pub target: Option<String>,
    /// The workload it is about.
    pub workload: Option<String>,
    /// One sentence.
    pub text: String,
}

/// What sort of thing a note says.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum NoteKind {
    /// A target was left out, because the machine lacks something.
    LeftOut,
    /// A target or workload failed; its later samples are missing.
    Failed,
    /// Anything else.
    Remark,
}

/// One workload in one round, run on every target that is left.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq)]
#[serde(default)]
pub struct Block {
    /// Id of the provenance it belongs to.
    pub run: String,
    /// The workload's label.
    pub workload: String,
    /// The round, from 0.
    pub round: u32,
    /// As in its samples.
    pub attempt: u32,
    /// What each target took, in the order in which they were run.
    pub cells: Vec<CellTime>,
}

/// What one workload took on one target, with making and ending the target.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq)]
#[serde(default)]
pub struct CellTime {
    /// The target.
    pub target: String,
    /// Wall-clock seconds of everything.
    pub seconds: f64,
    /// Whether it ended without an error.
    pub done: bool,
}

/// How a comparison ended.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct End {
    /// Why it ended.
    pub reason: EndReason,
    /// Rounds that are whole.
    pub rounds: u32,
    /// Wall-clock time of the whole comparison.
    pub elapsed_seconds: u64,
}

/// Why a comparison ended.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum EndReason {
    /// All rounds were run.
    Finished,
    /// Every interval is as narrow as the plan asks, before the most rounds were reached.
    Narrow,
    /// The next round would have passed the plan's time limit.
    TimeLimit,
    /// It was asked to stop.
    Interrupted,
}
