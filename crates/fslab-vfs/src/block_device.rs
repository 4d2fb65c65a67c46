//! [`BlockDevice`]: what a disk file system is written over, and its two stores: memory, and a
//! file or real device.
//!
//! Offsets and lengths are in bytes and need no alignment. A transfer is whole or an error. What
//! this is not: a cache. A write reaches the store before it returns, and is durable after
//! [`BlockDevice::flush`].

use std::fs::File;
use std::path::Path;

use parking_lot::RwLock;
use rustix::fs::{FallocateFlags, Mode, OFlags, SeekFrom};

use crate::error::{Errno, Result};

/// A store of a fixed number of bytes.
///
/// # Errors
/// Every operation on a range that does not lie within the device fails with `EINVAL` (`ENOSPC`
/// for a write or discard) and does nothing; other errors are those of the store.
pub trait BlockDevice: Send + Sync {
    /// Size in bytes.
    fn size(&self) -> u64;

    /// Fills the buffer from `offset` on.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()>;

    /// Stores all of `data` from `offset` on.
    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()>;

    /// As [`read_at`](Self::read_at), for bytes of files, which a file system never needs itself.
    fn read_data_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.read_at(offset, buffer)
    }

    /// As [`write_at`](Self::write_at), for bytes of files. A store that models a disk may keep
    /// count of them, or forget them.
    fn write_data_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.write_at(offset, data)
    }

    /// Makes the range read as zeros and gives its space back where the store can.
    fn discard(&self, offset: u64, length: u64) -> Result<()>;

    /// Makes durable what was written before the call.
    fn flush(&self) -> Result<()>;
}

/// Whether a range lies within a device.
fn check(size: u64, offset: u64, length: u64, outside: Errno) -> Result<()> {
    match offset.checked_add(length) {
        Some(end) if end <= size => Ok(()),
        _ => Err(outside.into()),
    }
}

/// A sparse device in memory: parts never written take no space.
#[derive(Debug)]
pub struct MemoryDevice {
    size: u64,
    pages: RwLock<std::collections::HashMap<u64, Box<[u8; MemoryDevice::PAGE_BYTES]>>>,
}

impl MemoryDevice {
    const PAGE_BYTES: usize = 4096;

    /// A device of zeros; `size` is in bytes.
    #[must_use]
    pub fn new(size: u64) -> Self {
        Self { size, pages: RwLock::default() }
    }

    /// Memory taken by what was written, in bytes.
    #[must_use]
    pub fn allocated(&self) -> u64 {
        (self.pages.read().len() * Self::PAGE_BYTES) as u64
    }

    /// Cuts a range at page borders: page number, offset within the page, length.
    fn pieces(offset: u64, length: u64) -> impl Iterator<Item = (u64, usize, usize)> {
        let page_bytes = Self::PAGE_BYTES as u64;
        let end = offset + length;
        let mut next = offset;
        std::iter::from_fn(move || {
            let start = next % page_bytes;
            let piece = (page_bytes - start).min(end - next);
            let answer = (next / page_bytes, start as usize, piece as usize);
            next += piece;
            (piece > 0).then_some(answer)
        })
    }
}

impl BlockDevice for MemoryDevice {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        check(self.size, offset, buffer.len() as u64, Errno::INVAL)?;
        let pages = self.pages.read();
        let mut rest = buffer;
        for (number, start, length) in Self::pieces(offset, rest.len() as u64) {
            let (piece, behind) = rest.split_at_mut(length);
            match pages.get(&number) {
                Some(page) => piece.copy_from_slice(&page[start..start + length]),
                None => piece.fill(0),
            }
            rest = behind;
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        check(self.size, offset, data.len() as u64, Errno::NOSPC)?;
        let mut pages = self.pages.write();
        let mut rest = data;
        for (number, start, length) in Self::pieces(offset, data.len() as u64) {
            let (piece, behind) = rest.split_at(length);
            let page = pages.entry(number).or_insert_with(|| Box::new([0; Self::PAGE_BYTES]));
            page[start..start + length].copy_from_slice(piece);
            rest = behind;
        }
        Ok(())
    }

