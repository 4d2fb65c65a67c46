//! Why a campaign can't be made, run or read.

use std::io;
use std::path::{Path, PathBuf};

use crate::format::Program;

/// The result of a step of a campaign.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a campaign can't be made, run or read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The plan, or the comparison, failed.
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
        /// What the system answered.
        #[source]
        source: io::Error,
    },
    /// A directory that is to be a campaign's holds something.
    #[error("{}: it is not empty; name a new directory for the campaign", path.display())]
    NotEmpty {
        /// The directory.
        path: PathBuf,
    },
    /// A directory is no campaign's.
    #[error(
        "{}: no campaign, because it has no campaign.json; make one with \
         `fslab campaign new PLAN {}`",
        path.display(),
        path.display()
    )]
    NoCampaign {
        /// The directory.
        path: PathBuf,
    },
    /// The record of a campaign does not parse.
    #[error("{}: not the record of a campaign: {source}", path.display())]
    Damaged {
        /// The record.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: serde_json::Error,
    },
    /// A later fslab made the campaign.
    #[error(
        "{}: the campaign has format {format}, this fslab knows up to {}",
        path.display(),
        crate::format::FORMAT
    )]
    NewerFormat {
        /// The record.
        path: PathBuf,
        /// The format it has.
        format: u32,
    },
    /// The record or the plan of a campaign is not what `campaign new` wrote.
    #[error("{}: the campaign's {what} does not fit its plan; make a new campaign", path.display())]
    Inconsistent {
        /// The directory.
        path: PathBuf,
        /// What does not fit.
        what: &'static str,
    },
    /// The record could not be turned into JSON.
    #[error("writing a record: {0}")]
    Encode(#[source] serde_json::Error),
    /// The plan reads a file that is not there.
    #[error("{}: the plan reads it, and it is not there", path.display())]
    NoInput {
        /// The file or directory.
        path: PathBuf,
    },
    /// The plan reads something that has no contents of its own.
    #[error("{}: the plan reads it, and it is no file, directory or symbolic link", path.display())]
    OddInput {
        /// What it reads.
        path: PathBuf,
    },
    /// A path is not UTF-8, so that the record can't hold it.
    #[error("{}: its path is no UTF-8; rename it", path.display())]
    NotUtf8 {
        /// The path.
        path: PathBuf,
    },
    /// The contents of a file or directory are no longer those that were frozen.
    #[error(
        "{}: it has changed since the campaign was made (BLAKE3 {found}, frozen {frozen}); restore \
         it, or make a new campaign",
        path.display()
    )]
    Changed {
        /// The file or directory.
        path: PathBuf,
        /// Its hash.
        found: String,
        /// The frozen hash.
        frozen: String,
    },
    /// Another build of fslab made the campaign.
    #[error(
        "the campaign was made by {frozen}, and this is {found}; run that build, or allow this one \
         with --other-build"
    )]
    OtherBuild {
        /// This program.
        found: Program,
        /// The one that the campaign was made by.
        frozen: Program,
    },
    /// A share of a campaign runs on this host.
    #[error("{}: a campaign runs on this host; wait for its end with --wait", path.display())]
    HostInUse {
        /// The lock.
        path: PathBuf,
    },
    /// The host has no place for its lock.
    #[error(
        "this host has no place for the lock that all its campaigns share ({tried}); as root make \
         /run/lock, or name a file that all users of this host can read with --lock"
    )]
    NoLockPlace {
        /// What was tried, and what the system answered.
        tried: String,
    },
    /// Something else than a file is where the host's lock should be.
    #[error("{}: it is no regular file, so it is not used as the host's lock", path.display())]
    OddLock {
        /// The path.
        path: PathBuf,
    },
    /// A plan names a device by a path.
    #[error(
        "target `{target}`: `device` is a path; in a campaign it is the name of a role, which each \
         host maps to its own device in /etc/fslab/erasable"
    )]
    DeviceByPath {
        /// The target.
        target: String,
    },
    /// A stack within the process names a file, whose contents can't be frozen.
    #[error(
        "target `{target}`: `in_process` names {named}, whose contents a campaign can't freeze; \
         give an image to a target with `aged`"
    )]
    PathInStack {
        /// The target.
        target: String,
        /// The leaf with the path.
        named: String,
    },
    /// A role's name has other letters than it may have.
    #[error(
        "target `{target}`: `device` is `{role}`, but roles are named by a-z, 0-9, `-` and `_`"
    )]
    OddRole {
        /// The target.
        target: String,
        /// The role.
        role: String,
    },
    /// This host gives no device for a role.
    #[error(
        "target `{target}`: {} gives no device for the role `{role}` on this host; add the line \
         `{role} /dev/disk/by-id/NAME` there, for a device that may be erased",
        list.display()
    )]
    NoDevice {
        /// The target.
        target: String,
        /// The role.
        role: String,
        /// The host's list.
        list: PathBuf,
    },
    /// Somebody else than root could change the list of devices.
    #[error("{}: only root may be able to write it: {reason}", path.display())]
    UnsafeList {
        /// The list.
        path: PathBuf,
        /// What is wrong.
        reason: &'static str,
    },
    /// A line of the list of devices does not parse.
    #[error("{}:{line}: {reason}", path.display())]
    BadList {
        /// The list.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// What is wrong.
        reason: &'static str,
    },
    /// A file of samples is of another plan or seed.
    #[error("{}: these samples are not of this campaign: their {what} differs", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What differs.
        what: &'static str,
    },
    /// Nothing is measured yet.
    #[error("{}: no block of the campaign is done yet; run a share first", path.display())]
    NothingDone {
        /// The directory.
        path: PathBuf,
    },
    /// A text that a batch script can't hold.
    #[error("{what} {text:?}: a batch script can't hold control characters or quotes")]
    OddText {
        /// What it is.
        what: &'static str,
        /// The text.
        text: String,
    },
    /// There is no Slurm here.
    #[error("sbatch: {source}; install Slurm's client, or run the shares here with --local")]
    NoSlurm {
        /// What starting it answered.
        #[source]
        source: io::Error,
    },
    /// Slurm refused the job.
    #[error("sbatch failed ({status}): {message}")]
    Slurm {
        /// How it ended.
        status: std::process::ExitStatus,
        /// Its standard error, on one line.
        message: String,
    },
}

impl Error {
    /// For `map_err` on what the system answers about a file.
    pub(crate) fn file(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File { path, source }
    }
}
