//! File content: reading, writing, truncating, punching holes, preallocating, seeking.
//!
//! Content is written directly to the device; only its block map is cached. A newly mapped block is
//! written completely, so that old content of another file is never read. This also holds after a
//! power cut, when a pointer may be on the device before the new size. When a file grows, bytes
//! past its old end are zeroed.

use std::ops::Range;

use fslab_vfs::{Errno, SeekTo};

use crate::alloc::Clustering;
use crate::block_map::PATH_BLOCKS_MAX;
use crate::error::{Error, Place, Result};
use crate::flaw::Flaw;
use crate::inode::Inode;
use crate::types::FileBlock;
use crate::volume::Volume;

/// The part of a byte range that is in one block of a file.
struct Piece {
    block: FileBlock,
    /// Offset within the block.
    start: usize,
    length: usize,
}

/// Splits a range at block boundaries. The range must end at or before the maximum file size.
fn pieces(block_bytes: u64, range: Range<u64>) -> impl Iterator<Item = Piece> {
    let mut next = range.start;
    std::iter::from_fn(move || {
        let start = next % block_bytes;
        let length = (block_bytes - start).min(range.end.saturating_sub(next));
        let block = FileBlock((next / block_bytes) as u32);
        next += length;
        (length > 0).then_some(Piece { block, start: start as usize, length: length as usize })
    })
}

impl Volume {
    fn block_bytes(&self) -> u64 {
        self.block_size().bytes_u64()
    }

    /// Reads file content from `offset` on. Returns the number of bytes read; 0 at the end of the
    /// file.
    pub(crate) fn read_data(&self, inode: &Inode, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let length = inode.size.saturating_sub(offset).min(buffer.len() as u64) as usize;
        let mut done = 0;
        while done < length {
            let at = offset + done as u64;
            let within = at % self.block_bytes();
            let left = (length - done) as u64 + within;
            let most = left.div_ceil(self.block_bytes()).min(u64::from(u32::MAX)) as u32;
            let Some(first) = self.block_at(at) else {
                buffer[done..length].fill(0);
                break;
            };
            let run = self.map_run(inode, first, most)?;
            let bytes = u64::from(run.length) * self.block_bytes() - within;
            let piece = &mut buffer[done..][..bytes.min((length - done) as u64) as usize];
            match run.physical {
                None => piece.fill(0),
                Some(block) => {
                    let at = self.geometry().offset_of(block) + within;
                    self.cache.device().read_data_at(at, piece)?;
                }
            }
            done += piece.len();
        }
        Ok(length)
    }

    /// Returns the file block that contains a byte; `None` past the maximum file size.
    fn block_at(&self, offset: u64) -> Option<FileBlock> {
        let reach = self.geometry().size_max();
        (offset < reach).then(|| FileBlock((offset / self.block_bytes()) as u32))
    }

    /// Writes as many bytes as fit in the free space; fails if there is no space for any byte. The
    /// caller must store the changed inode.
    pub(crate) fn write_data(
        &mut self,
        inode: &mut Inode,
        offset: u64,
        data: &[u8],
    ) -> Result<usize> {
        let size_max = self.geometry().size_max();
        if data.is_empty() {
            return Ok(0);
        }
        if offset >= size_max {
            return Err(Errno::FBIG.into());
        }
        let data = &data[..(size_max - offset).min(data.len() as u64) as usize];
        if offset > inode.size {
            self.zero_mapped(inode, inode.size..offset)?;
        }
        let mut batch = Batch { data, parts: Vec::new(), taken: Vec::new() };
        let mapped = self.map_all(inode, offset, &mut batch);
        match mapped.and_then(|length| self.write_batch(&mut batch).map(|()| length)) {
            Ok(length) => {
                inode.size = inode.size.max(offset + length as u64);
                Ok(length)
            }
            Err(error) => {
                // Unmap the new blocks, which may still contain old content of other files.
                self.unmap_each(inode, batch.taken)?;
                Err(error)
            }
        }
    }

