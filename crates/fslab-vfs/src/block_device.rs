//! The device under a disk file system, [`BlockDevice`]: in memory, a file, or a real block device.
//!
//! Offsets and lengths are in bytes and need no alignment. A transfer is complete or fails. A
//! device is not a cache: a write reaches the store before it returns, and is durable after
//! [`BlockDevice::flush`].

use std::fs::File;
use std::os::unix::fs::FileExt;

use parking_lot::RwLock;
use rustix::fs::{FallocateFlags, SeekFrom};

use crate::error::{Errno, Result};
use crate::memory::{Capacity, Data, PAGE_BYTES, Space};

/// A store of a fixed number of bytes.
///
/// # Errors
/// An operation on a range outside the device fails with `EINVAL` (`ENOSPC` for a write or discard)
/// and does nothing. Other errors are those of the store.
pub trait BlockDevice: Send + Sync {
    /// Size in bytes.
    fn size(&self) -> u64;

    /// Fills the buffer with the bytes from `offset` on.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()>;

    /// Stores all of `data` from `offset` on.
    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()>;

    /// Like [`read_at`](Self::read_at), for file data, which the file system itself never
    /// interprets.
    fn read_data_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.read_at(offset, buffer)
    }

    /// Like [`write_at`](Self::write_at), for file data. A store that models a disk may count or
    /// discard such data.
    fn write_data_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.write_at(offset, data)
    }

    /// Makes the range read as zeros, and frees its space if the store can.
    fn discard(&self, offset: u64, length: u64) -> Result<()>;

    /// Makes all writes before the call durable.
    fn flush(&self) -> Result<()>;
}

/// Checks that a range lies within a device.
fn check(size: u64, offset: u64, length: u64, outside: Errno) -> Result<()> {
    match offset.checked_add(length) {
        Some(end) if end <= size => Ok(()),
        _ => Err(outside.into()),
    }
}

/// A sparse device in memory: parts never written use no space.
#[derive(Debug)]
pub struct MemoryDevice {
    size: u64,
    keeps_data: bool,
    contents: RwLock<(Data, Space)>,
}

impl MemoryDevice {
    /// Makes a device of zeros; `size` is in bytes.
    #[must_use]
    pub fn new(size: u64) -> Self {
        let space = Space::new(Capacity { bytes: u64::MAX, inodes: 0 });
        Self { size, keeps_data: true, contents: RwLock::new((Data::default(), space)) }
    }

    /// Makes a device that stores only metadata; file data reads as zeros. Simulations use it,
    /// because their data would only fill memory.
    #[must_use]
    pub fn of_metadata(size: u64) -> Self {
        Self { keeps_data: false, ..Self::new(size) }
    }

    /// Memory used by the written data, in bytes.
    #[must_use]
    pub fn allocated(&self) -> u64 {
        self.contents.read().0.pages() * PAGE_BYTES
    }
}

impl BlockDevice for MemoryDevice {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        check(self.size, offset, buffer.len() as u64, Errno::INVAL)?;
        let read = self.contents.read().0.read(offset, buffer);
        buffer[read..].fill(0);
        Ok(())
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        check(self.size, offset, data.len() as u64, Errno::NOSPC)?;
        let (contents, space) = &mut *self.contents.write();
        contents.write(space, offset, data)?;
        Ok(())
    }

    fn read_data_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        if self.keeps_data {
            return self.read_at(offset, buffer);
        }
        check(self.size, offset, buffer.len() as u64, Errno::INVAL)?;
        buffer.fill(0);
        Ok(())
    }

    fn write_data_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        if self.keeps_data {
            return self.write_at(offset, data);
        }
        check(self.size, offset, data.len() as u64, Errno::NOSPC)
    }

    fn discard(&self, offset: u64, length: u64) -> Result<()> {
        check(self.size, offset, length, Errno::NOSPC)?;
        let (contents, space) = &mut *self.contents.write();
        contents.punch(space, offset, length);
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }
}

/// A file or real block device.
#[derive(Debug)]
pub struct FileDevice {
    file: File,
    size: u64,
}

impl FileDevice {
    /// Takes ownership of an open image or device. Its size is fixed from now on.
    ///
    /// # Errors
    /// `EINVAL` if the file is neither a regular file nor a block device.
    pub fn from_file(file: File) -> Result<Self> {
        let kind = rustix::fs::FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode);
        if !kind.is_file() && !kind.is_block_device() {
            return Err(Errno::INVAL.into());
        }
        // The attributes of a block device do not contain its length, so lseek(2) must find its
        // end.
        let size = rustix::fs::seek(&file, SeekFrom::End(0))?;
        Ok(Self { file, size })
    }

    /// Writes zeros to a range, for a store that can't make a hole.
    fn write_zeros(&self, offset: u64, length: u64) -> Result<()> {
        const PIECE_BYTES: u64 = 1 << 20;
        let zeros = vec![0; length.min(PIECE_BYTES) as usize];
        let mut done = 0;
        while done < length {
            let piece = (length - done).min(PIECE_BYTES);
            self.write_at(offset + done, &zeros[..piece as usize])?;
            done += piece;
        }
        Ok(())
    }
}

impl BlockDevice for FileDevice {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        check(self.size, offset, buffer.len() as u64, Errno::INVAL)?;
        // If another process has truncated the file, the missing part must not read as zeros.
        Ok(self.file.read_exact_at(buffer, offset)?)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        check(self.size, offset, data.len() as u64, Errno::NOSPC)?;
        Ok(self.file.write_all_at(data, offset)?)
    }

    fn discard(&self, offset: u64, length: u64) -> Result<()> {
        check(self.size, offset, length, Errno::NOSPC)?;
        if length == 0 {
            return Ok(());
        }
        // On a block device, this call discards and zeroes the range.
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match rustix::fs::fallocate(&self.file, flags, offset, length) {
            Err(Errno::OPNOTSUPP | Errno::NODEV | Errno::NOSYS | Errno::INVAL) => {
                self.write_zeros(offset, length)
            }
            answer => Ok(answer?),
        }
    }

    fn flush(&self) -> Result<()> {
        Ok(rustix::fs::fsync(&self.file)?)
    }
}
