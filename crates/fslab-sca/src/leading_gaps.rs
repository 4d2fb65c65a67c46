//! The gaps at the beginning of a stored file, which garbage collection makes and packing fills.

use fslab_vfs::{Errno, Result, WriteOptions};

use super::context::Io;
use super::format::{HEAD_BYTES, Kind};
use super::frame::{self, Frame};
use super::frame_reader;
use super::gap::{GAP_BYTES_MAX, Gap, make_gap, punch};
use super::log::Log;

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

    /// Writes the headers of the given gaps again and frees their space, if the file still begins
    /// with them.
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

    /// Shortens the first gap so that it ends where the packed frames begin. A walk over the frames
    /// then reaches them. If the gap or the first frame is not as packing leaves it, the gap is not
    /// changed. Then the packed frames are found only through the slot.
    pub fn shorten_first_gap(&self, io: Io<'_>) -> Result<()> {
        let nothing = self.identity().codec.stored(&[]).len();
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
