//! Free space by the sizes of its contiguous pieces.

use std::collections::BTreeMap;

use fslab_ext2::alloc::Bitmap;
use fslab_ext2::{Group, Superblock};
use fslab_vfs::BlockDevice;
use serde::Serialize;

use crate::error::{Error, Result};

/// Free space by the sizes of its contiguous pieces.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FreeSpace {
    /// Number of pieces.
    pub pieces: u64,
    /// Total size in bytes.
    pub bytes: u64,
    /// Size of the largest piece in bytes.
    pub largest: u64,
    /// For each base-2 logarithm of the size in bytes, rounded down: the number of pieces and their
    /// total size in bytes.
    pub by_size: BTreeMap<u32, (u64, u64)>,
}

impl FreeSpace {
    /// Adds a piece.
    pub fn add(&mut self, bytes: u64) {
        if bytes == 0 {
            return;
        }
        self.pieces += 1;
        self.bytes += bytes;
        self.largest = self.largest.max(bytes);
        let class = self.by_size.entry(bytes.ilog2()).or_default();
        class.0 += 1;
        class.1 += bytes;
    }

    /// Reads the free space of an ext2 image from its bitmaps.
    ///
    /// # Errors
    /// Fails if the device contains no ext2 file system, and on I/O errors of the device.
    pub fn of_image(device: &dyn BlockDevice) -> Result<Self> {
        let superblock = Superblock::read(device)?;
        let geometry = superblock.geometry();
        let block_bytes = geometry.block_size.bytes_u64();
        let mut free = Self::default();
        let mut bytes = vec![0; geometry.block_size.bytes_u32() as usize];
        let groups = Group::read_all(device, geometry)?;
        for (number, group) in geometry.all_groups().zip(groups) {
            let offset = geometry.offset_of(group.block_bitmap);
            device
                .read_at(offset, &mut bytes)
                .map_err(Error::volume("can't read a bitmap of the image"))?;
            let bitmap = Bitmap::from_bytes(&bytes, geometry.blocks_in(number));
            for run in bitmap.free_runs() {
                free.add(u64::from(run.end - run.start) * block_bytes);
            }
        }
        Ok(free)
    }

    /// Returns the share of the free bytes that are in pieces smaller than `bytes`, a power of two.
    #[must_use]
    pub fn share_below(&self, bytes: u64) -> f64 {
        let small = self.by_size.iter().filter(|(log, _)| 1 << **log < bytes);
        let small: u64 = small.map(|(_, (_, bytes))| bytes).sum();
        small as f64 / self.bytes.max(1) as f64
    }
}
