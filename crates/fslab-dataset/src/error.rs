//! The errors of this crate.

use std::io;
use std::path::{Path, PathBuf};

use crate::names::readable;

/// The result of operations in this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The reason why a data set can't be written or read.
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
    /// A part could not be written, or is damaged.
    #[error("{}: {source}", path.display())]
    Parquet {
        /// The path of the part.
        path: PathBuf,
        /// The error of the Parquet library.
        #[source]
        source: parquet::errors::ParquetError,
    },
    /// A directory is not a data set, or the data set is damaged.
    #[error("{}: {what}", path.display())]
    Unfit {
        /// The file or directory.
        path: PathBuf,
        /// The problem, and what to do.
        what: String,
    },
}

impl Error {
    pub(crate) fn file(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File { path, source }
    }

    pub(crate) fn parquet(path: &Path) -> impl FnOnce(parquet::errors::ParquetError) -> Self {
        let path = path.to_owned();
        move |source| Self::Parquet { path, source }
    }

    /// Makes an error for a file or directory that can't be used.
    pub fn unfit(path: &Path, what: impl Into<String>) -> Self {
        // The text may contain names from a damaged file.
        let what = readable(what.into().as_bytes()).into_owned();
        Self::Unfit { path: path.to_owned(), what }
    }
}
