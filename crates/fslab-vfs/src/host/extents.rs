//! Reports the extents of a lower file with FIEMAP.

use crate::error::Result;
use crate::host::HostFs;
use crate::layout::{Extent, Layout};
use crate::types::Ino;
use fiemap::{Fiemap, FiemapExtentFlags, FiemapFlags};

impl Layout for HostFs {
    fn extents(&self, ino: Ino) -> Result<Vec<Extent>> {
        let file = self.lower.open_to_ask(ino)?;
        let mut extents = Vec::new();
        // With this flag, the kernel first writes back the file, which allocates all delayed
        // blocks.
        for extent in Fiemap::with_flags(file, FiemapFlags::SYNC) {
            let extent = extent?;
            let unplaced = FiemapExtentFlags::UNKNOWN
                | FiemapExtentFlags::DATA_INLINE
                | FiemapExtentFlags::UNWRITTEN;
            if !extent.fe_flags.intersects(unplaced) {
                extents.push(Extent {
                    logical: extent.fe_logical,
                    physical: extent.fe_physical,
                    length: extent.fe_length,
                });
            }
        }
        Ok(extents)
    }
}
