//! Staging: appended data is written unencoded to a *staging area* far behind the last frame, and
//! the write returns. Other threads encode each chunk that is full, and a later operation appends
//! the encoded frame.
//!
//! A program that writes one chunk or piece after the other, such as cp(1) or tar(1), thus keeps
//! all processors busy. The data is in the lower file when the write returns, so it survives if the
//! daemon is killed.
//!
//! A staged chunk is the next frame of the journal, written at another offset. It consists of one
//! or several raw frames, with the sequence number that the encoded frame will have. While a file
//! has a staging area, only these encoded frames are appended. Every other change first ends
//! staging (see `commit::clear_end`). So recovery can determine which staged frames are not in the
//! journal yet.

use std::sync::Arc;

use fslab_vfs::{Errno, Result, WriteOptions};

use super::context::{Io, Settings, is_full};
use super::encoder::encode;
use super::format::{Kind, SIZE_MAX, STAGING_SLOTS};
use super::frame::{Frame, NewFrame, append_with};
use super::journal::Behind;
use super::log::Log;
use super::reader::{Piece, pieces};
use super::reclaim_policy::free_bytes;
use super::staging_area::{Appended, Area, Job, OpenChunk, StagedChunk, find};

/// Number of chunks that must be appended in a row before staging begins. Small files and files
/// that are also read or overwritten would not gain.
const ROW_CHUNKS: u64 = 4;

/// Staging does not begin if the pieces are on average shorter than a chunk divided by this number,
/// because a slot has no room for so many headers.
const PIECES_MAX: u64 = 64;

/// Staging begins only if the lower file system has at least this many times the space of a
/// staging area. So a full disk is usually found before a write returns.
const FREE_AREAS: u64 = 16;

/// The effect of staging a write.
#[derive(Default)]
pub struct Staged {
    /// Number of bytes that were staged, which may be less than was to be written.
    pub bytes: usize,
    /// The jobs of the chunks that are full now.
    pub jobs: Vec<Arc<Job>>,
}

impl Log {
    /// Returns the number of bytes of a write that must be written directly before the rest is
    /// staged. It is not zero if staging begins with this write, and the write first fills up the
    /// current chunk. Returns `None` unless the write appends at most one chunk, and follows
    /// several such writes.
    pub fn staging_start(&self, settings: &Settings, offset: u64, length: usize) -> Option<usize> {
        let chunk_bytes = self.map.chunk_bytes();
        let is_possible = settings.stages
            && offset == self.size()
            && offset <= SIZE_MAX - chunk_bytes
            && length as u64 <= chunk_bytes
            && !self.staging.is_refused
            && self.identity().codec.compresses
            && settings.workers.count() > 1;
        if !is_possible {
            return None;
        }
        let border = (offset.next_multiple_of(chunk_bytes) - offset) as usize;
        if self.journal.is_staging() {
            // No chunk is added to an area that recovery found. Without an open chunk, staging
            // continues only at the border of a chunk.
            let is_ready = self.staging.open.is_some() || border == 0;
            return (self.staging.is_own && is_ready).then_some(0);
        }
        let is_ready = self.journal.is_end_clear()
            && settings.staged.has_room()
            && self.has_appended_enough()
            && border < length
            && (border > 0 || self.map.segment_count() == 0);
        is_ready.then_some(border)
    }

    /// Counts a write, to recognise programs that append one piece after the other.
    pub fn note_write_for_staging(&mut self, offset: u64, length: usize) {
        let length = length as u64;
        let is_append = offset.checked_add(length) == Some(self.size());
        let Appended { bytes, writes } = self.staging.appended;
        self.staging.appended = match is_append && length <= self.map.chunk_bytes() {
            true => Appended { bytes: bytes.saturating_add(length), writes: writes + 1 },
            false => Appended::default(),
        };
    }

    /// Whether the appends in a row are many and large enough for staging to begin.
    fn has_appended_enough(&self) -> bool {
        let (chunk_bytes, Appended { bytes, writes }) =
            (self.map.chunk_bytes(), self.staging.appended);
        bytes >= ROW_CHUNKS * chunk_bytes && bytes / writes.max(1) >= chunk_bytes / PIECES_MAX
    }

    /// Stages data that is appended at the end of the file, or only as much of it as there is room
    /// for.
    ///
    /// # Errors
    /// Errors of the lower file. The file is then unchanged, except that chunks staged earlier may
    /// have been appended.
    pub fn stage(&mut self, io: Io<'_>, data: &[u8], options: WriteOptions) -> Result<Staged> {
        let mut staged = Staged::default();
        for piece in pieces(self.map.chunk_bytes(), self.size(), data.len() as u64) {
            match self.stage_piece(io, piece, piece.of(data), options) {
                Ok(true) => staged.bytes += piece.of(data).len(),
                Ok(false) => break,
                // The write of the remaining data will return the error.
                Err(_) if staged.bytes > 0 => break,
                Err(error) => return Err(error),
            }
            if u64::from(piece.end) == self.map.chunk_bytes() {
                staged.jobs.extend(self.close_open_chunk());
            }
        }
        Ok(staged)
    }

