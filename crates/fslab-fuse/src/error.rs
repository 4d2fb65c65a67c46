//! Errors of mounting and unmounting.

use std::io;
use std::path::PathBuf;

use rustix::io::Errno;

/// The result of mounting and unmounting.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of mounting or unmounting.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel has no FUSE, or the device node is missing.
    #[error("/dev/fuse is missing: load the fuse module, or add this device to the container")]
    NoDevice,
    /// The kernel or the mount helper refused the mount.
    #[error("can't mount on {}: {source}", mount_point.display())]
    Mount {
        /// The mount point.
        mount_point: PathBuf,
        /// The reported error.
        source: io::Error,
    },
    /// The state left by an earlier daemon is incomplete.
    #[error(
        "can't continue to serve {}: the state that its daemon left is incomplete",
        mount_point.display()
    )]
    NotKept {
        /// The mount point.
        mount_point: PathBuf,
    },
    /// The threads that serve requests could not be started.
    #[error("can't start serving {}: {source}", mount_point.display())]
    Serve {
        /// The mount point.
        mount_point: PathBuf,
        /// The reported error.
        source: io::Error,
    },
    /// The kernel refused to unmount.
    #[error("can't unmount {}: {source}", mount_point.display())]
    Unmount {
        /// The mount point.
        mount_point: PathBuf,
        /// The reported error.
        source: Errno,
    },
    /// The list of mounts could not be read.
    #[error("can't read the list of mounts (/proc/self/mountinfo): {source}")]
    Mounts {
        /// The reported error.
        source: io::Error,
    },
    /// The connection to the kernel broke.
    #[error("serving {} ended with an error: {source}", mount_point.display())]
    Connection {
        /// The mount point.
        mount_point: PathBuf,
        /// The reported error.
        source: io::Error,
    },
}
