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
    /// A program that a workload runs is not installed.
    #[error(
        "workload {workload}: the program {program} is missing; install it \
         (Debian package {package})"
    )]
    MissingProgram {
        /// The workload.
        workload: &'static str,
        /// The program.
        program: &'static str,
        /// The package that has it.
        package: &'static str,
    },
    /// The kernel has no io_uring, or forbids it.
    #[error(
        "io_uring: {source}: this kernel lacks or forbids it (sysctl kernel.io_uring_disabled); \
         set engine = \"threads\""
    )]
    NoIoUring {
        /// What the kernel answered.
        #[source]
        source: io::Error,
    },
    /// Two programs are to be compared, and they serve none of a plan's targets.
    #[error(
        "plan {plan}: no target is mounted by fslab (`layers`, `engine`, or a `mount_command` with \
         {{fslab}}), so there is nothing in which two programs could differ"
    )]
    NoServedTarget {
        /// The plan's name.
        plan: String,
    },
    /// What a command printed lacks a metric.
    #[error("metric `{name}`: {reason}")]
    NoFigure {
        /// The metric.
        name: String,
        /// Why the output lacks it.
        reason: String,
    },
    /// Something went otherwise than it must: what, in a sentence.
    #[error("{0}")]
    Failed(String),
    /// What the host was asked for could not be made.
    #[error("{what}: {source}")]
    Host {
        /// What was asked for: layers, an in-process file system, a recorded image.
        what: String,
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
    /// A workload runs programmes or hands files to the kernel, and the target has no directory.
    #[error(
        "{what} needs a directory that the kernel and other processes can reach, and this target \
         has no directory"
    )]
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
    /// A run could not be bounded in memory.
    #[error(transparent)]
    MemoryBound(#[from] memory_bound::Error),
    /// The run was asked to stop.
    #[error("interrupted")]
    Interrupted,
    /// Every target is left out.
    #[error("no target is left to measure: {reasons}")]
    NoTargets {
        /// Why each was left out.
        reasons: String,
    },
}

impl Error {
    /// For `map_err` on what the system answers about a file.
    pub fn file(path: &Path) -> impl FnOnce(io::Error) -> Self + use<> {
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
            | Self::MissingProgram { .. }
            | Self::NoIoUring { .. }
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