    /// Stages a piece of a chunk; returns whether there was room for it.
    fn stage_piece(
        &mut self,
        io: Io<'_>,
        piece: Piece,
        data: &[u8],
        options: WriteOptions,
    ) -> Result<bool> {
        if self.staging.open.is_none() && !self.open_chunk(io, piece.chunk)? {
            return Ok(false);
        }
        let identity = *self.identity();
        let Some(open) = &mut self.staging.open else { return Ok(false) };
        let is_chunk = data.len() as u64 == identity.chunk_bytes();
        let frame = Frame {
            kind: if is_chunk { Kind::Data } else { Kind::Segment },
            raw: true,
            from: piece.start,
            length: data.len() as u32,
            file_size: open.frame.file_size + data.len() as u64,
            ..open.frame
        };
        let mut written = io.settings.staged.buffer((open.limit - open.end) as usize);
        let frame = append_with(&mut written.bytes, open.end, &identity, frame, |bytes| {
            (identity.codec.store)(data, bytes);
        });
        if frame.reference.end() > open.limit {
            return Ok(false);
        }
        match io.lower.write(io.request, open.end, &written, options) {
            // The encoded chunk may need less space, so the data is written directly.
            Err(error) if is_full(&error) => return Ok(false),
            done => done?,
        }
        open.add(data, frame.reference.end());
        self.journal.note_write();
        self.map.stage(&frame);
        Ok(true)
    }

    /// Prepares a slot for a chunk; returns whether there is one.
    fn open_chunk(&mut self, io: Io<'_>, chunk: u64) -> Result<bool> {
        while let Some(oldest) = self.staging.chunks.front() {
            let is_full = self.staging.chunks.len() as u64 >= STAGING_SLOTS;
            if !oldest.is_encoded() && !is_full && io.settings.staged.has_room() {
                break;
            }
            self.append_staged(io)?;
        }
        let Some(area) = self.staging_area(io)? else { return Ok(false) };
        let sequence = self.journal.sequence() + self.staging.chunks.len() as u64 + 1;
        let frame = Frame { sequence, ..Frame::new(Kind::Data, chunk, self.size()) };
        let slot = area.slot(sequence);
        self.map.cool_down();
        self.staging.open = Some(OpenChunk {
            frame,
            content: io.settings.staged.buffer(self.map.chunk_bytes() as usize),
            end: slot,
            limit: slot + area.slot_bytes,
        });
        Ok(true)
    }

    /// Lets the open chunk be encoded; returns its job.
    pub fn close_open_chunk(&mut self) -> Option<Arc<Job>> {
        let open = self.staging.open.take()?;
        // A chunk whose first piece could not be written is not needed.
        if open.content.is_empty() {
            return None;
        }
        let chunk = open.close(self.identity().codec);
        let job = chunk.job.clone();
        self.staging.chunks.push_back(chunk);
        job
    }

    /// Returns the staging area, and makes it if necessary. Returns `None` if the frames would grow
    /// into it, or if the lower file system can't extend the file by this area.
    fn staging_area(&mut self, io: Io<'_>) -> Result<Option<Area>> {
        if let Some(area) = self.staging.area {
            let needed = (STAGING_SLOTS + 1) * area.slot_bytes;
            return Ok((self.end() + needed <= area.base).then_some(area));
        }
        let area = Area::behind(self.identity(), self.end());
        if free_bytes(io)? < FREE_AREAS * (area.end() - area.base) {
            return Ok(None);
        }
        self.journal.prepare_end(io)?;
        if let Err(error) = extend_by_hole(io, self.end(), area.end()) {
            tracing::debug!(%error, file = %io.lower.name(), "can't make a staging area");
            let is_lasting = [Errno::OPNOTSUPP, Errno::NOSYS, Errno::FBIG, Errno::PERM];
            self.staging.is_refused = is_lasting.contains(&error.errno());
            return Ok(None);
        }
        self.journal.note_behind(Behind::Staged);
        self.journal.note_write();
        (self.staging.area, self.staging.is_own) = (Some(area), true);
        Ok(Some(area))
    }

