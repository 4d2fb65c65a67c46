//! Frees the space of dead frames.
//!
//! Only whole blocks of bodies are punched out. Headers are kept, so that the walk over all frames
//! always works. A run of small dead frames is joined into a gap, whose header overwrites that of
//! the first frame. No walk after a crash may need the overwritten header. So only frames before
//! the last durable checkpoint are joined.

use std::ops::Range;

use fslab_vfs::{Errno, Result};

use super::context::Io;
use super::frame::{Identity, Reference};
use super::frame_reader;
use super::gap::{BLOCK_BYTES, Gap, make_gap, punch};

/// Size of the unit that the lower file system writes atomically, in bytes.
const SECTOR_BYTES: u64 = 512;

/// Maximum number of frames kept in memory for joining with their neighbours.
const FRAGMENTS_MAX: usize = 4096;

/// Dead frames whose space has not been freed yet.
#[derive(Default)]
pub struct Garbage {
    dead: Vec<Reference>,
    /// Replaced pages and checkpoints that a slot may still refer to. They are dead once another
    /// checkpoint has a slot.
    superseded: Vec<Reference>,
    /// Dead frames that could be joined into gaps.
    fragments: Vec<Reference>,
    /// Bytes of the dead frames.
    dead_bytes: u64,
    /// Fragments before this offset have been joined as far as possible.
    joined: u64,
    /// Offsets at which the gaps of a running move will end. The frame header at each of them must
    /// be kept.
    borders: Vec<u64>,
}

/// Frames whose space may be freed once a commit is durable.
#[derive(Default)]
pub struct ToGiveBack {
    dead: Vec<Reference>,
    superseded: Vec<Reference>,
}

impl Garbage {
    /// Adds dead frames.
    pub fn add(&mut self, frames: Vec<Reference>) {
        self.dead_bytes += bytes_of(&frames);
        self.dead.extend(frames);
    }

    /// Adds dead frames that a slot may still refer to.
    pub fn add_superseded(&mut self, frames: Vec<Reference>) {
        self.superseded.extend(frames);
    }

    /// Bytes of dead frames that the next commit may free.
    pub fn bytes(&self) -> u64 {
        self.dead_bytes
    }

    /// Number of dead frames in memory.
    #[cfg(test)]
    pub fn dead_count(&self) -> usize {
        self.dead.len()
    }

    /// Keeps at most this many dead frames in memory; packing frees the space of the others.
    pub fn keep_at_most(&mut self, frames: usize) {
        if self.dead.len() > frames {
            // Subtracts only the dropped frames. Counting the kept ones again would be slow,
            // because this runs after each frame of a walk.
            self.dead_bytes -= bytes_of(&self.dead.split_off(frames));
        }
    }

    /// Sets a border for a running move: frames on different sides of it are not joined.
    pub fn keep_apart(&mut self, border: u64) {
        self.borders.push(border);
    }

    /// Drops all frames before an offset, because gaps have replaced them.
    pub fn forget_before(&mut self, border: u64) {
        self.borders.retain(|other| *other > border);
        for frames in [&mut self.fragments, &mut self.dead, &mut self.superseded] {
            frames.retain(|frame| frame.offset >= border);
        }
        self.dead_bytes = bytes_of(&self.dead);
    }

    /// Returns the frames to be freed after the next commit.
    pub fn take(&mut self) -> ToGiveBack {
        self.dead_bytes = 0;
        let (dead, superseded) =
            (std::mem::take(&mut self.dead), std::mem::take(&mut self.superseded));
        ToGiveBack { dead, superseded }
    }

    /// Takes the frames back after a failed commit.
    pub fn take_again(&mut self, frames: ToGiveBack) {
        self.add(frames.dead);
        self.superseded.extend(frames.superseded);
    }

    /// Punches dead frames. Frames that end at or before `joinable` may be joined.
    pub fn give_back(
        &mut self,
        io: Io<'_>,
        identity: &Identity,
        frames: ToGiveBack,
        joinable: u64,
    ) {
        // The other slot still refers to these frames; the next commit frees them.
        self.add(frames.superseded);
        if let Err(error) = self.try_to_give_back(io, identity, frames.dead, joinable) {
            match error.errno() {
                // The lower file system does not support holes. Packing frees the space.
                Errno::OPNOTSUPP => {}
                _ => tracing::warn!(%error, file = %io.lower.name(), "can't free dead frames"),
            }
        }
    }

    fn try_to_give_back(
        &mut self,
        io: Io<'_>,
        identity: &Identity,
        dead: Vec<Reference>,
        joinable: u64,
    ) -> Result<()> {
        for frame in dead {
            punch(io, identity, frame)?;
            self.fragments.push(frame);
        }
        self.join_fragments(io, identity, joinable)
    }

    /// Whether a new `joinable` allows joining more fragments.
    pub fn may_join(&self, joinable: u64) -> bool {
        let is_new = |frame: &Reference| frame.end() > self.joined && frame.end() <= joinable;
        joinable > self.joined && self.fragments.iter().any(is_new)
    }