    fn discard(&self, offset: u64, length: u64) -> Result<()> {
        check(self.size, offset, length, Errno::NOSPC)?;
        let end = offset + length;
        let page_bytes = Self::PAGE_BYTES as u64;
        self.pages.write().retain(|number, page| {
            let page_start = number * page_bytes;
            let start = offset.clamp(page_start, page_start + page_bytes) - page_start;
            let stop = end.clamp(page_start, page_start + page_bytes) - page_start;
            page[start as usize..stop as usize].fill(0);
            stop - start < page_bytes
        });
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }
}

/// A sparse device in memory that keeps what a file system needs to find its files, and none of
/// their bytes: they read as zeros. For simulation, where contents would only fill memory.
#[derive(Debug)]
pub struct MetadataDevice(MemoryDevice);

impl MetadataDevice {
    /// A device of zeros; `size` is in bytes.
    #[must_use]
    pub fn new(size: u64) -> Self {
        Self(MemoryDevice::new(size))
    }

    /// Memory taken by what was written, in bytes.
    #[must_use]
    pub fn allocated(&self) -> u64 {
        self.0.allocated()
    }
}

impl BlockDevice for MetadataDevice {
    fn size(&self) -> u64 {
        self.0.size()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.0.read_at(offset, buffer)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.0.write_at(offset, data)
    }

    fn read_data_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        check(self.size(), offset, buffer.len() as u64, Errno::INVAL)?;
        buffer.fill(0);
        Ok(())
    }

    fn write_data_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        check(self.size(), offset, data.len() as u64, Errno::NOSPC)
    }

    fn discard(&self, offset: u64, length: u64) -> Result<()> {
        self.0.discard(offset, length)
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
    /// Opens an image or device for reading and writing.
    ///
    /// # Errors
    /// Those of `open(2)`; `EINVAL` for what is neither a regular file nor a block device.
    pub fn open(path: &Path) -> Result<Self> {
        Self::open_with(path, OFlags::RDWR)
    }

    /// Opens an image or device for reading; writing to it then fails with `EBADF`.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_read_only(path: &Path) -> Result<Self> {
        Self::open_with(path, OFlags::RDONLY)
    }

    fn open_with(path: &Path, flags: OFlags) -> Result<Self> {
        let flags = flags | OFlags::CLOEXEC | OFlags::NONBLOCK;
        Self::from_file(File::from(rustix::fs::open(path, flags, Mode::empty())?))
    }

    /// Takes over an open image or device. Its size is fixed from now on.
    ///
    /// # Errors
    /// `EINVAL` for what is neither a regular file nor a block device.
    pub fn from_file(file: File) -> Result<Self> {
        let kind = rustix::fs::FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode);
        if !kind.is_file() && !kind.is_block_device() {
            return Err(Errno::INVAL.into());
        }
        // The length of a block device is not in its attributes; its end can be sought.
        let size = rustix::fs::seek(&file, SeekFrom::End(0))?;
        Ok(Self { file, size })
    }

    /// Writes zeros where the store can't make a hole.
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
        let mut done = 0;
        while done < buffer.len() {
            match rustix::io::pread(&self.file, &mut buffer[done..], offset + done as u64) {
                // The file was cut behind our back; what is gone can't be read as zeros.
                Ok(0) => return Err(Errno::IO.into()),
                Ok(length) => done += length,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        check(self.size, offset, data.len() as u64, Errno::NOSPC)?;
        let mut done = 0;
        while done < data.len() {
            match rustix::io::pwrite(&self.file, &data[done..], offset + done as u64) {
                Ok(0) => return Err(Errno::IO.into()),
                Ok(length) => done += length,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }

    fn discard(&self, offset: u64, length: u64) -> Result<()> {
        check(self.size, offset, length, Errno::NOSPC)?;
        if length == 0 {
            return Ok(());
        }
        // On a block device this reaches the discard that zeroes, or fails and is replaced.
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
