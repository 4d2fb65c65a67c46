//! [`SliceDevice`]: a part of a device as a separate device, such as a partition in a disk image.

use crate::block_device::BlockDevice;
use crate::error::{Errno, Result};

/// A range of another device.
#[derive(Debug)]
pub struct SliceDevice<D> {
    whole: D,
    start: u64,
    length: u64,
}

impl<D: BlockDevice> SliceDevice<D> {
    /// Makes a device of the part of `whole` from `start` on: `length` bytes, or everything to the
    /// end.
    ///
    /// # Errors
    /// `EINVAL` if `whole` ends earlier.
    pub fn new(whole: D, start: u64, length: Option<u64>) -> Result<Self> {
        let left = whole.size().checked_sub(start).ok_or(Errno::INVAL)?;
        match length.unwrap_or(left) {
            length if length <= left => Ok(Self { whole, start, length }),
            _ => Err(Errno::INVAL.into()),
        }
    }

    /// Returns the offset of a range in the whole device; fails with `outside` if the range is not
    /// within the part.
    fn place(&self, offset: u64, length: usize, outside: Errno) -> Result<u64> {
        match offset.checked_add(length as u64) {
            Some(end) if end <= self.length => Ok(self.start + offset),
            _ => Err(outside.into()),
        }
    }
}

impl<D: BlockDevice> BlockDevice for SliceDevice<D> {
    fn size(&self) -> u64 {
        self.length
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.whole.read_at(self.place(offset, buffer.len(), Errno::INVAL)?, buffer)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.whole.write_at(self.place(offset, data.len(), Errno::NOSPC)?, data)
    }

    fn read_data_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.whole.read_data_at(self.place(offset, buffer.len(), Errno::INVAL)?, buffer)
    }

    fn write_data_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.whole.write_data_at(self.place(offset, data.len(), Errno::NOSPC)?, data)
    }

    fn discard(&self, offset: u64, length: u64) -> Result<()> {
        let bytes = usize::try_from(length).map_err(|_too_long| Errno::NOSPC)?;
        self.whole.discard(self.place(offset, bytes, Errno::NOSPC)?, length)
    }

    fn flush(&self) -> Result<()> {
        self.whole.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block_device::MemoryDevice;

    #[test]
    fn slice_maps_its_offsets_into_the_whole_device() {
        let part = SliceDevice::new(MemoryDevice::new(100), 10, Some(20)).unwrap();
        assert_eq!(part.size(), 20);
        part.write_at(18, b"xy").unwrap();
        part.write_data_at(0, b"ab").unwrap();
        let mut all = [0; 100];
        part.whole.read_at(0, &mut all).unwrap();
        assert_eq!((&all[10..12], &all[28..30]), (&b"ab"[..], &b"xy"[..]));
        part.discard(18, 2).unwrap();
        let mut end = [1; 2];
        part.read_at(18, &mut end).unwrap();
        assert_eq!(end, [0; 2]);
    }

    #[test]
    fn access_beyond_a_slice_is_refused() {
        let part = SliceDevice::new(MemoryDevice::new(100), 10, Some(20)).unwrap();
        assert!(part.write_at(19, b"xy").is_err() && part.discard(19, 2).is_err());
        assert!(part.write_data_at(u64::MAX, b"x").is_err());
        assert!(part.read_at(20, &mut [0]).is_err() && part.read_data_at(20, &mut [0]).is_err());
        assert_eq!(SliceDevice::new(MemoryDevice::new(100), 10, None).unwrap().size(), 90);
        assert!(SliceDevice::new(MemoryDevice::new(100), 10, Some(91)).is_err());
        assert!(SliceDevice::new(MemoryDevice::new(100), 101, None).is_err());
    }
}
