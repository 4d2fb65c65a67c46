//! Why a comparison, or one target of it, failed.

use std::io;
use std::path::{Path, PathBuf};

use fslab_sys::{loop_device, make_file_system, memory_bound, mounts};

use crate::host::HostError;

/// The result of a step of a comparison.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a comparison, or one target of it, failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The plan can't be used.
    #[error(transparent)]
    Plan(#[from] crate::plan::PlanError),
    /// Samples, or a report of them, failed.
    #[error(transparent)]
    Report(#[from] fslab_report::Error),
    /// The plan can't be read.
    #[error("plan {}: {source}", path.display())]
    UnreadablePlan {
        /// The plan.
        path: PathBuf,
        /// What the system answered.
        #[source]
        source: io::Error,
    },
    /// A file could not be used.
    #[error("{}: {source}", path.display())]
    File {
        /// The file or directory.
        path: PathBuf,
        /// What the system answered.
        #[source]
        source: io::Error,
    },
    /// A run can't be resumed as it is asked for.
    #[error("{}: {reason}", path.display())]
    NotResumable {
        /// The samples file.
        path: PathBuf,
        /// Why not.
        reason: &'static str,
    },
    /// A record could not be turned into JSON.
    #[error("writing a record: {0}")]
    Encode(#[source] serde_json::Error),
    /// A block device that is not erased.
    #[error("{}: {refusal}", path.display())]
    Device {
        /// The device, as the plan names it.
        path: PathBuf,
        /// Why not.
        refusal: crate::refusal::Refusal,
    },
    /// The pages of a file stay in memory.
    #[error(
        "{}: {pages} of its pages stay in memory, so that its directory can't be made cold; \
         leave out `cold`",
        path.display()
    )]
    NotEvicted {
        /// The file.
        path: PathBuf,
        /// How many.
        pages: u64,
    },
    /// A self-test lacks rounds.
    #[error(
        "self-test: {} and {} of {needed} rounds have both copies; {} comparisons of at least 2 \
         rounds are needed",
        found[0],
        found[1],
        comparisons
    )]
    SelfTestRounds {
        /// Comparisons that the rounds are cut into.
        comparisons: usize,
        /// Rounds with the first and the second copy, and with the first and the slowed one.
        found: [usize; 2],
        /// How many there must be.
        needed: usize,
    },
    /// The image of a target would not fit.
    #[error(
        "{}: {free} bytes are free, and an image of {needed} bytes must fit; \
         choose another --work-dir or a smaller image_size",
        directory.display()
    )]
    NoSpace {
        /// The work directory.
        directory: PathBuf,
        /// Free bytes.
        free: u64,
        /// Needed bytes.
        needed: u64,
    },
    /// A recorded image could not be unpacked.
    #[error("{}: {source}", path.display())]
    Unpack {
        /// The file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: HostError,
    },
    /// A recorded image is not of the workload that the plan asks for.
    #[error(
        "{} is not of the workload {wanted} that `aged_workload` asks for, but {}: make it anew \
         by `fslab age image make`",
        path.display(),
        found.as_ref().map_or("tells of none".to_owned(), |found| format!("of {found}"))
    )]
    OtherWorkload {
        /// The file.
        path: PathBuf,
        /// The beginning of the hash that the plan asks for.
        wanted: String,
        /// The hash that it has.
        found: Option<String>,
    },
    /// A recorded image was filled by another policy than the plan names.
    #[error(
        "{} was not aged by the policy {wanted} that `engine` names, but by {found}: make it anew \
         by `fslab age image make --policy {wanted}`",
        path.display()
    )]
    OtherPolicy {
        /// The file.
        path: PathBuf,
        /// The policy that the plan names.
        wanted: String,
        /// What the image says.
        found: String,
    },
    /// Attaching an image failed.
    #[error(transparent)]
    Loop(#[from] loop_device::Error),
    /// Making a file system failed.
    #[error(transparent)]
    Make(#[from] make_file_system::Error),
    /// Mounting or unmounting failed.
    #[error(transparent)]
    Mount(#[from] mounts::Error),
    /// A mount command could not be started.
    #[error("{program}: {source}")]
    Start {
        /// The programme.
        program: String,
        /// What starting it answered.
        #[source]
        source: io::Error,
    },
    /// A mount command ended with an error.
    #[error("{command} failed ({status}): {message}")]
    Command {
        /// The command line.
        command: String,
        /// How it ended.
        status: std::process::ExitStatus,
        /// Its standard error, on one line.
        message: String,
    },
    /// A mount command mounted nothing in time.
    #[error("{command}: nothing was mounted on {} within {seconds} s", mountpoint.display())]
    NotMounted {
        /// The command line.
        command: String,
        /// Where a mount was expected.
        mountpoint: PathBuf,
        /// How long was waited.
        seconds: u64,
    },
    /// Layers or an in-process file system could not be made.
    #[error("{spec}: {source}")]
    InProcess {
        /// What was asked for.
        spec: String,
        /// Why not.
        #[source]
        source: HostError,
    },
    /// An operation of a workload failed.
    #[error("{operation} {path}: {source}")]
    Operation {
        /// The operation.
        operation: &'static str,
        /// The path within the target.
        path: String,
        /// What it answered.
        #[source]
        source: rustix::io::Errno,
    },
    /// A file came back other than it was written.
    #[error(
        "{path}: the contents read back differ from those written \
         (CRC32C {found:#010x}, written {expected:#010x})"
    )]
    WrongContents {
        /// The path within the target.
        path: String,
        /// Checksum of what was written.
        expected: u32,
        /// Checksum of what was read.
        found: u32,
    },
    /// A listing or a file is not of the size it should have.
    #[error("{what}: {found}, expected {expected}")]
    WrongCount {
        /// What was counted.
        what: String,
        /// What it should be.
        expected: u64,
        /// What it is.
        found: u64,
    },
    /// A replay needs a trace.
    #[error("workload replay: trace = \"PATH\" is missing in the plan")]
    NoTrace,
    /// A trace can't be read, or what it found can't be made.
    #[error(transparent)]
    Trace(#[from] fslab_trace::Error),
    /// A trace does not fit into the memory that a replay may take.
    #[error(
        "{}: takes more than {limit} bytes of memory; replay one segment of it",
        path.display()
    )]
    TraceTooLarge {
        /// The trace.
        path: PathBuf,
        /// What it may take.
        limit: u64,
    },
    /// Operations of a replay came out otherwise than recorded.
    #[error("{count} operations came out otherwise than recorded; the first: {first}")]
    Diverged {
        /// How many.
        count: u64,
        /// The first of them.
        first: String,
    },
    /// Given data are too few.
    #[error(
        "{}: {found} bytes of data, and {needed} are needed; \
         give a longer file, a directory with more files, or smaller sizes",
        path.display()
    )]
    TooLittleData {
        /// The file or directory.
        path: PathBuf,
        /// Bytes it has.
        found: u64,
        /// Bytes the workload needs.
        needed: u64,
    },
    /// A workload runs programmes, and the target has no directory they could work in.
    #[error("{what} works by other processes, and this target has no directory they could reach")]
    NeedsDirectory {
        /// The workload, or the part of it.
        what: &'static str,
    },
    /// Other processes were asked for, and this programme can't start any.
    #[error("this programme has no worker processes; ask for threads")]
    NoWorkers,
    /// A worker process ended without a result.
    #[error("a worker process failed: {message}")]
    Worker {
        /// What it said.
        message: String,
    },
    /// A worker's message does not parse.
    #[error("a worker process was not understood: {0}")]
    WorkerMessage(#[source] serde_json::Error),
    /// What a target needs is not part of this fslab.
    #[error("missing: {needs}: {source}")]
    Missing {
        /// What is needed, as the plan says it.
        needs: String,
        /// What is unknown.
        #[source]
        source: HostError,
    },
    /// A target could not be filled to the share that was asked for.
    #[error("filled to {reached:.1} %, and {asked:.1} % was asked for")]
    NotFilled {
        /// Share that was asked for, in percent.
        asked: f64,
        /// Share that was reached, in percent.
        reached: f64,
    },
    /// A run could not be bounded in memory.
    #[error(transparent)]
    MemoryBound(#[from] memory_bound::Error),
    /// The run was asked to stop.
    #[error("interrupted")]
    Interrupted,
    /// A run took longer than the plan allows.
    #[error("took longer than {seconds} s (`run_limit_seconds` of the plan)")]
    RunLimit {
        /// The limit.
        seconds: u64,
    },
    /// The processors that the plan asks for can't be had.
    #[error("`processors` {wanted:?} of the plan: {source}; this process may use {allowed:?}")]
    Processors {
        /// What the plan asks for.
        wanted: Vec<usize>,
        /// What there is.
        allowed: Vec<usize>,
        /// What the kernel says.
        source: std::io::Error,
    },
    /// Every target is left out.
    #[error("no target is left to measure: {reasons}")]
    NoTargets {
        /// Why each was left out.
        reasons: String,
    },
}

impl Error {
    /// For `map_err` on what the system answers about a file.
    pub fn file(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File { path, source }
    }

    /// Whether the machine lacks something (a tool, a privilege, a kernel feature, a device), so
    /// that the target is left out rather than failed.
    #[must_use]
    pub fn is_missing_prerequisite(&self) -> bool {
        match self {
            Self::Make(make_file_system::Error::MissingTool { .. })
            | Self::NeedsDirectory { .. }
            | Self::NoWorkers
            | Self::Missing { .. }
            | Self::MemoryBound(memory_bound::Error::Unavailable { .. })
            | Self::Loop(
                loop_device::Error::Unavailable { .. } | loop_device::Error::NoneFree { .. },
            ) => true,
            Self::Mount(mounts::Error::Mount { source, .. }) => {
                matches!(*source, rustix::io::Errno::NODEV | rustix::io::Errno::PERM)
            }
            Self::Start { source, .. } => source.kind() == io::ErrorKind::NotFound,
            _ => false,
        }
    }
}
