//! Errors of writing, reading and replaying traces.

use std::io;
use std::path::{Path, PathBuf};

/// The result of working with a trace.
pub type Result<T> = std::result::Result<T, Error>;

/// The reason why a trace can't be written, read or replayed.
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
    /// A segment is not a Parquet file, or is damaged.
    #[error("{} is not a segment of a trace, or is damaged: {source}", path.display())]
    Parquet {
        /// The path of the segment.
        path: PathBuf,
        /// The problem.
        #[source]
        source: parquet::errors::ParquetError,
    },
    /// The data set could not be written.
    #[error(transparent)]
    Dataset(#[from] fslab_dataset::Error),
    /// The named file or directory can't be used for a trace.
    #[error("{} {what}", path.display())]
    Unfit {
        /// The file or directory.
        path: PathBuf,
        /// The problem.
        what: String,
    },
    /// Records could not be saved and are lost.
    #[error("{}: {records} records were lost: {reason}", path.display())]
    Lost {
        /// The trace.
        path: PathBuf,
        /// Number of lost records.
        records: u64,
        /// The first error that caused the loss.
        reason: String,
    },
    /// A file that existed before the trace can't be created on the target of a replay.
    #[error("can't create '{name}' for the replay: {source}")]
    Populate {
        /// The name of the file.
        name: String,
        /// The target's error.
        #[source]
        source: fslab_vfs::Error,
    },
}

impl Error {
    pub(crate) fn unfit(path: &Path, what: impl Into<String>) -> Self {
        Self::Unfit { path: path.to_owned(), what: what.into() }
    }

    /// Returns a function for `map_err` that adds the path to an I/O error.
    pub(crate) fn file<E: Into<io::Error>>(path: &Path) -> impl FnOnce(E) -> Self {
        let path = path.to_owned();
        move |source| Self::File { path, source: source.into() }
    }

    /// Returns a function for `map_err` that adds the segment's path to a Parquet error.
    pub(crate) fn parquet(path: &Path) -> impl FnOnce(parquet::errors::ParquetError) -> Self {
        let path = path.to_owned();
        move |source| Self::Parquet { path, source }
    }
}
