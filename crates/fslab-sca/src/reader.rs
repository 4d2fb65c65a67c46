//! Reads a stored file: the content of chunks, and the positions of data and holes.

use std::sync::Arc;

use fslab_vfs::{Errno, Result, SeekTo};

use super::chunk_map::ChunkMap;
use super::content::{Content, merge};
use super::context::Io;
use super::frame::{Entry, Frame};
use super::frame_reader::{self, Body};
use super::read_ahead::Ready;

/// Message for content that passes its checksum but can't be decoded.
const UNDECODED: &str = "content that can't be decoded";

/// The part of a range that lies in one chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    pub chunk: u64,
    /// Start within the chunk.
    pub start: u32,
    /// End within the chunk, exclusive.
    pub end: u32,
    /// Offset of the piece within the range.
    pub at: usize,
}

impl Piece {
    /// Returns the part of the range's data that belongs to this piece.
    pub fn of(self, data: &[u8]) -> &[u8] {
        &data[self.at..self.at + (self.end - self.start) as usize]
    }
}

/// Splits a range at the borders of chunks.
pub fn pieces(chunk_bytes: u64, offset: u64, length: u64) -> impl Iterator<Item = Piece> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let place = offset + done;
        let start = place % chunk_bytes;
        let count = (chunk_bytes - start).min(length - done);
        let piece = Piece {
            chunk: place / chunk_bytes,
            start: start as u32,
            end: (start + count) as u32,
            at: done as usize,
        };
        done += count;
        (count > 0).then_some(piece)
    })
}

impl ChunkMap {
    /// Reads from `offset` until the buffer is full or the file ends; returns the number of bytes
    /// read. If any part is damaged, the whole read fails. The kernel would take a short read for
    /// the end of the file, and show zeros after it.
    pub fn read(&self, io: Io<'_>, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let length = self.size().saturating_sub(offset).min(buffer.len() as u64);
        let mut rest = &mut buffer[..length as usize];
        let mut parts = Vec::new();
        for piece in pieces(self.chunk_bytes(), offset, length) {
            let (part, behind) = rest.split_at_mut((piece.end - piece.start) as usize);
            parts.push((piece, part));
            rest = behind;
        }
        self.read_parts(io, &mut parts)?;
        self.trim();
        Ok(length as usize)
    }

    /// Reads parts of several chunks, in parallel if that is worthwhile.
    fn read_parts(&self, io: Io<'_>, parts: &mut [(Piece, &mut [u8])]) -> Result<()> {
        let read = |(piece, target): &mut (Piece, &mut [u8])| self.read_piece(io, *piece, target);
        if parts.len() < 2 || !self.identity().codec.compresses {
            return parts.iter_mut().try_for_each(read);
        }
        io.settings.workers.side_by_side(parts, &read).into_iter().collect()
    }

    fn read_piece(&self, io: Io<'_>, piece: Piece, target: &mut [u8]) -> Result<()> {
        if let Some(content) = self.hot(piece.chunk) {
            content.copy_to(piece.start, target);
            return Ok(());
        }
        let holds = |entry: &Entry| entry.from < piece.end && piece.start < entry.to;
        match self.entry(io, piece.chunk)?.filter(holds) {
            Some(entry) => self.read_entry(io, piece, entry, target)?,
            None => target.fill(0),
        }
        for segment in self.segments(piece.chunk) {
            if segment.from < piece.end && piece.start < segment.to {
                let content = self.content_of(io, piece.chunk, *segment, false)?;
                content.overlay(piece.start, target);
            }
        }
        Ok(())
    }

    /// Reads the content of a chunk's indexed frame, with zeros around it. If the reader needs the
    /// whole chunk, the content is decoded directly into the target. It is not cached, because it
    /// will not be needed again soon.
    fn read_entry(&self, io: Io<'_>, piece: Piece, entry: Entry, target: &mut [u8]) -> Result<()> {
        let is_whole = piece.start <= entry.from && entry.to <= piece.end;
        let key = (self.identity().file_id, entry.frame);
        let is_decoded = io.settings.cache.peek(&key).is_some()
            || io.ahead.is_some_and(|ahead| ahead.has(piece.chunk));
        if is_whole && !is_decoded {
            let begin = (entry.from - piece.start) as usize;
            let end = (entry.to - piece.start) as usize;
            target[..begin].fill(0);
            target[end..].fill(0);
            if self.decode_to(io, piece.chunk, entry, &mut target[begin..end])? {
                return Ok(());
            }
        }
        let content = self.content_of(io, piece.chunk, entry, !is_whole)?;
        content.copy_to(piece.start, target);
        Ok(())
    }

    /// Returns the whole content of a chunk.
    pub fn chunk_content(&self, io: Io<'_>, chunk: u64) -> Result<Content> {
        if let Some(content) = self.hot(chunk) {
            return Ok(content.clone());
        }
        let mut content = match self.entry(io, chunk)? {
            Some(entry) => self.content_of(io, chunk, entry, false)?,
            None => Content::default(),
        };
        for segment in self.segments(chunk) {
            let piece = self.content_of(io, chunk, *segment, false)?;
            merge(&mut content, segment.from, &piece.bytes);
        }
        Ok(content)
    }

