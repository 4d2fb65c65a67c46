//! Prepares a stored file for a fast open when its writers close it.

use std::cell::RefCell;

use fslab_vfs::Result;

use super::codec::Closing;
use super::commit::{Stepped, Steps};
use super::context::{Io, is_full};
use super::format::HEAD_BYTES;
use super::frame::Entry;
use super::log::Log;
use super::recovery::reads_of_walk;
use super::slices::{visit, visit_in_steps};

/// Maximum number of reads that the next open may need to walk over the frames after the last
/// checkpoint.
const WALK_READS_MAX: u64 = 2;

/// Maximum number of frames after the last checkpoint. Each of them costs every open about 0.1 us.
/// A file that is reopened for each small append would pay for all of them each time.
const WALK_FRAMES_MAX: u64 = 256;

/// The seek table is written if its length is at most the number of bytes appended since the last
/// table, divided by this number.
const CLOSING_PART: u64 = 16;

impl Log {
    /// Ends a file with a checkpoint if the walk to its last frame is long. A tail is not encoded,
    /// because that would turn its pieces into garbage that only packing removes. On a full disk,
    /// the file is left unchanged, which is also valid.
    pub fn settle(&mut self, io: Io<'_>) -> Result<()> {
        self.map.cool_down();
        if !self.journal.is_end_clear() || !self.is_long_to_walk() {
            return Ok(());
        }
        let written = io.lower.keeping_all(io.request, || self.write_checkpoint(io));
        self.map.trim();
        unless_full(written)
    }

    /// Whether the walk from the last checkpoint to the last frame exceeds the limits.
    fn is_long_to_walk(&self) -> bool {
        let checkpoint = self.commits.checkpoint();
        let start = if checkpoint.is_none() { HEAD_BYTES } else { checkpoint.end() };
        let bytes = self.end().saturating_sub(start);
        let frames = self.commits.frames_since();
        frames > WALK_FRAMES_MAX || reads_of_walk(frames, bytes) > WALK_READS_MAX
    }

    /// Returns the function that makes the seek table of a packed file, if the container has one
    /// and the file lacks it.
    pub fn missing_closing(&self) -> Option<Closing> {
        let closing = self.identity().codec.container.closing?;
        let is_ready = self.is_packed() && self.journal.is_end_clear();
        if !is_ready || self.journal.closing_bytes() > 0 {
            return None;
        }
        // A file of one chunk needs no table for seeking. Writing one would triple the number of
        // system calls for writing a small file.
        let chunks = self.size().div_ceil(self.map.chunk_bytes());
        let estimate = chunks * 16;
        let is_small = estimate <= 4096.max(self.journal.bytes_since_closing() / CLOSING_PART);
        (chunks > 1 && is_small).then_some(closing)
    }

    /// Writes the seek table of a packed file, unless the disk is full.
    pub fn write_closing(&mut self, io: Io<'_>, table: &[u8]) -> Result<()> {
        let write = || self.journal.write_closing(io, table);
        unless_full(io.lower.keeping_all(io.request, write))
    }

    /// Makes the seek table of a packed file. No other thread may change the file during this call.
    pub fn closing(&self, io: Io<'_>, closing: Closing) -> Result<Vec<u8>> {
        let mut contents = Contents::default();
        visit(io, self, |io, log, chunk| contents.add(io, log, chunk))?;
        Ok(contents.end(self, closing))
    }
}

/// Makes the seek table of a packed file in slices, between which others may use the file. Returns
/// the table and the sequence number of the file's last frame, or `None` if the file needs no
/// table.
///
/// # Errors
/// [`Stop::Gone`](super::commit::Stop) if the file is changed during the call.
pub fn closing_in_steps(file: &impl Steps) -> Stepped<Option<(Vec<u8>, u64)>> {
    let Some(closing) = file.look(|_, log| Ok(log.missing_closing()))? else { return Ok(None) };
    let contents = RefCell::new(Contents::default());
    let add = |io: Io<'_>, log: &Log, chunk| contents.borrow_mut().add(io, log, chunk);
    let end = |log: &Log| (contents.take().end(log, closing), log.journal.sequence());
    visit_in_steps(file, add, end).map(Some)
}

/// Ignores an error that means that the disk is full.
fn unless_full(written: Result<()>) -> Result<()> {
    match written {
        Err(error) if is_full(&error) => Ok(()),
        answer => answer,
    }
}

/// Encoded and decoded lengths of all parts of a stored file, as ordinary tools see them.
#[derive(Default)]
struct Contents {
    lengths: Vec<(u32, u32)>,
    place: u64,
}

impl Contents {
    /// Adds the frames of the next chunk.
    fn add(&mut self, io: Io<'_>, log: &Log, chunk: u64) -> Result<()> {
        let header_bytes = log.identity().header_bytes() as u32;
        for Entry { frame, from, to } in log.map.entries(io, chunk)? {
            self.pass(frame.offset);
            if to > from {
                let body_bytes = frame.stored_length.saturating_sub(header_bytes);
                self.lengths.extend([(header_bytes, 0), (body_bytes, to - from)]);
            }
            self.place = frame.end();
        }
        Ok(())
    }

    /// Adds the bytes up to `offset`, which contain no content.
    fn pass(&mut self, offset: u64) {
        if offset > self.place {
            self.lengths.push(((offset - self.place).min(u64::from(u32::MAX)) as u32, 0));
        }
    }

    fn end(mut self, log: &Log, closing: Closing) -> Vec<u8> {
        self.pass(log.end());
        closing(&self.lengths)
    }
}
