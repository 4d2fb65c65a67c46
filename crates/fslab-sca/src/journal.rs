//! The journal: the one writer of frames, always behind all others.
//!
//! If the file below does not take what is written, nothing has changed: what was written of it is
//! cut off again, and if even that fails it is kept aside next time (see `quarantine`).

use std::ops::Range;

use fslab_vfs::{Errno, Result, WriteOptions};

use super::context::Io;
use super::format::HEAD_BYTES;
use super::frame::{Frame, Identity, NewFrame, append};
use super::superblock::{mend_head, new_head};

/// Where frames go.
pub struct Journal {
    identity: Identity,
    /// Of the last frame.
    sequence: u64,
    /// Where the next frame goes.
    end: u64,
    head: Head,
    behind: Behind,
    /// Recovery left out frames, and no checkpoint says so yet.
    has_left_out: bool,
    /// Nothing may be written from here on: the file is being packed into a gap of what it was.
    limit: Option<u64>,
    /// How often something was written below.
    writes: u64,
    /// Bytes of frames since the seek table was last written.
    bytes_since_closing: u64,
}

/// The head of the file below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Head {
    Missing,
    /// It was lost, and the file was known by its first frame.
    Damaged,
    Whole,
}

/// What lies behind the last frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Behind {
    Nothing,
    /// A seek table of so many bytes.
    SeekTable(u64),
    /// Bytes that are no frame.
    Unknown(Range<u64>),
    /// The file as it was before it was packed.
    Superseded,
}

/// Frames to be written in one go.
pub struct Batch {
    base: u64,
    bytes: Vec<u8>,
    /// Of the last frame before the next one.
    sequence: u64,
    /// Frames, and the payload of those of metadata.
    pub frames: Vec<(Frame, Vec<u8>)>,
}

impl Batch {
    /// Frames that follow the one with `sequence`, from a place on.
    pub fn new(base: u64, sequence: u64) -> Self {
        Self { base, bytes: Vec::new(), sequence, frames: Vec::new() }
    }

    /// Adds a frame, which gets its sequence and its place.
    pub fn add(&mut self, identity: &Identity, new: NewFrame) -> Frame {
        self.sequence += 1;
        let frame = Frame { sequence: self.sequence, ..new.frame };
        let sealed = append(&mut self.bytes, self.base, identity, frame, &new.body);
        self.frames.push((sealed, new.payload));
        sealed
    }

    /// Writes the frames where they belong.
    pub fn write(&self, io: Io<'_>) -> Result<()> {
        io.lower.write(io.request, self.base, &self.bytes, WriteOptions::default())
    }
}

impl Journal {
    /// Of a file without frames, whose head is not there yet.
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

    /// Of a packed copy within a gap that ends before `limit`.
    pub fn of_copy(identity: Identity, end: u64, sequence: u64, limit: u64) -> Self {
        let (head, limit) = (Head::Whole, Some(limit));
        Self { end, sequence, head, limit, ..Self::new(identity) }
    }

    /// Sequence of the last frame.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Where the next frame goes.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// How often something was written below.
    pub fn writes(&self) -> u64 {
        self.writes
    }

    /// What is known of the head.
    pub fn head(&self) -> Head {
        self.head
    }

    pub fn has_head(&self) -> bool {
        self.head != Head::Missing
    }

    /// What was found of the head.
    pub fn note_head(&mut self, head: Head) {
        self.head = head;
    }

    pub fn behind(&self) -> &Behind {
        &self.behind
    }

    /// What was found behind the last frame.
    pub fn note_behind(&mut self, behind: Behind) {
        self.behind = behind;
    }

    /// Bytes of the seek table.
    pub fn closing_bytes(&self) -> u64 {
        if let Behind::SeekTable(bytes) = self.behind { bytes } else { 0 }
    }

    /// Whether the file as it was before it was packed is still there.
    pub fn is_superseding(&self) -> bool {
        self.behind == Behind::Superseded
    }

    /// Whether frames, and at most a seek table, are all there is.
    pub fn ends_well(&self) -> bool {
        matches!(self.behind, Behind::Nothing | Behind::SeekTable(_))
    }

    /// Whether recovery left out frames, and no checkpoint says so yet.
    pub fn has_left_out(&self) -> bool {
        self.has_left_out
    }

    /// Recovery left out a frame.
    pub fn note_left_out(&mut self) {
        self.has_left_out = true;
    }