    /// Joins runs of dead frames. Each run is tried only once.
    fn join_fragments(&mut self, io: Io<'_>, identity: &Identity, joinable: u64) -> Result<()> {
        self.fragments.sort_unstable_by_key(|frame| frame.offset);
        let (mut done, mut gaps, mut answer) = (Vec::new(), Vec::new(), Ok(()));
        let header_bytes = identity.header_bytes() as u64;
        for run in runs(&self.fragments, joinable, &self.borders, header_bytes) {
            done.push(run[0].offset..run[run.len() - 1].end());
            match join(io, identity, &run) {
                Ok(gap) => gaps.push(gap),
                Err(error) => answer = Err(error),
            }
        }
        leave_out(&mut self.fragments, &done);
        self.fragments.extend(gaps);
        self.fragments.truncate(FRAGMENTS_MAX);
        self.joined = joinable;
        answer
    }
}

fn bytes_of(frames: &[Reference]) -> u64 {
    frames.iter().map(|frame| u64::from(frame.stored_length)).sum()
}

/// Joins adjacent frames into one gap.
fn join(io: Io<'_>, identity: &Identity, run: &[Reference]) -> Result<Reference> {
    let (first, last) = (run[0], run[run.len() - 1]);
    let begin = frame_reader::header(io, identity, first.offset)?;
    let end = frame_reader::header(io, identity, last.offset)?;
    let sequences = begin.sequence..=end.last_sequence();
    let gap = Gap { range: first.offset..last.end(), sequences };
    // A walk that passes over the gap must find the file size that the last joined frame recorded.
    make_gap(io, identity, &gap, end.file_size)
}

/// Removes the frames that lie in some ranges. Both lists must be sorted, so that this is fast even
/// if they are very long.
fn leave_out(fragments: &mut Vec<Reference>, ranges: &[Range<u64>]) {
    let mut ranges = ranges.iter().peekable();
    fragments.retain(|frame| {
        while ranges.next_if(|range| range.end <= frame.offset).is_some() {}
        ranges.peek().is_none_or(|range| !range.contains(&frame.offset))
    });
}

/// Groups adjacent frames, sorted by offset, into runs that are worth joining. A run ends before
/// `joinable` and does not cross a border. The header of the first frame is overwritten. It must
/// lie within one sector, so that no crash leaves half of it.
fn runs(
    fragments: &[Reference],
    joinable: u64,
    borders: &[u64],
    header_bytes: u64,
) -> Vec<Vec<Reference>> {
    let is_atomic = |frame: &Reference| frame.offset % SECTOR_BYTES + header_bytes <= SECTOR_BYTES;
    let is_border = |frame: &Reference| borders.contains(&frame.offset);
    let before = fragments.iter().filter(|frame| frame.end() <= joinable).copied();
    let mut runs: Vec<Vec<Reference>> = Vec::new();
    for frame in before {
        match runs.last_mut() {
            Some(run) if run[run.len() - 1].end() == frame.offset && !is_border(&frame) => {
                run.push(frame);
            }
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

    use fslab_vfs_testing::environment::cases;
    use proptest::prelude::*;

    use super::*;

    fn frame(offset: u64, stored_length: u32) -> Reference {
        Reference { offset, stored_length, header_crc: 0 }
    }

    proptest! {
        #![proptest_config(cases(256))]
        #[test]
        fn leave_out_keeps_only_frames_outside_the_ranges(
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

    /// A crash may leave half of a header that spans two sectors.
    #[test]
    fn runs_never_start_with_a_header_that_spans_sectors() {
        const HEADER_BYTES: u64 = 72;
        let run_at = |offset| {
            let frames =
                [frame(offset, 9000), frame(offset + 9000, 9000), frame(offset + 18_000, 9000)];
            let found = runs(&frames, u64::MAX, &[], HEADER_BYTES);
            found.first().map(|run| run[0].offset)
        };
        assert_eq!(run_at(1024 + 440), Some(1464));
        // The header of the second frame lies in one sector.
        assert_eq!(run_at(1024 + 441), Some(10_465));
    }

    #[test]
    fn forgotten_dead_frames_do_not_count_as_garbage() {
        let mut garbage = Garbage::default();
        garbage.add(vec![frame(0, 100), frame(100, 20), frame(120, 3)]);
        garbage.keep_at_most(4);
        assert_eq!((garbage.dead_count(), garbage.bytes()), (3, 123));
        garbage.keep_at_most(1);
        assert_eq!((garbage.dead_count(), garbage.bytes()), (1, 100));
    }

    /// A walk enforces the limit after each frame, and a crafted file may have very many frames.
    #[test]
    fn enforcing_the_dead_frame_limit_after_each_frame_is_fast() {
        const MOST: u64 = 400_000;
        let (mut garbage, begin) = (Garbage::default(), Instant::now());
        for number in 0..2 * MOST {
            garbage.add(vec![frame(number * 10, 10)]);
            garbage.keep_at_most(MOST as usize);
        }
        assert_eq!(garbage.bytes(), MOST * 10);
        assert!(begin.elapsed().as_secs() < 20, "{:?}", begin.elapsed());
    }

    /// The frames of a file with interleaved streams may die in millions of short runs.
    #[test]
    fn leave_out_is_fast_for_many_ranges() {
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
