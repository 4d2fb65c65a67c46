//! The journal appends frames to a stored file. Headers of gaps are also written by `gap`,
//! `leading_gaps` and `quarantine`.
//!
//! After a failed write, the written part is cut off again. If that fails too, the next write
//! quarantines it (see `quarantine`).

use std::ops::Range;

use fslab_vfs::{Errno, Result, WriteOptions};

use super::context::Io;
use super::format::HEAD_BYTES;
use super::frame::{Frame, Identity, NewFrame, append};
use super::superblock::{mend_head, new_head};

/// State of the end of a stored file, where frames are appended.
pub struct Journal {
    identity: Identity,
    /// Sequence number of the last frame.
    sequence: u64,
    /// Offset of the next frame.
    end: u64,
    head: Head,
    behind: Behind,
    /// Whether recovery left out frames, and no checkpoint records this yet.
    has_left_out: bool,
    /// Set only for the journal of a packed copy, which is written into a gap of the same file. The
    /// frames must end before this offset.
    limit: Option<u64>,
    /// Number of writes to the lower file.
    writes: u64,
    /// Bytes of frames appended since the seek table was last written.
    bytes_since_closing: u64,
}

/// State of the head of the lower file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Head {
    Missing,
    /// The head was lost, and the file was recognised by its first frame.
    Damaged,
    Whole,
}

/// The data after the last frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Behind {
    Nothing,
    /// A seek table of this many bytes.
    SeekTable(u64),
    /// Bytes that are not a frame.
    Unknown(Range<u64>),
    /// The old content, which packing replaced.
    Superseded,
    /// A staging area (see `staging`).
    Staged,
}

/// Frames to be written with one call.
pub struct Batch {
    base: u64,
    bytes: Vec<u8>,
    /// Sequence number of the last frame in or before the batch.
    sequence: u64,
    /// The frames, each paired with its payload, which only frames of metadata have.
    frames: Vec<(Frame, Vec<u8>)>,
}

impl Batch {
    /// Starts a batch at offset `base`, which follows the frame with the number `sequence`.
    pub fn new(base: u64, sequence: u64) -> Self {
        Self { base, bytes: Vec::new(), sequence, frames: Vec::new() }
    }

    /// Adds a frame, and sets its sequence number and offset.
    pub fn add(&mut self, identity: &Identity, new: NewFrame) -> Frame {
        self.sequence += 1;
        let frame = Frame { sequence: self.sequence, ..new.frame };
        let sealed = append(&mut self.bytes, self.base, identity, frame, &new.body);
        self.frames.push((sealed, new.payload));
        sealed
    }

    /// Returns the frames, and the payload of each frame of metadata.
    pub fn frames(&self) -> impl Iterator<Item = (&Frame, &[u8])> {
        self.frames.iter().map(|(frame, payload)| (frame, payload.as_slice()))
    }

    pub fn write(&self, io: Io<'_>) -> Result<()> {
        io.lower.write(io.request, self.base, &self.bytes, WriteOptions::default())
    }
}

impl Journal {
    /// Makes the journal of a file without frames, whose head is not written yet.
    pub fn new(identity: Identity) -> Self {
        Self {
            identity,
            sequence: 0,
            end: HEAD_BYTES,
            head: Head::Missing,
            behind: Behind::Nothing,
            has_left_out: false,
            limit: None,
            writes: 0,
            bytes_since_closing: 0,
        }
    }

    /// Makes the journal of a packed copy, which must end before `limit`.
    pub fn of_copy(identity: Identity, end: u64, sequence: u64, limit: u64) -> Self {
        let (head, limit) = (Head::Whole, Some(limit));
        Self { end, sequence, head, limit, ..Self::new(identity) }
    }

    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    pub fn end(&self) -> u64 {
        self.end
    }

    pub fn writes(&self) -> u64 {
        self.writes
    }

    pub fn head(&self) -> Head {
        self.head
    }

    pub fn has_head(&self) -> bool {
        self.head != Head::Missing
    }

    /// Sets the state of the head.
    pub fn note_head(&mut self, head: Head) {
        self.head = head;
    }

    pub fn behind(&self) -> &Behind {
        &self.behind
    }

    /// Records the data that recovery found after the last frame.
    pub fn note_behind(&mut self, behind: Behind) {
        self.behind = behind;
    }

    /// Returns the length of the seek table in bytes.
    pub fn closing_bytes(&self) -> u64 {
        if let Behind::SeekTable(bytes) = self.behind { bytes } else { 0 }
    }

    /// Whether a staging area follows the frames.
    pub fn is_staging(&self) -> bool {
        self.behind == Behind::Staged
    }

    /// Whether the old content, which packing replaced, still follows the frames.
    pub fn is_superseding(&self) -> bool {
        self.behind == Behind::Superseded
    }

    /// Whether the file consists only of frames, optionally with a seek table at the end.
    pub fn ends_well(&self) -> bool {
        matches!(self.behind, Behind::Nothing | Behind::SeekTable(_))
    }

    /// Whether recovery left out frames and no checkpoint records this yet.
    pub fn has_left_out(&self) -> bool {
        self.has_left_out
    }

    /// Records that recovery left out a frame.
    pub fn note_left_out(&mut self) {
        self.has_left_out = true;
    }