    /// Maps the blocks for a write. Returns the number of bytes that fit in them.
    fn map_all(&mut self, inode: &mut Inode, offset: u64, batch: &mut Batch<'_>) -> Result<usize> {
        let clusters = self.options.clustering == Clustering::Smart;
        let block_bytes = self.block_size().bytes();
        let mut done = 0;
        for piece in pieces(self.block_bytes(), offset..offset + batch.data.len() as u64) {
            // If all free blocks were freed recently and cannot be reused yet, mapping the next
            // block causes a flush. That flush writes pointers to the blocks mapped before, so
            // their content must already be on the device.
            if !self.space.has_blocks_now(PATH_BLOCKS_MAX) {
                self.write_batch(batch)?;
            }
            let mapped = match self.map_for_writing(inode, piece.block) {
                Ok(mapped) => mapped,
                Err(error) if done == 0 || !error.is(Errno::NOSPC) => return Err(error),
                Err(_) => break,
            };
            let start = self.geometry().offset_of(mapped.block);
            if mapped.fresh {
                batch.taken.push(piece.block.0.into());
                if piece.length < block_bytes {
                    self.write_zeros(start, block_bytes)?;
                }
            }
            batch.add(start + piece.start as u64, done..done + piece.length);
            done += piece.length;
            if clusters && piece.start + piece.length == block_bytes {
                self.written(inode, (piece.block, mapped.block), |volume| {
                    volume.write_batch(batch)
                })?;
            }
        }
        Ok(done)
    }

    fn write_batch(&mut self, batch: &mut Batch<'_>) -> Result<()> {
        let mut parts = std::mem::take(&mut batch.parts).into_iter();
        parts.try_for_each(|(at, range)| self.write_bytes(at, &batch.data[range]))
    }

    /// Writes bytes of a file to the device.
    pub(crate) fn write_bytes(&mut self, at: u64, bytes: &[u8]) -> Result<()> {
        self.data_written = true;
        Ok(self.cache.device().write_data_at(at, bytes)?)
    }

    fn write_zeros(&mut self, at: u64, length: usize) -> Result<()> {
        self.write_bytes(at, &vec![0; length])
    }

    fn unmap_each(&mut self, inode: &mut Inode, blocks: Vec<u64>) -> Result<()> {
        blocks.into_iter().try_for_each(|block| self.unmap(inode, block..block + 1))
    }

    /// Zeroes the mapped part of a range that starts at the old or new end of the file.
    fn zero_mapped(&mut self, inode: &Inode, range: Range<u64>) -> Result<()> {
        // Only the block that contains the start of the range can be mapped; the rest is a hole.
        let block_end = range.start.next_multiple_of(self.block_bytes());
        let range = range.start..range.end.min(block_end);
        self.zero_range_mapped(inode, range)
    }

    fn zero_range_mapped(&mut self, inode: &Inode, range: Range<u64>) -> Result<()> {
        for piece in pieces(self.block_bytes(), range) {
            if let Some(block) = self.map(inode, piece.block)? {
                let at = self.geometry().offset_of(block) + piece.start as u64;
                self.write_zeros(at, piece.length)?;
            }
        }
        Ok(())
    }

    /// Sets the size of a file and frees the blocks past the new end. The inode is changed but not
    /// stored.
    pub(crate) fn truncate(&mut self, inode: &mut Inode, size: u64) -> Result<()> {
        if size > self.geometry().size_max() {
            return Err(Errno::FBIG.into());
        }
        if size > inode.size {
            self.zero_mapped(inode, inode.size..size)?;
        } else {
            self.unmap(inode, size.div_ceil(self.block_bytes())..u64::MAX)?;
            self.zero_mapped(inode, size..u64::MAX)?;
        }
        inode.size = size;
        Ok(())
    }

