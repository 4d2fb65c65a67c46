//! The location of a file's bytes on its device.

use crate::error::Result;
use crate::types::Ino;

/// A run of a file's bytes that is contiguous on the device; all fields are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Offset in the file.
    pub logical: u64,
    /// Offset on the device.
    pub physical: u64,
    /// Length of the run.
    pub length: u64,
}

/// A leaf that knows the locations of its files.
///
/// Layers do not change the result, so for a stack it always describes the leaf's files.
pub trait Layout: Send + Sync {
    /// The extents of a file in logical order. Holes, inline data and reserved space that is not
    /// yet written have none.
    ///
    /// # Errors
    /// `EOPNOTSUPP` if the leaf's file system does not report extents.
    fn extents(&self, ino: Ino) -> Result<Vec<Extent>>;
}