    /// Appends the frame of the oldest staged chunk.
    fn append_staged(&mut self, io: Io<'_>) -> Result<()> {
        let Some(head) = self.staging.chunks.front_mut() else { return Ok(()) };
        let staged = head.frame;
        let taken = match &head.job {
            Some(job) => job.take(io.settings)?,
            None => None,
        };
        head.job = None;
        let encoded = match taken {
            Some(encoded) => encoded,
            None => {
                let content = self.map.chunk_content(io, staged.position)?;
                encode(io.settings, self.identity().codec, &content.bytes)?
            }
        };
        let frame = Frame { raw: encoded.raw, ..staged };
        // Applying the frame can then no longer fail.
        self.map.load_paths(io, &frame, &[])?;
        let mut batch = self.journal.begin(self.identity().header_bytes() + encoded.body.len());
        let new = NewFrame { frame, body: encoded.body, payload: Vec::new() };
        batch.add(self.identity(), new);
        self.append(io, &batch, WriteOptions::default())?;
        self.staging.chunks.pop_front();
        self.map.trim();
        self.ask_for_commit_where_due();
        Ok(())
    }

    /// Encodes the staged chunks, in parallel if that is worthwhile.
    ///
    /// # Errors
    /// `ENOMEM` if encoding fails.
    pub fn encode_staged(&self, io: Io<'_>) -> Result<()> {
        let jobs = self.staging.chunks.iter().filter_map(|chunk| chunk.job.as_deref());
        let mut jobs: Vec<&Job> = jobs.collect();
        let run = |job: &mut &Job| job.run(io.settings);
        io.settings.workers.side_by_side(&mut jobs, &run).into_iter().collect()
    }

    /// Appends the frames of all staged chunks.
    ///
    /// # Errors
    /// Errors of the lower file, such as `ENOSPC`. The chunks that were not appended stay staged.
    pub fn append_all_staged(&mut self, io: Io<'_>) -> Result<()> {
        while !self.staging.chunks.is_empty() {
            self.append_staged(io)?;
        }
        Ok(())
    }

    /// Whether recovery found the staging area.
    pub fn is_staging_recovered(&self) -> bool {
        self.journal.is_staging() && !self.staging.is_own
    }

    /// Appends the frames of all staged chunks and removes the area.
    ///
    /// # Errors
    /// Errors of the lower file.
    pub fn end_staging(&mut self, io: Io<'_>) -> Result<()> {
        self.append_all_staged(io)?;
        io.lower.truncate(io.request, self.end())?;
        self.journal.note_behind(Behind::Nothing);
        self.journal.note_write();
        (self.staging.area, self.staging.appended) = (None, Appended::default());
        Ok(())
    }

    /// Looks for a staging area in a lower file of `length` bytes, and takes over the chunks that
    /// the journal lacks. Returns whether there is an area.
    ///
    /// # Errors
    /// Errors of reading the lower file.
    pub fn find_staged(&mut self, io: Io<'_>, length: u64) -> Result<bool> {
        let identity = *self.identity();
        let last = (self.end(), self.journal.sequence());
        let Some(found) = find(io, &identity, last, length)? else { return Ok(false) };
        // Left-out frames show that power failed. A staged chunk that follows them was not synced.
        let is_of_use = !self.journal.has_left_out();
        for pieces in found.chunks.into_iter().take_while(|_| is_of_use) {
            let Some(frame) = self.staged_frame(&pieces) else { break };
            pieces.iter().for_each(|piece| self.map.stage(piece));
            self.staging.chunks.push_back(StagedChunk { frame, job: None });
        }
        (self.staging.area, self.staging.is_own) = (Some(found.area), false);
        Ok(true)
    }

    /// Bytes between the last frame and the staging area, which are a hole of the lower file.
    pub fn bytes_before_staging(&self) -> u64 {
        self.staging.area.map_or(0, |area| area.base.saturating_sub(self.end()))
    }

    /// Returns the header of the encoded frame for a chunk that recovery found, if its pieces begin
    /// at the end of the file.
    fn staged_frame(&self, pieces: &[Frame]) -> Option<Frame> {
        let (first, last) = (pieces.first()?, pieces.last()?);
        let start = first.position.checked_mul(self.map.chunk_bytes())?;
        let is_size_right =
            |piece: &Frame| start.checked_add(piece.entry().to.into()) == Some(piece.file_size);
        let length = last.entry().to;
        let follows = start == self.size()
            && first.from == 0
            && u64::from(length) <= self.map.chunk_bytes()
            && pieces.iter().all(is_size_right);
        follows.then_some(Frame { kind: Kind::Data, from: 0, length, ..*last })
    }
}

/// Extends a lower file from `end` to `length`. The bytes must take no space.
///
/// # Errors
/// Errors of the lower file, which is then unchanged. `EOPNOTSUPP` if its file system can't free
/// space within a file, because it may then also be unable to store a hole.
fn extend_by_hole(io: Io<'_>, end: u64, length: u64) -> Result<()> {
    io.lower.punch(io.request, end, length - end)?;
    io.lower.truncate(io.request, length)
}
