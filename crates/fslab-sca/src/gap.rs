//! Gaps: sections of a stored file whose bytes have no meaning.
//!
//! A gap has a header like a frame, so a walk over all frames passes over it. It covers the
//! sequence numbers of the frames that it replaces.

use std::ops::{Range, RangeInclusive};

use fslab_vfs::{Result, WriteOptions};

use super::context::Io;
use super::frame::{self, Frame, Identity, Reference};

/// Size of the unit in which the lower file system frees space, in bytes.
pub const BLOCK_BYTES: u64 = 4096;

/// Maximum length of a gap in bytes.
pub const GAP_BYTES_MAX: u64 = 1 << 31;

/// A gap to be made: its range in the stored file, and the sequence numbers of the frames it
/// replaces.
pub struct Gap {
    pub range: Range<u64>,
    pub sequences: RangeInclusive<u64>,
}

/// Frees the space of a frame's body.
pub fn punch(io: Io<'_>, identity: &Identity, frame: Reference) -> Result<()> {
    let Range { start, end } = blocks_of(identity, frame);
    if start < end { io.lower.punch(io.request, start, end - start) } else { Ok(()) }
}

/// Returns the whole blocks in a frame's body, which are punched once the frame is dead.
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

/// Returns gaps that fill a range and cover the sequence numbers from `first` to `last`. Returns
/// `None` if there are fewer numbers than gaps.
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
