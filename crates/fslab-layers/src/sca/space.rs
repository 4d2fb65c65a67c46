//! Giving back the space of frames that are no longer of use.
//!
//! Headers stay, so that the walk over all frames works for ever: only whole blocks of bodies are
//! punched out. Runs of small frames get one header, that of a gap. It is written over the first
//! one's, which must not be on the way of any walk that a crash may make necessary: only frames
//! before the checkpoint that was durable already take part.

use std::ops::{Range, RangeInclusive};

use fslab_vfs::{Errno, Result, WriteOptions};

use super::context::Io;
use super::format::Kind;
use super::frame::{self, Draft, Frame, Reference, parse_mending};
use super::log::Log;

/// Unit in which the file system below gives space back.
const BLOCK_BYTES: u64 = 4096;

/// What the file system below writes as a whole or not at all.
const SECTOR_BYTES: u64 = 512;

/// Frames remembered to be joined with their neighbours.
const FRAGMENTS_MAX: usize = 4096;

/// A stretch of the stored file without meaning, and the sequences of the frames that were there.
pub struct Gap {
    pub range: Range<u64>,
    pub sequences: RangeInclusive<u64>,
}

impl Log {
    /// Punches dead frames. Those that end at or before `joinable` may be joined.
    pub fn give_space_back(&mut self, io: Io<'_>, dead: Vec<Reference>, joinable: u64) {
        if let Err(error) = self.try_to_give_back(io, dead, joinable) {
            match error.errno() {
                // The file system below has no holes: space comes back with packing.
                Errno::OPNOTSUPP => {}
                _ => tracing::warn!(%error, file = %io.lower.name(), "could not give space back"),
            }
        }
    }

    fn try_to_give_back(&mut self, io: Io<'_>, dead: Vec<Reference>, joinable: u64) -> Result<()> {
        for frame in dead {
            self.punch(io, frame)?;
            self.fragments.push(frame);
        }
        self.join_fragments(io, joinable)
    }

    /// Joins runs of dead frames. What can't be joined is not tried again.
    fn join_fragments(&mut self, io: Io<'_>, joinable: u64) -> Result<()> {
        self.fragments.sort_unstable_by_key(|frame| frame.offset);
        let (mut done, mut gaps, mut answer) = (Vec::new(), Vec::new(), Ok(()));
        for run in runs(&self.fragments, joinable, self.identity.header_bytes() as u64) {
            done.push(run[0].offset..run[run.len() - 1].end());
            match self.join(io, &run) {
                Ok(gap) => gaps.push(gap),
                Err(error) => answer = Err(error),
            }
        }
        leave_out(&mut self.fragments, &done);
        self.fragments.extend(gaps);
        self.fragments.truncate(FRAGMENTS_MAX);
        answer
    }

    pub fn punch(&self, io: Io<'_>, frame: Reference) -> Result<()> {
        let Range { start, end } = self.blocks_of(frame);
        if start < end { io.lower.punch(io.request, start, end - start) } else { Ok(()) }
    }

    /// The whole blocks in a frame's body, which go once it is of no more use.
    pub fn blocks_of(&self, frame: Reference) -> Range<u64> {
        let body = frame.offset + self.identity.header_bytes() as u64;
        body.next_multiple_of(BLOCK_BYTES)..frame.end() / BLOCK_BYTES * BLOCK_BYTES
    }

    /// Makes one gap of frames that lie one behind the other.
    fn join(&self, io: Io<'_>, run: &[Reference]) -> Result<Reference> {
        let (first, last) = (run[0], run[run.len() - 1]);
        let (begin, end) = (self.header_of(io, first)?, self.header_of(io, last)?);
        let sequences = begin.sequence..=end.last_sequence();
        let gap = Gap { range: first.offset..last.end(), sequences };
        // A walk that goes over the gap finds the size that was there behind the last frame.
        self.make_gap(io, &gap, end.file_size)
    }

