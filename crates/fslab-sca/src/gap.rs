//! Gaps: sections of a stored file without meaning.
//!
//! A gap has a header like a frame, so a walk over all frames passes over it. It stands for the
//! sequences of the frames that it replaces.

use std::ops::{Range, RangeInclusive};

use fslab_vfs::{Errno, Result, WriteOptions};

use super::context::Io;
use super::format::{HEAD_BYTES, Kind};
use super::frame::{self, Frame, Identity, Reference};
use super::frame_reader;
use super::log::Log;

/// Unit in which the lower file system frees space.
pub const BLOCK_BYTES: u64 = 4096;

/// Maximum length of a gap in bytes.
pub const GAP_BYTES_MAX: u64 = 1 << 31;

/// A section of the stored file without meaning, and the sequences of the frames it replaces.
pub struct Gap {
    pub range: Range<u64>,
    pub sequences: RangeInclusive<u64>,
}

/// Frees the space of a frame's body.
pub fn punch(io: Io<'_>, identity: &Identity, frame: Reference) -> Result<()> {
    let Range { start, end } = blocks_of(identity, frame);
    if start < end { io.lower.punch(io.request, start, end - start) } else { Ok(()) }
}

/// Returns the whole blocks in a frame's body, which are punched once it is dead.
pub fn blocks_of(identity: &Identity, frame: Reference) -> Range<u64> {
    let body = frame.offset + identity.header_bytes() as u64;
    body.next_multiple_of(BLOCK_BYTES)..frame.end() / BLOCK_BYTES * BLOCK_BYTES
}

/// Writes the header of a gap, and frees its space.
pub fn make_gap(io: Io<'_>, identity: &Identity, gap: &Gap, file_size: u64) -> Result<Reference> {
    let offset = gap.range.start;
    let stored_length = (gap.range.end - offset) as u32;
    let frame = Frame::gap(&gap.sequences, file_size);
    let header = frame::gap(identity, frame, offset, stored_length);
    io.lower.write(io.request, offset, &header, WriteOptions::default())?;
    let made = Reference { offset, stored_length, header_crc: 0 };
    punch(io, identity, made)?;
    Ok(made)
}

/// Returns gaps that fill a range and stand for the sequences from `first` to `last`. Returns
/// `None` if there are fewer sequences than gaps.
pub fn gaps(range: Range<u64>, first: u64, last: u64) -> Option<Vec<Gap>> {
    let step = usize::try_from(GAP_BYTES_MAX).ok()?;
    let starts = range.clone().step_by(step).zip(first..);
    let gap = |(start, sequence)| {
        let end = range.end.min(start + GAP_BYTES_MAX);
        let last = if end == range.end { last } else { sequence };
        (sequence <= last).then_some(Gap { range: start..end, sequences: sequence..=last })
    };
    starts.map(gap).collect()
}

/// Returns the end of the gaps at the beginning of the file.
pub fn end_of(gaps: &[Frame]) -> u64 {
    gaps.last().map_or(HEAD_BYTES, |gap| gap.reference.end())
}

impl Log {
    /// Returns the gaps at the beginning of the file.
    pub fn leading_gaps(&self, io: Io<'_>) -> Result<Vec<Frame>> {
        let (mut gaps, mut place) = (Vec::new(), HEAD_BYTES);
        while place < self.end() {
            match frame_reader::header(io, self.identity(), place) {
                Ok(frame) if frame.kind == Kind::Gap && frame.reference.end() <= self.end() => {
                    place = frame.reference.end();
                    gaps.push(frame);
                }
                Ok(_) => break,
                Err(error) if error.errno() == Errno::IO => break,
                Err(error) => return Err(error),
            }
        }
        Ok(gaps)
    }

    /// Writes gaps, the last one first.
    pub fn make_gaps(&self, io: Io<'_>, gaps: &[Gap]) -> Result<()> {
        let make = |gap| make_gap(io, self.identity(), gap, self.size()).map(drop);
        gaps.iter().rev().try_for_each(make)
    }

    /// Appends empty gaps so that the moved content begins at `room_end`.
    pub fn add_room(&mut self, io: Io<'_>, room_end: u64) -> Result<()> {
        let header_bytes = self.identity().header_bytes() as u64;
        while self.end() < room_end {
            let (end, next) = (self.end(), self.journal.sequence() + 1);
            let length = (room_end - end).clamp(header_bytes, GAP_BYTES_MAX) as u32;
            let gap = Frame::gap(&(next..=next), self.size());
            self.journal.write_gap(io, frame::gap(self.identity(), gap, end, length))?;
            let made = frame_reader::header(io, self.identity(), end)?;
            self.apply(io, &made, &[])?;
        }
        Ok(())
    }

    /// Makes the given gaps empty again, if the file still begins with them.
    pub fn empty_gaps(&self, io: Io<'_>, gaps: &[Frame]) -> Result<()> {
        let now = self.leading_gaps(io)?;
        if now.first() != gaps.first() {
            return Ok(());
        }
        for gap in gaps {
            let (header, offset) = (frame::header(self.identity(), gap), gap.reference.offset);
            io.lower.write(io.request, offset, &header, WriteOptions::default())?;
            punch(io, self.identity(), gap.reference)?;
        }
        Ok(())
    }

    /// Shortens the first gap so that it ends at the first frame and a walk can pass all frames. If
    /// gap and frame are not as packing leaves them, the gap is not changed, and only the slot
    /// leads to the frames.
    pub fn shorten_first_gap(&self, io: Io<'_>) -> Result<()> {
        let nothing = (self.identity().codec.store)(&[]).len();
        let end = HEAD_BYTES + (self.identity().header_bytes() + nothing) as u64;
        let header = |place| frame_reader::header(io, self.identity(), place);
        let headers = header(HEAD_BYTES).and_then(|gap| Ok((gap, header(end)?)));
        match headers {
            Ok((gap, first)) if gap.kind == Kind::Gap && first.sequence > 1 => {
                let gap = Gap { range: HEAD_BYTES..end, sequences: 1..=first.sequence - 1 };
                make_gap(io, self.identity(), &gap, self.size()).map(drop)
            }
            Ok(_) => Ok(()),
            Err(error) if error.errno() == Errno::IO => Ok(()),
            Err(error) => Err(error),
        }
    }
}