    /// Unmaps the blocks that are completely in a range and zeroes the rest of the range.
    pub(crate) fn punch(&mut self, inode: &mut Inode, range: Range<u64>) -> Result<()> {
        let bytes = self.block_bytes();
        let end = range.end.min(inode.size.next_multiple_of(bytes));
        let first = range.start.div_ceil(bytes);
        let last = end / bytes;
        if first >= last {
            return self.zero_range_mapped(inode, range.start..end);
        }
        self.zero_range_mapped(inode, range.start..first * bytes)?;
        self.unmap(inode, first..last)?;
        self.zero_range_mapped(inode, last * bytes..end)
    }

    /// Fills the holes in a range with blocks of zeros. On failure, no hole is filled.
    pub(crate) fn fill_holes(&mut self, inode: &mut Inode, range: Range<u64>) -> Result<()> {
        let bytes = self.block_bytes();
        if range.is_empty() {
            return Ok(());
        }
        let mut blocks = range.start / bytes..range.end.div_ceil(bytes);
        let missing = self.count_holes(inode, blocks.clone())?;
        let indirect = missing / u64::from(self.block_size().pointers());
        if !self.space.has_blocks(missing + indirect, self.privileged) {
            return Err(Errno::NOSPC.into());
        }
        let mut taken = Vec::new();
        let answer = blocks.try_for_each(|block| {
            let mapped = self.map_for_writing(inode, FileBlock(block as u32))?;
            if mapped.fresh {
                taken.push(block);
                self.write_zeros(self.geometry().offset_of(mapped.block), bytes as usize)?;
            }
            Ok(())
        });
        if answer.is_err() {
            self.unmap_each(inode, taken)?;
        }
        answer
    }

    fn count_holes(&self, inode: &Inode, blocks: Range<u64>) -> Result<u64> {
        let mut holes = 0;
        let mut at = blocks.start;
        while at < blocks.end {
            let most = (blocks.end - at).min(u64::from(u32::MAX)) as u32;
            let run = self.map_run(inode, FileBlock(at as u32), most)?;
            if run.physical.is_none() {
                holes += u64::from(run.length);
            }
            at += u64::from(run.length);
        }
        Ok(holes)
    }

    /// Zeroes a range of a file. Holes in the range are filled with blocks of zeros.
    pub(crate) fn zero(&mut self, inode: &mut Inode, range: Range<u64>) -> Result<()> {
        self.fill_holes(inode, range.clone())?;
        self.zero_range_mapped(inode, range)
    }

    /// Returns the offset of the next data or hole at or after `offset`.
    pub(crate) fn seek(&self, inode: &Inode, offset: u64, to: SeekTo) -> Result<u64> {
        if offset >= inode.size {
            return Err(Errno::NXIO.into());
        }
        let mut at = offset;
        // Each data block is counted once. If a file has more blocks than the file system, its
        // block map has a cycle.
        let mut budget = u64::from(self.geometry().blocks);
        while at < inode.size {
            let Some(first) = self.block_at(at) else { break };
            let left = (inode.size - at).div_ceil(self.block_bytes()) + 1;
            let most = left.min(u64::from(u32::MAX)) as u32;
            let run = self.map_run(inode, first, most)?;
            if run.physical.is_some() == (to == SeekTo::Data) {
                return Ok(at);
            }
            if run.physical.is_some() {
                budget = budget
                    .checked_sub(run.length.into())
                    .ok_or_else(|| Error::damaged(Place::Inode(inode.no), Flaw::TooManyBlocks))?;
            }
            at = (u64::from(first.0) + u64::from(run.length)) * self.block_bytes();
        }
        if to == SeekTo::Hole { Ok(inode.size) } else { Err(Errno::NXIO.into()) }
    }
}

/// The unwritten part of a write.
struct Batch<'a> {
    data: &'a [u8],
    /// Device offsets and ranges of the data; adjacent parts are merged.
    parts: Vec<(u64, Range<usize>)>,
    /// The file blocks that were holes before the write.
    taken: Vec<u64>,
}

impl Batch<'_> {
    fn add(&mut self, at: u64, range: Range<usize>) {
        match self.parts.last_mut() {
            Some((start, last)) if *start + last.len() as u64 == at && last.end == range.start => {
                last.end = range.end;
            }
            _ => self.parts.push((at, range)),
        }
    }
}
