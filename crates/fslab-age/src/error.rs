//! The errors of this crate.

use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

/// The result of operations in this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The reason why an operation of this crate failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file could not be used.
    #[error("{}: {source}", path.display())]
    File {
        /// The file or directory.
        path: PathBuf,
        /// The I/O error.
        #[source]
        source: io::Error,
    },
    /// A file is not a Parquet file, or it is damaged.
    #[error("{} was not made by fslab age, or is damaged: {source}", path.display())]
    Parquet {
        /// The path of the file.
        path: PathBuf,
        /// The error of the Parquet library.
        #[source]
        source: parquet::errors::ParquetError,
    },
    /// A data set could not be written or read.
    #[error(transparent)]
    Dataset(#[from] fslab_dataset::Error),
    /// A file does not have the expected format.
    #[error("{} is not a valid {format} of fslab age: {what}", path.display())]
    Format {
        /// The path of the file.
        path: PathBuf,
        /// The name of the expected format.
        format: &'static str,
        /// A description of the flaw.
        what: &'static str,
    },
    /// A row of a file is invalid.
    #[error("{}, row {row}: {what}", path.display())]
    Row {
        /// The file that contains the row.
        path: PathBuf,
        /// The number of the row, from 0.
        row: u64,
        /// A description of the flaw.
        what: &'static str,
    },
    /// A line of an imported text is invalid.
    #[error("{}, line {line}: {what}", path.display())]
    Line {
        /// The path of the file.
        path: PathBuf,
        /// The number of the line, from 1.
        line: u64,
        /// A description of the flaw and the valid values.
        what: String,
    },
    /// A record of an imported binary file is invalid.
    #[error("{}, record at byte {offset}: {what}", path.display())]
    Record {
        /// The path of the file.
        path: PathBuf,
        /// The offset of the record in bytes.
        offset: u64,
        /// A description of the flaw.
        what: &'static str,
    },
    /// A parameter is invalid.
    #[error("{what}")]
    Parameter {
        /// A description of the flaw and the valid values.
        what: String,
    },
    /// A file of a workload is in a directory that does not exist or that contains itself.
    #[error(
        "file {file} of the workload is in a directory that does not exist or that contains itself"
    )]
    NoPath {
        /// The number of the file in the workload.
        file: u64,
    },
    /// The operations of a workload are inconsistent.
    #[error("operation {index} of the workload: {what}")]
    Operation {
        /// The index of the operation, from 0.
        index: u64,
        /// A description of the flaw.
        what: &'static str,
    },
    /// The target of a replay returned an error that the replay does not tolerate.
    #[error("operation {index} of the workload, {kind} of file {file}: {source}")]
    Target {
        /// The index of the operation, from 0.
        index: u64,
        /// The kind of operation.
        kind: &'static str,
        /// The number of the file in the workload.
        file: u64,
        /// The error of the target.
        #[source]
        source: fslab_vfs::Error,
    },
    /// Another request to the target failed.
    #[error("{what}: {source}")]
    Volume {
        /// A description of the failed request.
        what: String,
        /// The error of the target.
        #[source]
        source: fslab_vfs::Error,
    },
    /// The engine's allocation policy failed.
    #[error("simulation failed: {0}")]
    Engine(#[from] fslab_ext2::Error),
    /// A file can't be used for its purpose.
    #[error("{}: {what}", path.display())]
    Unfit {
        /// The path of the file.
        path: PathBuf,
        /// The reason and a remedy.
        what: String,
    },
    /// A required program can't be started.
    #[error("can't run {program}, which is required: {source}")]
    NoProgram {
        /// The name of the program.
        program: &'static str,
        /// The reason why the program could not be started.
        #[source]
        source: io::Error,
    },
    /// A required program failed.
    #[error("{program}: {message}")]
    Program {
        /// The name of the program.
        program: &'static str,
        /// The error message of the program.
        message: String,
    },
}

/// Escapes text of an untrusted file for a one-line message: escapes control characters and
/// truncates the text to 40 characters.
pub(crate) fn one_line(text: &str) -> String {
    const CHARACTERS_MAX: usize = 40;
    let mut characters = text.chars();
    let start: String = characters.by_ref().take(CHARACTERS_MAX).collect();
    let rest = if characters.next().is_some() { "..." } else { "" };
    format!("{}{rest}", start.escape_debug())
}

impl Error {
    /// Returns a function for `map_err` that adds a path to I/O errors.
    pub fn file<E: Into<io::Error>>(path: &Path) -> impl FnOnce(E) -> Self {
        let path = path.to_owned();
        move |source| Self::File { path, source: source.into() }
    }

    /// Returns a function for `map_err` that adds a path to errors of FIEMAP.
    pub(crate) fn extents(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| match Errno::from_io_error(&source) {
            Some(Errno::OPNOTSUPP) => Self::unfit(
                &path,
                "its file system does not report the extents of files; use a directory on a disk \
                 file system, such as ext4, XFS or Btrfs",
            ),
            _ => Self::File { path, source },
        }
    }

    /// Returns a function for `map_err` that adds a path to Parquet errors.
    pub(crate) fn parquet(path: &Path) -> impl FnOnce(parquet::errors::ParquetError) -> Self {
        let path = path.to_owned();
        move |source| Self::Parquet { path, source }
    }

    /// Returns a function for `map_err` that adds a description to errors of a target.
    pub(crate) fn volume(what: impl Into<String>) -> impl FnOnce(fslab_vfs::Error) -> Self {
        let what = what.into();
        move |source| Self::Volume { what, source }
    }

    /// Makes an error for a file that can't be used.
    pub(crate) fn unfit(path: &Path, what: impl Into<String>) -> Self {
        Self::Unfit { path: path.to_owned(), what: what.into() }
    }

    /// Makes an error for a file written by a later fslab.
    pub(crate) fn newer_format(path: &Path, found: u32, known: u32) -> Self {
        Self::unfit(
            path,
            format!(
                "its format version is {found}, but this fslab supports only versions up to {known}"
            ),
        )
    }

    /// Makes an error for an invalid parameter.
    pub(crate) fn parameter(what: impl Into<String>) -> Self {
        Self::Parameter { what: what.into() }
    }
}