    /// Returns the part of a frame's content that is valid according to its index entry.
    fn content_of(&self, io: Io<'_>, chunk: u64, entry: Entry, keep: bool) -> Result<Content> {
        let key = (self.identity().file_id, entry.frame);
        let whole = match io.settings.cache.get(&key) {
            Some(whole) => whole,
            None => {
                let ready = io.ahead.and_then(|ahead| ahead.take(chunk, key));
                let whole = match ready {
                    Some(ready) => ready,
                    None => Arc::new(self.decode(io, chunk, entry)?),
                };
                if keep {
                    io.settings.cache.insert(key, Arc::clone(&whole));
                }
                whole
            }
        };
        let count = (entry.to - entry.from) as usize;
        match whole.len() {
            length if length == count => Ok(Content { from: entry.from, bytes: whole }),
            // Truncation shortens the valid content of a chunk only at its end, so the first
            // `count` bytes are valid.
            length if length > count => {
                Ok(Content { from: entry.from, bytes: Arc::new(whole[..count].to_vec()) })
            }
            _ => {
                let what = "a frame with less content than its index entry";
                Err(io.of_chunk(chunk).damaged(entry.frame.offset, what))
            }
        }
    }

    fn decode(&self, io: Io<'_>, chunk: u64, entry: Entry) -> Result<Vec<u8>> {
        let (frame, body) = self.frame_of(io, chunk, entry)?;
        let content = self.identity().codec.decode(&body, frame.length as usize);
        content.ok_or_else(|| io.of_chunk(chunk).damaged(entry.frame.offset, UNDECODED))
    }

    /// Decodes directly into `target` if the frame's content has exactly the length of `target`,
    /// and returns `true`. Otherwise returns `false`.
    fn decode_to(&self, io: Io<'_>, chunk: u64, entry: Entry, target: &mut [u8]) -> Result<bool> {
        let (frame, body) = self.frame_of(io, chunk, entry)?;
        if frame.length as usize != target.len() {
            return Ok(false);
        }
        match self.identity().codec.decode_exactly(&body, target) {
            // The page cache of the encoded frame is dropped, because the decoded content is kept
            // in memory.
            true => {
                io.lower.drop_pages(frame.reference.offset, frame.reference.stored_length.into());
                if chunk == self.size().saturating_sub(1) / self.chunk_bytes() {
                    io.lower.drop_pages_before(frame.reference.end());
                }
                Ok(true)
            }
            false => Err(io.of_chunk(chunk).damaged(entry.frame.offset, UNDECODED)),
        }
    }

    /// Decodes a chunk in advance. Errors are ignored here; the reader will find them itself.
    pub fn decode_ahead(&self, io: Io<'_>, chunk: u64) -> Option<Ready> {
        let entry = self.entry(io, chunk).ok()??;
        let content = Arc::new(self.decode(io, chunk, entry).ok()?);
        io.lower.drop_pages(entry.frame.offset, entry.frame.stored_length.into());
        Some(Ready { key: (self.identity().file_id, entry.frame), content })
    }

    /// Reads a frame with content of a chunk.
    fn frame_of(&self, io: Io<'_>, chunk: u64, entry: Entry) -> Result<(Frame, Body)> {
        let (io, offset) = (io.of_chunk(chunk), entry.frame.offset);
        let (frame, body) = frame_reader::frame(io, self.identity(), entry.frame)?;
        if !frame.kind.has_content() || frame.position != chunk || frame.from != entry.from {
            return Err(io.damaged(offset, "content of another chunk or offset"));
        }
        Ok((frame, body))
    }

    /// Decodes a data frame to check it, for tools that examine every frame.
    pub fn check_content(&self, io: Io<'_>, entry: Entry, chunk: u64) -> Result<()> {
        self.decode(io, chunk, entry).map(drop)
    }

    /// Returns the offset of the next data or hole at or after `offset`.
    pub fn seek(&self, io: Io<'_>, offset: u64, to: SeekTo) -> Result<u64> {
        if offset >= self.size() {
            return Err(Errno::NXIO.into());
        }
        let found = match to {
            SeekTo::Data => self.next_data(io, offset)?,
            SeekTo::Hole => Some(self.next_hole(io, offset)?),
        };
        self.trim();
        found.filter(|place| *place < self.size() || to == SeekTo::Hole).ok_or(Errno::NXIO.into())
    }

    fn next_data(&self, io: Io<'_>, offset: u64) -> Result<Option<u64>> {
        let (mut next, mut passed) = (offset / self.chunk_bytes(), 0);
        while let Some(chunk) = self.next_present(io, next)? {
            let behind = |(start, end): &(u64, u64)| start < end && offset < *end;
            if let Some((start, _)) = self.extent(io, chunk)?.filter(behind) {
                return Ok(Some(start.max(offset)));
            }
            next = chunk + 1;
            passed += 1;
            self.trim_after(passed);
        }
        Ok(None)
    }

    fn next_hole(&self, io: Io<'_>, offset: u64) -> Result<u64> {
        let (mut place, mut passed) = (offset, 0);
        while place < self.size() {
            match self.extent(io, place / self.chunk_bytes())? {
                Some((start, end)) if start <= place && place < end => place = end,
                _ => return Ok(place),
            }
            passed += 1;
            self.trim_after(passed);
        }
        Ok(self.size())
    }

    /// Returns the start and end of a chunk's content in the logical file.
    pub fn extent(&self, io: Io<'_>, chunk: u64) -> Result<Option<(u64, u64)>> {
        let base = chunk * self.chunk_bytes();
        let entries = self.entries(io, chunk)?;
        let from = entries.iter().map(|entry| entry.from).min();
        let to = entries.iter().map(|entry| entry.to).max();
        Ok(from.zip(to).map(|(from, to)| (base + u64::from(from), base + u64::from(to))))
    }
}
