//! The bytes of a regular file, sparse, in pages of 4 KiB.
//!
//! Invariant: bytes at or past the size are zero in every page, so growing a file never shows
//! content from an earlier, longer version.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use crate::error::Errno;
use crate::types::SeekTo;

use super::space::{PAGE_BYTES, Space};

/// The largest file size; offsets are signed 64-bit numbers in the kernel.
pub(super) const MAX_SIZE: u64 = i64::MAX as u64;

type Page = Box<[u8; PAGE_BYTES as usize]>;

#[derive(Debug, Default)]
pub(crate) struct Data {
    size: u64,
    /// Pages by number. `None` is reserved space that was never written. It reads as zeros and is
    /// treated as a hole, like an unwritten extent.
    pages: BTreeMap<u64, Option<Page>>,
}

/// The part of a range that lies in one page.
struct Piece {
    page: u64,
    /// Start within the page.
    start: usize,
    length: usize,
}

/// Splits a range at the borders of pages.
fn pieces(offset: u64, length: u64) -> impl Iterator<Item = Piece> {
    let end = offset + length;
    let mut next = offset;
    std::iter::from_fn(move || {
        let start = next % PAGE_BYTES;
        let length = (PAGE_BYTES - start).min(end - next);
        let piece =
            Piece { page: next / PAGE_BYTES, start: start as usize, length: length as usize };
        next += length;
        (length > 0).then_some(piece)
    })
}

impl Data {
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Number of allocated pages, including reserved ones.
    pub fn pages(&self) -> u64 {
        self.pages.len() as u64
    }

    /// Reads from `offset` up to the end of the file; returns the number of bytes read.
    pub fn read(&self, offset: u64, buffer: &mut [u8]) -> usize {
        let length = self.size.saturating_sub(offset).min(buffer.len() as u64);
        let mut done = 0;
        for piece in pieces(offset, length) {
            let target = &mut buffer[done..done + piece.length];
            match self.pages.get(&piece.page) {
                Some(Some(page)) => {
                    target.copy_from_slice(&page[piece.start..piece.start + piece.length]);
                }
                _ => target.fill(0),
            }
            done += piece.length;
        }
        done
    }

    /// Writes as many bytes as the free space permits, at least one.
    pub fn write(&mut self, space: &mut Space, offset: u64, data: &[u8]) -> Result<usize, Errno> {
        if data.is_empty() {
            return Ok(0);
        }
        if offset >= MAX_SIZE {
            return Err(Errno::FBIG);
        }
        let length = (MAX_SIZE - offset).min(data.len() as u64);
        let mut done = 0;
        for piece in pieces(offset, length) {
            match self.page_for_writing(space, piece.page) {
                Ok(page) => page[piece.start..piece.start + piece.length]
                    .copy_from_slice(&data[done..done + piece.length]),
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
            done += piece.length;
        }
        self.size = self.size.max(offset + done as u64);
        Ok(done)
    }

    fn page_for_writing(&mut self, space: &mut Space, number: u64) -> Result<&mut Page, Errno> {
        let page = match self.pages.entry(number) {
            Entry::Occupied(page) => page.into_mut(),
            Entry::Vacant(free) => {
                space.take(1)?;
                free.insert(None)
            }
        };
        Ok(page.get_or_insert_with(|| Box::new([0; PAGE_BYTES as usize])))
    }

    /// Sets the size. Space reserved past the new size is freed.
    pub fn truncate(&mut self, space: &mut Space, size: u64) -> Result<(), Errno> {
        if size > MAX_SIZE {
            return Err(Errno::FBIG);
        }
        if size <= self.size {
            let cut = self.pages.split_off(&size.div_ceil(PAGE_BYTES));
            space.give(cut.len() as u64);
            self.zero_within_page(size, PAGE_BYTES - size % PAGE_BYTES);
        }
        self.size = size;
        Ok(())
    }

    /// Zeroes a range within a page; a hole stays a hole.
    fn zero_within_page(&mut self, offset: u64, length: u64) {
        let start = (offset % PAGE_BYTES) as usize;
        if let Some(Some(page)) = self.pages.get_mut(&(offset / PAGE_BYTES)) {
            page[start..start + length as usize].fill(0);
        }
    }

    /// Reserves space, so that writing the range can't fail for lack of it.
    pub fn reserve(&mut self, space: &mut Space, offset: u64, length: u64) -> Result<(), Errno> {
        let wanted = offset / PAGE_BYTES..(offset + length).div_ceil(PAGE_BYTES);
        let present = self.pages.range(wanted.clone()).count() as u64;
        space.take(wanted.end - wanted.start - present)?;
        for number in wanted {
            self.pages.entry(number).or_insert(None);
        }
        Ok(())
    }

    /// Makes the range read as zeros and reserves its space.
    pub fn zero(&mut self, space: &mut Space, offset: u64, length: u64) -> Result<(), Errno> {
        self.reserve(space, offset, length)?;
        self.clear(offset, length, true);
        Ok(())
    }

    /// Turns the whole pages of a range into holes, and zeroes the rest.
    pub fn punch(&mut self, space: &mut Space, offset: u64, length: u64) {
        let before = self.pages();
        self.clear(offset, length, false);
        space.give(before - self.pages());
    }

    fn clear(&mut self, offset: u64, length: u64, keeps_pages: bool) {
        let end = offset + length;
        let pages = self.pages.range(offset / PAGE_BYTES..end.div_ceil(PAGE_BYTES));
        let present: Vec<u64> = pages.map(|(number, _)| *number).collect();
        for number in present {
            let start = offset.max(number * PAGE_BYTES);
            let length = end.min((number + 1) * PAGE_BYTES) - start;
            if length < PAGE_BYTES {
                self.zero_within_page(start, length);
            } else if keeps_pages {
                self.pages.insert(number, None);
            } else {
                self.pages.remove(&number);
            }
        }
    }

    /// Extends the size to `size` unless the file is longer.
    pub fn extend(&mut self, size: u64) {
        self.size = self.size.max(size);
    }

    /// Returns the next data or hole at or after `offset`.
    pub fn seek(&self, offset: u64, to: SeekTo) -> Result<u64, Errno> {
        if offset >= self.size {
            return Err(Errno::NXIO);
        }
        match to {
            SeekTo::Data => self.next_data(offset).ok_or(Errno::NXIO),
            SeekTo::Hole => Ok(self.next_hole(offset)),
        }
    }

    fn next_data(&self, offset: u64) -> Option<u64> {
        let first = offset / PAGE_BYTES;
        let (number, _) = self.pages.range(first..).find(|(_, page)| page.is_some())?;
        let start = offset.max(number * PAGE_BYTES);
        (start < self.size).then_some(start)
    }

    fn next_hole(&self, offset: u64) -> u64 {
        let first = offset / PAGE_BYTES;
        let mut expected = first;
        for (number, page) in self.pages.range(first..) {
            if *number != expected || page.is_none() {
                break;
            }
            expected += 1;
        }
        offset.max(expected * PAGE_BYTES).min(self.size)
    }
}
