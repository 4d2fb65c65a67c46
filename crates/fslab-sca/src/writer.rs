//! Changes a stored file. Every change consists of appended frames, which are written before the
//! change takes effect. If that write fails, nothing has changed (see `journal`).

use std::ops::Range;
use std::sync::Arc;

use fslab_vfs::{Errno, Result, WriteOptions};

use super::content::{Content, merge};
use super::context::{Io, too_large};
use super::encoder::{Encoded, encode};
use super::format::{Kind, METADATA_BYTES_MAX, SEGMENTS_MAX, SIZE_MAX};
use super::frame::{Encoding, Frame, NewFrame};
use super::journal::Batch;
use super::log::Log;
use super::pre_encode::PreEncoded;
use super::reader::{Piece, pieces};

/// Bytes written after which a commit with a checkpoint is due.
const COMMIT_BYTES: u64 = 64 << 20;
/// Number of changed index pages after which a commit is due as well; each page takes 4 KiB of
/// memory. A file of 64 GiB in chunks of 128 KiB never has more.
const CHANGED_PAGES_MAX: usize = 4096;
/// An appended piece is kept raw if it is not longer than a chunk divided by this number.
const RAW_PART: u64 = 4;

/// The part of a written piece that is kept in memory.
enum Kept<'a> {
    /// The whole content of the chunk.
    Chunk(Content),
    /// The bytes that were appended to the chunk.
    Appended(&'a [u8]),
    Nothing,
}

impl Log {
    /// Writes `data` at `offset`; some chunks may already be encoded in `prepared`.
    pub fn write(
        &mut self,
        io: Io<'_>,
        (offset, data): (u64, &[u8]),
        prepared: &mut PreEncoded,
        options: WriteOptions,
    ) -> Result<()> {
        let length = data.len() as u64;
        let end = offset.checked_add(length).filter(|end| *end <= SIZE_MAX);
        end.ok_or_else(too_large)?;
        if offset == self.size() {
            self.settle_other_tail(io, offset / self.map.chunk_bytes())?;
        }
        prepared.keep_if(Encoding::from(self.identity()), offset);
        let (mut frames, mut written) = (Vec::new(), Vec::new());
        for piece in pieces(self.map.chunk_bytes(), offset, length) {
            let (frame, kept) = self.encoded_piece(io, piece, piece.of(data), prepared)?;
            frames.push(frame);
            written.push((piece, kept));
        }
        self.append_frames(io, frames, options)?;
        for (piece, kept) in &written {
            if let Kept::Chunk(content) = kept {
                self.keep_decoded(io, piece.chunk, content)?;
            }
        }
        if let Some((piece, kept)) = written.pop() {
            self.keep_hot(piece, kept);
        }
        self.map.trim();
        Ok(())
    }

