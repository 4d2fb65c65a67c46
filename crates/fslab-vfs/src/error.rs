//! The error of every file-system operation, and the one table that turns it into an errno.

/// An operating-system error number, by its POSIX name.
pub use rustix::io::Errno;

use crate::types::Ino;

/// The result of a file-system operation.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of a file-system operation.
///
/// The type is small and cheap to make, because most lookups fail with `ENOENT`.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The error that POSIX requires, or the error of a system call on the lower file system.
    #[error("{0}")]
    Errno(#[from] Errno),
    /// No file system of the stack implements the operation.
    #[error("operation {operation} is not implemented by this file system")]
    NotImplemented {
        /// The method of [`crate::FileSystem`] that was called.
        operation: &'static str,
    },
    /// The inode was forgotten, or its file was removed and the number was reused.
    #[error("inode {} was forgotten, or its number was reused", ino.0)]
    Stale {
        /// The inode in the request.
        ino: Ino,
    },
    /// Stored data is damaged; none of it was returned.
    #[error("inode {}: damaged at byte {offset}: {what}", ino.0)]
    Damaged {
        /// The damaged file.
        ino: Ino,
        /// Offset in the logical file, in bytes.
        offset: u64,
        /// Description of the damage.
        what: &'static str,
    },
    /// The request was deferred: it will be performed again later (see [`crate::Deferral`]). No
    /// caller of a system call sees this error.
    #[error("the request was deferred")]
    Deferred,
}

impl Error {
    /// Returns the errno that the caller of the system call sees. No other code converts errors to
    /// errnos.
    ///
    /// The FUSE adapter decides for each operation whether `ENOSYS` may reach the kernel. For some
    /// operations, the kernel sends no further requests after this error.
    #[must_use]
    pub fn errno(&self) -> Errno {
        match self {
            Self::Errno(errno) => *errno,
            Self::NotImplemented { .. } => Errno::NOSYS,
            Self::Stale { .. } => Errno::STALE,
            Self::Damaged { .. } => Errno::IO,
            Self::Deferred => Errno::AGAIN,
        }
    }
}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        Self::Errno(Errno::from_io_error(&error).unwrap_or(Errno::IO))
    }
}
