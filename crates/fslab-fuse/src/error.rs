//! Why a file system could not be mounted or unmounted.

use std::io;
use std::path::PathBuf;

use rustix::io::Errno;

/// The result of mounting and unmounting.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a file system could not be mounted or unmounted.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel has no FUSE, or the device node is not there.
    #[error("/dev/fuse is missing: load the fuse module or give the container the device")]
    NoDevice,
    /// The kernel or the mount helper refused.
    #[error("can't mount on {}: {source}", mount_point.display())]
    Mount {
        /// Where.
        mount_point: PathBuf,
        /// What was answered.
        source: io::Error,
    },
    /// What an earlier daemon wrote down does not suffice to go on.
    #[error("can't go on to serve {}: what its daemon left is incomplete", mount_point.display())]
    NotKept {
        /// Where.
        mount_point: PathBuf,
    },
    /// The threads that serve requests could not be started.
    #[error("can't start serving {}: {source}", mount_point.display())]
    Serve {
        /// Where.
        mount_point: PathBuf,
        /// What was answered.
        source: io::Error,
    },
    /// The kernel refused to unmount.
    #[error("can't unmount {}: {source}", mount_point.display())]
    Unmount {
        /// Where.
        mount_point: PathBuf,
        /// What was answered.
        source: Errno,
    },
    /// Where a file system is mounted could not be found out.
    #[error("can't read the list of mounts (/proc/self/mountinfo): {source}")]
    Mounts {
        /// What was answered.
        source: io::Error,
    },
    /// The connection to the kernel broke.
    #[error("serving {} ended with an error: {source}", mount_point.display())]
    Connection {
        /// Where.
        mount_point: PathBuf,
        /// What was answered.
        source: io::Error,
    },
}
