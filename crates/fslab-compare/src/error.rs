//! Errors of a comparison or of one target.

use std::io;
use std::path::{Path, PathBuf};

use fslab_sys::{loop_device, make_file_system, memory_bound, mounts};

use crate::host::HostError;

/// The result of an operation of a comparison.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of a comparison or of one target.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The plan is invalid.
    #[error(transparent)]
    Plan(#[from] crate::plan::PlanError),
    /// Reading or writing samples, or making a report of them, failed.
    #[error(transparent)]
    Report(#[from] fslab_report::Error),
    /// The plan can't be read.
    #[error("plan {}: {source}", path.display())]
    UnreadablePlan {
        /// The plan.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// A file could not be used.
    #[error("{}: {source}", path.display())]
    File {
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// A run can't be resumed as requested.
    #[error("{}: this run can't be resumed: {reason}", path.display())]
    NotResumable {
        /// The samples file.
        path: PathBuf,
        /// The reason.
        reason: &'static str,
    },
    /// A record could not be encoded as JSON.
    #[error("can't encode a message between fslab and a worker process: {0}")]
    Encode(#[source] serde_json::Error),
    /// A block device must not be erased.
    #[error("{}: {refusal}", path.display())]
    Device {
        /// The device, as written in the plan.
        path: PathBuf,
        /// The reason.
        refusal: crate::refusal::Refusal,
    },
    /// The image of a target does not fit into the work directory.
    #[error(
        "{}: {free} bytes are free, but an image of {needed} bytes must fit; choose another \
         --work-dir or a smaller image_size",
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
        /// The program.
        program: String,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// A command failed: a mount command, or one that a workload runs.
    #[error("{command} failed ({status}): {message}")]
    Command {
        /// The command line.
        command: String,
        /// Its exit status.
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
        /// The Debian package that contains it.
        package: &'static str,
    },
    /// A recording of phases is not possible.
    #[error("--record {kind}: {reason}")]
    Recording {
        /// The recording.
        kind: fslab_report::Recording,
        /// The reason.
        reason: String,
    },
    /// The kernel has no io_uring, or forbids it.
    #[error(
        "io_uring: {source}: this kernel lacks or forbids it (sysctl kernel.io_uring_disabled); \
         set engine = \"threads\""
    )]
    NoIoUring {
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// Two programs are to be compared, but fslab mounts none of the plan's targets.
    #[error(
        "plan {plan}: two fslab programs can't be compared, because fslab mounts none of the \
         targets; use `layers`, `engine`, or a `mount_command` with {{fslab}}"
    )]
    NoServedTarget {
        /// The plan's name.
        plan: String,
    },
    /// The output of a command lacks a metric.
    #[error("metric `{name}`: {reason}")]
    NoFigure {
        /// The metric.
        name: String,
        /// The reason why the output lacks it.
        reason: String,
    },
    /// Any other failure, described by one sentence.
    #[error("{0}")]
    Failed(String),
    /// The host could not make layers, an in-process file system or a recorded image.
    #[error("{what}: {source}")]
    Host {
        /// The requested thing: layers, an in-process file system or a recorded image.
        what: String,
        /// The host's error.
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
        /// The error that the operation returned.
        #[source]
        source: rustix::io::Errno,
    },
    /// The content of a file differs from the written data.
    #[error(
        "{path}: the file's content differs from the written data \
         (CRC32C {found:#010x}, written {expected:#010x})"
    )]
    WrongContents {
        /// The path within the target.
        path: String,
        /// Checksum of the written content.
        expected: u32,
        /// Checksum of the content that was read.
        found: u32,
    },
    /// A listing or a file has the wrong size.
    #[error("{what}: {found}, expected {expected}")]
    WrongCount {
        /// The thing that was counted.
        what: String,
        /// The expected count.
        expected: u64,
        /// The actual count.
        found: u64,
    },
    /// A replay needs a trace.
    #[error("workload replay: trace = \"PATH\" is missing in the plan")]
    NoTrace,
    /// A trace can't be read, or the files it needs can't be made.
    #[error(transparent)]
    Trace(#[from] fslab_trace::Error),
    /// The input data of a workload are too short.
    #[error(
        "{}: {found} bytes of data, but {needed} are needed; use a longer file, a directory with \
         more files, or smaller sizes",
        path.display()
    )]
    TooLittleData {
        /// The file or directory.
        path: PathBuf,
        /// Bytes found.
        found: u64,
        /// Bytes the workload needs.
        needed: u64,
    },
    /// A workload runs programs or hands files to the kernel, but the target has no directory.
    #[error(
        "{what} needs a directory that the kernel and other processes can reach, but this target \
         has no directory"
    )]
    NeedsDirectory {
        /// The workload or a part of it.
        what: &'static str,
    },
    /// Worker processes were requested, but this program can't start any.
    #[error("this program can't start worker processes; use threads")]
    NoWorkers,
    /// A worker process exited without a result.
    #[error("a worker process failed: {message}")]
    Worker {
        /// The worker's error message.
        message: String,
    },
    /// A worker's message does not parse.
    #[error("can't parse a message of a worker process: {0}")]
    WorkerMessage(#[source] serde_json::Error),
    /// This build of fslab lacks something that a target needs.
    #[error("the target needs {needs}, which is missing: {source}")]
    Missing {
        /// The requirement, as written in the plan.
        needs: String,
        /// The host's error.
        #[source]
        source: HostError,
    },
    /// The memory of a run could not be limited.
    #[error(transparent)]
    MemoryBound(#[from] memory_bound::Error),
    /// The run was interrupted.
    #[error("interrupted")]
    Interrupted,
    /// No target could be made.
    #[error("no target could be made: {reasons}")]
    NoTargets {
        /// The reason for each target.
        reasons: String,
    },
}

impl Error {
    /// Returns a function for `map_err` that adds the path of a file to a system error.
    pub fn file(path: &Path) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self::File { path, source }
    }

    /// Whether the machine lacks something (a tool, a privilege, a kernel feature, a device). A
    /// target with such an error is reported as skipped, not as failed.
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