    /// Makes the frame for one piece of a write. It is a raw frame with the appended bytes, or a
    /// frame with the whole content of the chunk.
    fn encoded_piece<'a>(
        &self,
        io: Io<'_>,
        piece: Piece,
        data: &'a [u8],
        prepared: &mut PreEncoded,
    ) -> Result<(NewFrame, Kept<'a>)> {
        let codec = self.identity().codec;
        let is_whole = data.len() as u64 == self.map.chunk_bytes();
        let (kind, from, length, encoded, kept) = if self.takes_raw(io, piece)? {
            let encoded = Encoded { raw: true, body: codec.stored(data) };
            (Kind::Segment, piece.start, data.len(), encoded, Kept::Appended(data))
        } else if is_whole {
            let encode = || encode(io.settings, codec, data);
            let encoded = prepared.take(piece.chunk).map_or_else(encode, Ok)?;
            (Kind::Data, 0, data.len(), encoded, Kept::Nothing)
        } else {
            let content = self.changed_content(io, piece, data)?;
            let encoded = encode(io.settings, codec, &content.bytes)?;
            (Kind::Data, content.from, content.bytes.len(), encoded, Kept::Chunk(content))
        };
        let end = piece.chunk * self.map.chunk_bytes() + u64::from(piece.end);
        let file_size = self.size().max(end);
        let (raw, length) = (encoded.raw, length as u32);
        let frame = Frame { raw, from, length, ..Frame::new(kind, piece.chunk, file_size) };
        Ok((NewFrame { frame, body: encoded.body, payload: Vec::new() }, kept))
    }

    /// Returns the whole content of a chunk after a piece of it was written.
    fn changed_content(&self, io: Io<'_>, piece: Piece, data: &[u8]) -> Result<Content> {
        let start = piece.chunk * self.map.chunk_bytes();
        let old_end = self.size().min(start + self.map.chunk_bytes());
        // Content that is overwritten completely need not be read.
        let covers_all = piece.start == 0 && start + u64::from(piece.end) >= old_end;
        let mut content = match covers_all {
            true => Content::default(),
            false => self.map.chunk_content(io, piece.chunk)?,
        };
        merge(&mut content, piece.start, data);
        Ok(content)
    }

    /// Whether a piece will be stored raw, as part of a tail.
    fn takes_raw(&self, io: Io<'_>, piece: Piece) -> Result<bool> {
        let chunk_bytes = self.map.chunk_bytes();
        let appends = piece.chunk * chunk_bytes + u64::from(piece.start) == self.size();
        let is_small = u64::from(piece.end - piece.start) <= chunk_bytes / RAW_PART;
        let leaves_room = u64::from(piece.end) < chunk_bytes;
        if !(io.settings.tails && appends && piece.start > 0 && is_small && leaves_room)
            || self.map.segment_count() >= SEGMENTS_MAX
        {
            return Ok(false);
        }
        Ok(!self.map.segments(piece.chunk).is_empty() || self.map.entry(io, piece.chunk)?.is_some())
    }

    /// Encodes the tail of any other chunk, because only one chunk may have a tail.
    fn settle_other_tail(&mut self, io: Io<'_>, chunk: u64) -> Result<()> {
        let other = self.map.tails().map(|(other, _)| other).find(|other| *other != chunk);
        match other.map_or(Ok(()), |other| self.encode_tail(io, other)) {
            // A damaged tail is not encoded, because some of its pieces can still be read.
            Err(error) if error.errno() == Errno::IO => Ok(()),
            answer => answer,
        }
    }

    fn keep_hot(&mut self, piece: Piece, kept: Kept<'_>) {
        match kept {
            Kept::Chunk(content) => self.map.keep_hot(piece.chunk, content),
            Kept::Appended(data) => self.map.add_to_hot(piece.chunk, piece.start, data),
            Kept::Nothing => self.map.cool_down(),
        }
    }

    /// Encodes a chunk that has a tail into one frame.
    pub fn encode_tail(&mut self, io: Io<'_>, chunk: u64) -> Result<()> {
        let content = self.map.chunk_content(io, chunk)?;
        self.replace(io, chunk, content, WriteOptions::default())
    }

    /// Replaces the content of a chunk without changing the size.
    pub fn replace(
        &mut self,
        io: Io<'_>,
        chunk: u64,
        content: Content,
        options: WriteOptions,
    ) -> Result<()> {
        let frame = self.encoded(io, chunk, &content)?;
        self.append_frames(io, vec![frame], options)?;
        self.keep_decoded(io, chunk, &content)?;
        self.map.keep_hot(chunk, content);
        Ok(())
    }

    /// Caches the decoded content of a partly changed chunk for the next reader or writer.
    fn keep_decoded(&self, io: Io<'_>, chunk: u64, content: &Content) -> Result<()> {
        if let Some(entry) = self.map.entry(io, chunk)? {
            let key = (self.identity().file_id, entry.frame);
            io.settings.cache.insert(key, Arc::clone(&content.bytes));
        }
        Ok(())
    }

    /// Makes a frame for the whole content of a chunk.
    pub fn encoded(&self, io: Io<'_>, chunk: u64, content: &Content) -> Result<NewFrame> {
        let encoded = encode(io.settings, self.identity().codec, &content.bytes)?;
        let extent = (content.from, content.bytes.len() as u32);
        Ok(self.data_frame(chunk, encoded.raw, extent, encoded.body))
    }

    /// Makes a frame for the whole content of a chunk, from its start, length and encoded body.
    pub fn data_frame(
        &self,
        chunk: u64,
        raw: bool,
        (from, length): (u32, u32),
        body: Vec<u8>,
    ) -> NewFrame {
        let frame = Frame { raw, from, length, ..Frame::new(Kind::Data, chunk, self.size()) };
        NewFrame { frame, body, payload: Vec::new() }
    }

    /// Sets the logical size. Content past a smaller size is lost; an extension reads as zeros.
    pub fn set_size(&mut self, io: Io<'_>, size: u64, options: WriteOptions) -> Result<()> {
        if size > SIZE_MAX {
            return Err(too_large());
        }
        if size < self.size() {
            let behind = size.div_ceil(self.map.chunk_bytes())..u64::MAX;
            self.drop_but_for_the_rest(io, behind, options)?;
        }
        let frame = self.metadata(Kind::Size, 0, size, &[]);
        self.append_frames(io, vec![frame], options)
    }

    /// Turns chunks at the start of the range into holes until the index pages of the remaining
    /// chunks fit into memory. Returns the first remaining chunk.
    pub fn drop_but_for_the_rest(
        &mut self,
        io: Io<'_>,
        chunks: Range<u64>,
        options: WriteOptions,
    ) -> Result<u64> {
        let mut rest = chunks;
        loop {
            let part = rest.start..self.map.end_of_pages(io, &rest, CHANGED_PAGES_MAX)?;
            if part.end >= rest.end {
                return Ok(rest.start);
            }
            rest.start = part.end;
            let hole = self.hole(part);
            self.append_frames(io, vec![hole], options)?;
        }
    }

    /// Makes a frame that turns whole chunks into holes.
    pub fn hole(&self, chunks: Range<u64>) -> NewFrame {
        let count = (chunks.end - chunks.start).to_le_bytes();
        self.metadata(Kind::Hole, chunks.start, self.size(), &count)
    }

    /// Makes a frame of metadata, without a sequence number yet.
    pub fn metadata(&self, kind: Kind, position: u64, file_size: u64, payload: &[u8]) -> NewFrame {
        debug_assert!(payload.len() <= METADATA_BYTES_MAX, "readers refuse longer payloads");
        let length = payload.len() as u32;
        let frame = Frame { length, ..Frame::new(kind, position, file_size) };
        let body = (self.identity().codec.container.pack)(payload);
        NewFrame { frame, body, payload: payload.to_vec() }
    }

    /// Appends frames with one write, then applies them.
    pub fn append_frames(
        &mut self,
        io: Io<'_>,
        frames: Vec<NewFrame>,
        options: WriteOptions,
    ) -> Result<()> {
        if frames.is_empty() {
            return Ok(());
        }
        self.journal.prepare_end(io)?;
        for new in &frames {
            self.map.load_paths(io, &new.frame, &new.payload)?;
        }
        let header_bytes = self.identity().header_bytes();
        let bytes = frames.iter().map(|frame| header_bytes + frame.body.len()).sum();
        let mut batch = self.journal.begin(bytes);
        for new in frames {
            batch.add(self.identity(), new);
        }
        self.append(io, &batch, options)?;
        self.checkpoint_where_due(io)
    }

    /// Writes a batch of frames, then applies them.
    pub fn append(&mut self, io: Io<'_>, batch: &Batch, options: WriteOptions) -> Result<()> {
        self.journal.write(io, batch, options)?;
        batch.frames().try_for_each(|(frame, payload)| self.apply(io, frame, payload))
    }

    /// Makes a commit due if the walk after the last commit gets long, or if too many changed index
    /// pages are in memory. Returns whether there are too many.
    pub fn ask_for_commit_where_due(&mut self) -> bool {
        let has_many_pages = self.map.changed_pages() >= CHANGED_PAGES_MAX;
        if has_many_pages || self.end().saturating_sub(self.commits.end()) >= COMMIT_BYTES {
            self.commits.ask();
        }
        has_many_pages
    }

    /// Writes the changed index pages if too many are in memory, and makes a commit due if the walk
    /// after the last commit gets long.
    fn checkpoint_where_due(&mut self, io: Io<'_>) -> Result<()> {
        let has_many_pages = self.ask_for_commit_where_due();
        // If a checkpoint can't list all raw pieces, a caller may be encoding tails to make a
        // checkpoint possible.
        let is_room_made = self.map.segment_count() > SEGMENTS_MAX;
        if !has_many_pages || is_room_made {
            return Ok(());
        }
        match self.write_checkpoint(io) {
            // The change has taken effect, and recovery can find it by its frames. The error is
            // returned only for a packed copy, so that the copy is abandoned.
            Err(error) if !self.journal.is_copy() => {
                tracing::debug!(%error, file = %io.lower.name(), "can't write a checkpoint");
                Ok(())
            }
            written => written,
        }
    }
}

/// Returns the end of a range, or an error if it is empty or too large.
pub fn check_range(offset: u64, length: u64) -> Result<u64> {
    if length == 0 {
        return Err(Errno::INVAL.into());
    }
    offset.checked_add(length).filter(|end| *end <= SIZE_MAX).ok_or_else(too_large)
}

#[cfg(test)]
mod tests;
