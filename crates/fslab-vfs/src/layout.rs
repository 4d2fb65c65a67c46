//! Where the bytes of a file lie on its device.

use crate::error::Result;
use crate::types::Ino;

/// A run of a file's bytes that lie side by side on the device; everything in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Offset in the file.
    pub logical: u64,
    /// Offset on the device.
    pub physical: u64,
    /// Length of the run.
    pub length: u64,
}

/// A leaf that can tell where its files lie.
///
/// Layers do not change the answer: for a stack it is always about the leaf's files.
pub trait Layout: Send + Sync {
    /// The extents of a file in logical order; holes, inline data and space that is reserved but
    /// not yet written have none.
    ///
    /// # Errors
    /// `EOPNOTSUPP` where the leaf's own file system does not tell.
    fn extents(&self, ino: Ino) -> Result<Vec<Extent>>;
}