    /// Answers whether recovery left out frames, and forgets it.
    pub fn take_left_out(&mut self) -> bool {
        std::mem::take(&mut self.has_left_out)
    }

    /// Whether the next frame can be written right behind the last one: else see
    /// `commit::clear_end`.
    pub fn is_end_clear(&self) -> bool {
        self.ends_well() && !self.has_left_out
    }

    /// Whether this is a copy, with a place that it must not reach.
    pub fn is_copy(&self) -> bool {
        self.limit.is_some()
    }

    /// The copy becomes the file; what the file was lies behind it.
    pub fn become_file(&mut self) {
        (self.limit, self.behind) = (None, Behind::Superseded);
    }

    /// Takes a frame into account that lies behind all others.
    pub fn follow(&mut self, frame: &Frame) {
        self.sequence = frame.last_sequence();
        self.end = frame.reference.end();
        self.bytes_since_closing += u64::from(frame.reference.stored_length);
    }

    /// Goes on behind a place, and a frame with `sequence`.
    pub fn go_on_at(&mut self, end: u64, sequence: u64) {
        (self.end, self.sequence) = (end, sequence);
    }

    /// Something was written below that is not known to be durable.
    pub fn note_write(&mut self) {
        self.writes += 1;
    }

    /// Prepares the end for a frame: takes the seek table away, and mends the head.
    ///
    /// # Errors
    /// `EIO` where the end is not clear.
    pub fn prepare_end(&mut self, io: Io<'_>) -> Result<()> {
        if !self.is_end_clear() {
            // Callers clear the end first, by `commit::clear_end`.
            return Err(io.damaged(self.end, "bytes where the next frame goes"));
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

    /// Makes sure that there is a head.
    pub fn write_head(&mut self, io: Io<'_>) -> Result<()> {
        if self.head == Head::Missing {
            let head = new_head(&self.identity);
            io.lower.write(io.request, 0, &head, WriteOptions::default())?;
            self.head = Head::Whole;
        }
        Ok(())
    }

    /// Begins what is written next, of about so many bytes.
    pub fn begin(&self, bytes: usize) -> Batch {
        let (base, head) = match self.head {
            Head::Missing => (0, new_head(&self.identity)),
            Head::Damaged | Head::Whole => (self.end, Vec::new()),
        };
        let mut batch = Batch { bytes: head, ..Batch::new(base, self.sequence) };
        batch.bytes.reserve_exact(bytes);
        batch
    }

    /// Writes a batch, or leaves the file as it was. Its frames are still to be taken into account.
    pub fn write(&mut self, io: Io<'_>, batch: &Batch, options: WriteOptions) -> Result<()> {
        self.write_bytes(io, batch.base, &batch.bytes, options)
    }

    /// Writes the header of a gap that reaches from the end to behind so many bytes.
    pub fn write_gap(&mut self, io: Io<'_>, header: &[u8]) -> Result<()> {
        self.write_bytes(io, self.end, header, WriteOptions::default())
    }

    fn write_bytes(
        &mut self,
        io: Io<'_>,
        base: u64,
        bytes: &[u8],
        options: WriteOptions,
    ) -> Result<()> {
        if let Some(limit) = self.limit {
            // What was written of it lies in a gap, where it means nothing.
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

    /// Cuts off a write that failed.
    fn cut_off(&mut self, io: Io<'_>, base: u64) {
        let Err(error) = io.lower.truncate(io.request, base) else { return };
        tracing::warn!(%error, "could not cut off a write that failed");
        // What there is of a head is written anew with the next frame.
        let length = io.lower.length(io.request).unwrap_or(0);
        if length > self.end {
            self.behind = Behind::Unknown(self.end..length);
        }
    }

    /// Writes a seek table behind the last frame.
    pub fn write_closing(&mut self, io: Io<'_>, table: &[u8]) -> Result<()> {
        if let Err(error) = io.lower.write(io.request, self.end, table, WriteOptions::default()) {
            io.lower.truncate(io.request, self.end)?;
            return Err(error);
        }
        self.behind = Behind::SeekTable(table.len() as u64);
        self.bytes_since_closing = 0;
        Ok(())
    }

    /// Bytes of frames since the seek table was last written.
    pub fn bytes_since_closing(&self) -> u64 {
        self.bytes_since_closing
    }
}

#[cfg(test)]
mod tests;
