//! Errors of creating, running and reading campaigns.

use std::io;
use std::path::{Path, PathBuf};

use crate::format::Program;

/// The result of a step of a campaign.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of creating, running or reading a campaign.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The plan is invalid, or the comparison failed.
    #[error(transparent)]
    Compare(#[from] fslab_compare::Error),
    /// Samples can't be read.
    #[error(transparent)]
    Samples(#[from] fslab_report::Error),
    /// A file could not be used.
    #[error("{}: {source}", path.display())]
    File {
        /// The file or directory.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
    /// The directory of a new campaign is not empty.
    #[error("{}: it is not empty; choose a new directory for the campaign", path.display())]
    NotEmpty {
        /// The path of the directory.
        path: PathBuf,
    },
    /// A directory is not a campaign.
    #[error(
        "{}: not a campaign, because it has no campaign.json; make one with `fslab campaign new \
         PLAN {}`",
        path.display(),
        path.display()
    )]
    NoCampaign {
        /// The path of the directory.
        path: PathBuf,
    },
    /// The record of a campaign does not parse.
    #[error("{}: this is not a valid record of a campaign: {source}", path.display())]
    Damaged {
        /// The path of the record.
        path: PathBuf,
        /// The error of the parser.
        #[source]
        source: serde_json::Error,
    },
    /// A later version of fslab made the campaign.
    #[error(
        "{}: the campaign has format {format}, but this fslab supports only formats up to {}",
        path.display(),
        crate::format::FORMAT
    )]
    NewerFormat {
        /// The path of the record.
        path: PathBuf,
        /// The format of the record.
        format: u32,
    },
    /// The record or the plan of a campaign differs from the one that `campaign new` wrote.
    #[error(
        "{}: the campaign's {what} does not match its plan; make a new campaign",
        path.display()
    )]
    Inconsistent {
        /// The path of the directory.
        path: PathBuf,
        /// The part that differs.
        what: &'static str,
    },
    /// The record could not be turned into JSON.
    #[error("can't encode the campaign's record as JSON: {0}")]
    Encode(#[source] serde_json::Error),
    /// An input of the plan does not exist.
    #[error("{}: the plan reads this path, but it does not exist", path.display())]
    NoInput {
        /// The file or directory.
        path: PathBuf,
    },
    /// An input of the plan is not a file, directory or symbolic link.
    #[error(
        "{}: the plan reads this path, but it is not a file, directory or symbolic link",
        path.display()
    )]
    OddInput {
        /// The path of the input.
        path: PathBuf,
    },
    /// A path is not UTF-8, so the record can't contain it.
    #[error("{}: its path is not UTF-8; rename it", path.display())]
    NotUtf8 {
        /// The path.
        path: PathBuf,
    },
    /// The contents of a file or directory have changed since they were frozen.
    #[error(
        "{}: it has changed since the campaign was made (BLAKE3 hash {found}, recorded {frozen}); \
         restore it, or make a new campaign",
        path.display()
    )]
    Changed {
        /// The file or directory.
        path: PathBuf,
        /// The current hash.
        found: String,
        /// The frozen hash.
        frozen: String,
    },
    /// Another build of fslab made the campaign.
    #[error(
        "the campaign was made by {frozen}, but this is {found}; run that build, or allow this one \
         with --other-build"
    )]
    OtherBuild {
        /// This program.
        found: Program,
        /// The program that made the campaign.
        frozen: Program,
    },
    /// A share of a campaign is running on this host.
    #[error(
        "{}: a campaign is running on this host; use --wait to wait until it has finished",
        path.display()
    )]
    HostInUse {
        /// The path of the lock file.
        path: PathBuf,
    },
    /// The host has no directory for its lock.
    #[error(
        "this host has no directory for the lock that all its campaigns share ({tried}). Create \
         /run/lock as root, or set --lock to a file that all users of this host can read"
    )]
    NoLockPlace {
        /// The paths that were tried, with the errors of the operating system.
        tried: String,
    },
    /// The path of the host's lock is not a regular file.
    #[error(
        "{}: not a regular file, so it can't be the lock of this host; choose another file with \
         --lock",
        path.display()
    )]
    OddLock {
        /// The path.
        path: PathBuf,
    },
    /// A plan contains the path of a device.
    #[error(
        "target `{target}`: `device` is a path, but a campaign needs the name of a role here. Each \
         host maps roles to its own devices in /etc/fslab/erasable"
    )]
    DeviceByPath {
        /// The name of the target.
        target: String,
    },
    /// An in-process stack uses a file or directory, whose contents can't be frozen.
    #[error(
        "target `{target}`: `in_process` uses {named}, but a campaign can't record a hash of its \
         contents; to use an image, set `aged` in a target"
    )]
    PathInStack {
        /// The name of the target.
        target: String,
        /// The leaf with the path.
        named: String,
    },
    /// The name of a role has characters that are not allowed.
    #[error(
        "target `{target}`: `device` is `{role}`, but a role can contain only a-z, 0-9, `-` and `_`"
    )]
    OddRole {
        /// The name of the target.
        target: String,
        /// The name of the role.
        role: String,
    },
    /// This host has no device for a role.
    #[error(
        "target `{target}`: {} has no device for the role `{role}` on this host. Add the line \
         `{role} /dev/disk/by-id/NAME` there, for a device that may be erased",
        list.display()
    )]
    NoDevice {
        /// The name of the target.
        target: String,
        /// The name of the role.
        role: String,
        /// The path of the host's list.
        list: PathBuf,
    },
    /// The list of devices is not a regular file, or users other than root and the caller can write
    /// it.
    #[error("{}: must be writable only by root: {reason}", path.display())]
    UnsafeList {
        /// The path of the list.
        path: PathBuf,
        /// The reason.
        reason: &'static str,
    },
    /// A line of the list of devices does not parse.
    #[error("{}:{line}: {reason}", path.display())]
    BadList {
        /// The path of the list.
        path: PathBuf,
        /// The number of the line, from 1.
        line: usize,
        /// The reason.
        reason: &'static str,
    },
    /// A samples file belongs to another plan or seed.
    #[error("{}: these samples belong to another campaign: their {what} differs", path.display())]
    Foreign {
        /// The path of the file.
        path: PathBuf,
        /// The field that differs.
        what: &'static str,
    },
    /// No block is done yet.
    #[error(
        "{}: the campaign has no finished block (one workload on all targets in one round); run a \
         share first",
        path.display()
    )]
    NothingDone {
        /// The path of the directory.
        path: PathBuf,
    },
    /// A text contains characters that a batch script can't contain.
    #[error(
        "{what} {text:?}: a batch script can't contain control characters, quotes or backslashes"
    )]
    OddText {
        /// The kind of text.
        what: &'static str,
        /// The invalid text.
        text: String,
    },
    /// `sbatch` could not be started.
    #[error("sbatch: {source}; install Slurm's client, or run the shares here with --local")]
    NoSlurm {
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
    /// Slurm refused the job.
    #[error("sbatch failed ({status}): {message}")]
    Slurm {
        /// The exit status.
        status: std::process::ExitStatus,
        /// The standard error of `sbatch`, on one line.
        message: String,
    },
}

impl Error {
    /// Returns a function for `map_err` that adds the path to an I/O error.
    pub(crate) fn file(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File { path, source }
    }
}
