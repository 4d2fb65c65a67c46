//! Where a lower file lies on its device, by FIEMAP.

use std::fs::File;

use rustix::fs::OFlags;

use crate::error::Result;
use crate::host::HostFs;
use crate::layout::{Extent, Layout};
use crate::types::Ino;

impl Layout for HostFs {
    fn extents(&self, ino: Ino) -> Result<Vec<Extent>> {
        let file = File::from(self.lower.open(ino, OFlags::RDONLY)?);
        let mut extents = Vec::new();
        for extent in fiemap::Fiemap::new(file) {
            let extent = extent?;
            let unplaced = fiemap::FiemapExtentFlags::UNKNOWN
                | fiemap::FiemapExtentFlags::DATA_INLINE
                | fiemap::FiemapExtentFlags::UNWRITTEN;
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
