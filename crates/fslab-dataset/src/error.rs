//! The errors of this crate.

use std::io;
use std::path::{Path, PathBuf};

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

    pub(crate) fn unfit(path: &Path, what: impl Into<String>) -> Self {
        Self::Unfit { path: path.to_owned(), what: what.into() }
    }
}
