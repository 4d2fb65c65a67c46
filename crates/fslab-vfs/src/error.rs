//! The error of every file-system operation, and the one table that turns it into an errno.

/// An operating-system error number, by its POSIX name.
pub use rustix::io::Errno;

use crate::types::Ino;

/// The result of a file-system operation.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an operation failed.
///
/// Small and cheap to make: `ENOENT` is the answer to most lookups.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The answer POSIX names for this case, or what a system call below answered.
    #[error("{0}")]
    Errno(#[from] Errno),
    /// No file system of the stack implements the operation.
    #[error("operation {operation} is not implemented by this file system")]
    NotImplemented {
        /// The method of [`crate::FileSystem`] that was called.
        operation: &'static str,
    },
    /// The inode was forgotten, or its file is gone and the number was used again.
    #[error("inode {} is no longer known", ino.0)]
    Stale {
        /// The inode the caller named.
        ino: Ino,
    },
    /// What is stored is damaged; nothing of it was returned.
    #[error("inode {}: damaged at byte {offset}: {what}", ino.0)]
    Damaged {
        /// The file that holds the damage.
        ino: Ino,
        /// Where in the logical file, in bytes.
        offset: u64,
        /// What was found wrong.
        what: &'static str,
    },
}

impl Error {
    /// The errno a caller of the system call sees: the one table of the house.
    ///
    /// Whether `ENOSYS` may reach the kernel (where it is sticky for some operations) is decided
    /// by the adapter, per operation.
    #[must_use]
    pub fn errno(&self) -> Errno {
        match self {
            Self::Errno(errno) => *errno,
            Self::NotImplemented { .. } => Errno::NOSYS,
            Self::Stale { .. } => Errno::STALE,
            Self::Damaged { .. } => Errno::IO,
        }
    }
}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        Self::Errno(Errno::from_io_error(&error).unwrap_or(Errno::IO))
    }
}
