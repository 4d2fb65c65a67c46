//! Why a trace can't be written or read.

use std::io;
use std::path::{Path, PathBuf};

/// The result of working with a trace.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a trace can't be written or read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file could not be used.
    #[error("{}: {source}", path.display())]
    File {
        /// The file or directory.
        path: PathBuf,
        /// What the system answered.
        #[source]
        source: io::Error,
    },
    /// A segment is no Parquet file, or a damaged one.
    #[error("{} is not a segment of a trace, or is damaged: {source}", path.display())]
    Parquet {
        /// The segment.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: parquet::errors::ParquetError,
    },
    /// What was named can't be used for a trace.
    #[error("{} {what}", path.display())]
    Unfit {
        /// The file or directory.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// Records could not be saved and are gone.
    #[error("{}: {records} records were lost: {reason}", path.display())]
    Lost {
        /// The trace.
        path: PathBuf,
        /// How many.
        records: u64,
        /// The first reason.
        reason: String,
    },
    /// What a trace found can't be made on the target of a replay.
    #[error("making '{name}' for the replay: {source}")]
    Populate {
        /// The name.
        name: String,
        /// What the target answered.
        #[source]
        source: fslab_vfs::Error,
    },
}

impl Error {
    pub(crate) fn unfit(path: &Path, what: impl Into<String>) -> Self {
        Self::Unfit { path: path.to_owned(), what: what.into() }
    }

    /// For `map_err` on what the system answers about a file.
    pub(crate) fn file<E: Into<io::Error>>(path: &Path) -> impl FnOnce(E) -> Self {
        let path = path.to_owned();
        move |source| Self::File { path, source: source.into() }
    }

    /// For `map_err` on what Parquet says about a segment.
    pub(crate) fn parquet(path: &Path) -> impl FnOnce(parquet::errors::ParquetError) -> Self {
        let path = path.to_owned();
        move |source| Self::Parquet { path, source }
    }
}