    /// Writes the header of a gap, and gives its space back.
    pub fn make_gap(&self, io: Io<'_>, gap: &Gap, file_size: u64) -> Result<Reference> {
        let (offset, sequence) = (gap.range.start, *gap.sequences.start());
        let stored_length = (gap.range.end - offset) as u32;
        let draft = Draft {
            kind: Kind::Gap,
            raw: false,
            sequence,
            position: gap.sequences.end() - sequence,
            file_size,
            from: 0,
            length: 0,
        };
        let header = frame::gap(&self.identity, &draft, offset, stored_length);
        io.lower.write(io.request, offset, &header, WriteOptions::default())?;
        let made = Reference { offset, stored_length, header_crc: 0 };
        self.punch(io, made)?;
        Ok(made)
    }

    /// The header of a frame, of which only the place need be known.
    pub fn header_of(&self, io: Io<'_>, frame: Reference) -> Result<Frame> {
        let header = io.lower.read(io.request, frame.offset, self.identity.header_bytes())?;
        // As the walk does, for whom a frame with one wrong byte in its header is one.
        parse_mending(&self.identity, &header, frame.offset)
            .map_err(|what| io.damaged(frame.offset, what))
    }
}

/// Leaves out the frames in some ranges. Both are ordered: there may be a great many of either.
fn leave_out(fragments: &mut Vec<Reference>, ranges: &[Range<u64>]) {
    let mut ranges = ranges.iter().peekable();
    fragments.retain(|frame| {
        while ranges.next_if(|range| range.end <= frame.offset).is_some() {}
        ranges.peek().is_none_or(|range| !range.contains(&frame.offset))
    });
}

/// Frames, ordered, that lie one behind the other before `joinable`, and are worth joining. The
/// header that is written over the first one's lies in one sector: no crash leaves half of it.
fn runs(fragments: &[Reference], joinable: u64, header_bytes: u64) -> Vec<Vec<Reference>> {
    let is_atomic = |frame: &Reference| frame.offset % SECTOR_BYTES + header_bytes <= SECTOR_BYTES;
    let before = fragments.iter().filter(|frame| frame.end() <= joinable).copied();
    let mut runs: Vec<Vec<Reference>> = Vec::new();
    for frame in before {
        match runs.last_mut() {
            Some(run) if run[run.len() - 1].end() == frame.offset => run.push(frame),
            _ if is_atomic(&frame) => runs.push(vec![frame]),
            _ => {}
        }
    }
    let bytes = |run: &[Reference]| run[run.len() - 1].end() - run[0].offset;
    let is_worth_it = |run: &Vec<Reference>| {
        run.len() > 1 && (2 * BLOCK_BYTES..u64::from(u32::MAX)).contains(&bytes(run))
    };
    runs.retain(is_worth_it);
    runs
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use fslab_vfs::testing::environment::cases;
    use proptest::prelude::*;

    use super::*;

    fn frame(offset: u64, stored_length: u32) -> Reference {
        Reference { offset, stored_length, header_crc: 0 }
    }

    proptest! {
        #![proptest_config(cases(256))]
        #[test]
        fn what_is_left_lies_in_no_range(
            lengths in prop::collection::vec((1..9_u32, any::<bool>()), 0..60),
        ) {
            let (mut frames, mut ranges, mut expected, mut place) = (vec![], vec![], vec![], 0);
            for (length, is_joined) in lengths {
                let next = frame(place, length);
                place = next.end();
                frames.push(next);
                if is_joined {
                    ranges.push(next.offset..next.end());
                } else {
                    expected.push(next);
                }
            }
            leave_out(&mut frames, &ranges);
            prop_assert_eq!(frames, expected);
        }
    }

    /// A file whose streams were written beside each other dies in millions of short runs.
    #[test]
    fn a_great_many_runs_are_left_out_at_once() {
        let mut frames: Vec<Reference> =
            (0..400_000).map(|number| frame(number * 10, 10)).collect();
        let ranges: Vec<Range<u64>> =
            (0..200_000).map(|number| number * 20..number * 20 + 10).collect();
        let begin = Instant::now();
        leave_out(&mut frames, &ranges);
        assert_eq!(frames.len(), 200_000);
        assert!(begin.elapsed().as_secs() < 20, "{:?}", begin.elapsed());
    }
}