    /// Returns whether recovery left out frames, and resets this.
    pub fn take_left_out(&mut self) -> bool {
        std::mem::take(&mut self.has_left_out)
    }

    /// Whether the next frame can be written directly after the last one. If not, call
    /// `commit::clear_end` first.
    pub fn is_end_clear(&self) -> bool {
        self.ends_well() && !self.has_left_out
    }

    /// Whether this is the journal of a packed copy, which has a limit.
    pub fn is_copy(&self) -> bool {
        self.limit.is_some()
    }

    /// Turns the journal of a packed copy into that of the file. The old content follows the copy.
    pub fn become_file(&mut self) {
        (self.limit, self.behind) = (None, Behind::Superseded);
    }

    /// Records an appended frame as the last one.
    pub fn follow(&mut self, frame: &Frame) {
        self.sequence = frame.last_sequence();
        self.end = frame.reference.end();
        self.bytes_since_closing += u64::from(frame.reference.stored_length);
    }

    /// Moves the end of the frames to an offset. `sequence` is the number of the last frame before
    /// it.
    pub fn go_on_at(&mut self, end: u64, sequence: u64) {
        (self.end, self.sequence) = (end, sequence);
    }

    /// Records a write to the lower file that may not be durable.
    pub fn note_write(&mut self) {
        self.writes += 1;
    }

    /// Prepares the end for a frame: removes the seek table and repairs the head.
    ///
    /// # Errors
    /// `EIO` if the end is not clear.
    pub fn prepare_end(&mut self, io: Io<'_>) -> Result<()> {
        if !self.is_end_clear() {
            // Callers must clear the end first, with `commit::clear_end`.
            return Err(io.damaged(self.end, "unexpected bytes at the offset of the next frame"));
        }
        if self.head == Head::Damaged {
            mend_head(io, &self.identity)?;
            self.head = Head::Whole;
        }
        if self.closing_bytes() > 0 {
            io.lower.truncate(io.request, self.end)?;
            self.behind = Behind::Nothing;
        }
        Ok(())
    }

    /// Writes the head if it is missing.
    pub fn write_head(&mut self, io: Io<'_>) -> Result<()> {
        if self.head == Head::Missing {
            let head = new_head(&self.identity);
            io.lower.write(io.request, 0, &head, WriteOptions::default())?;
            self.head = Head::Whole;
        }
        Ok(())
    }

    /// Starts a batch of about this many bytes.
    pub fn begin(&self, bytes: usize) -> Batch {
        let (base, head) = match self.head {
            Head::Missing => (0, new_head(&self.identity)),
            Head::Damaged | Head::Whole => (self.end, Vec::new()),
        };
        let mut batch = Batch { bytes: head, ..Batch::new(base, self.sequence) };
        batch.bytes.reserve_exact(bytes);
        batch
    }

    /// Writes a batch. On failure, the file's frames are unchanged. After success, the caller must
    /// apply the frames.
    pub fn write(&mut self, io: Io<'_>, batch: &Batch, options: WriteOptions) -> Result<()> {
        let (base, bytes) = (batch.base, &batch.bytes);
        if let Some(limit) = self.limit {
            // The frames written so far need not be cut off, because they lie in a gap, whose bytes
            // have no meaning.
            if base + bytes.len() as u64 > limit {
                return Err(Errno::NOSPC.into());
            }
            return io.lower.write(io.request, base, bytes, options);
        }
        if let Err(error) = io.lower.write(io.request, base, bytes, options) {
            self.cut_off(io, base);
            return Err(error);
        }
        self.head = if self.head == Head::Missing { Head::Whole } else { self.head };
        self.writes += 1;
        Ok(())
    }

    /// Writes the header of a gap at the end of the file.
    pub fn write_gap(&mut self, io: Io<'_>, header: Vec<u8>) -> Result<()> {
        let batch = Batch { bytes: header, ..Batch::new(self.end, self.sequence) };
        self.write(io, &batch, WriteOptions::default())
    }

    /// Cuts off the bytes of a failed write.
    fn cut_off(&mut self, io: Io<'_>, base: u64) {
        // The file can't be truncated, because the staged chunks after its end are still needed.
        // The next write overwrites the bytes of the failed one.
        if self.behind == Behind::Staged {
            return;
        }
        let Err(error) = io.lower.truncate(io.request, base) else { return };
        tracing::warn!(%error, "can't remove the bytes of a failed write");
        // A partly written head is written again with the next frame.
        let length = io.lower.length(io.request).unwrap_or(0);
        if length > self.end {
            self.behind = Behind::Unknown(self.end..length);
        }
    }

    /// Writes a seek table after the last frame.
    pub fn write_closing(&mut self, io: Io<'_>, table: &[u8]) -> Result<()> {
        if let Err(error) = io.lower.write(io.request, self.end, table, WriteOptions::default()) {
            io.lower.truncate(io.request, self.end)?;
            return Err(error);
        }
        self.behind = Behind::SeekTable(table.len() as u64);
        self.bytes_since_closing = 0;
        Ok(())
    }

    pub fn bytes_since_closing(&self) -> u64 {
        self.bytes_since_closing
    }
}

#[cfg(test)]
mod tests;
