//! Cleaning: what is of use is written anew behind everything, and all before becomes one gap.
//!
//! Space of single dead frames comes back by punching, but only whole blocks of it. A file that is
//! rewritten in small pieces would grow for ever. So once it holds more garbage than content (and
//! than `garbage` allows), every chunk is appended once more, by the rules of any other write, and
//! what lies before is given back as a whole. A crash on the way finds chunks in the old place or
//! in the new one, which hold the same.
//!
//! This is not packing (see `pack`): the stored file stays in log form, and its length grows
//! although the space it takes does not.

use std::ops::Range;

use fslab_vfs::{Errno, Result, WriteOptions};

use super::context::Io;
use super::format::{HEAD_BYTES, Kind};
use super::frame::{Frame, Reference};
use super::log::Log;
use super::pack::end_of;
use super::space::Gap;
use super::writer::NewFrame;

/// Bytes moved before the space they were in is given back: what cleaning takes beyond what the
/// file takes already.
pub const MOVED_BYTES: u64 = 8 << 20;

/// Bytes moved with one write, and frames: each may need a page of the index of its own.
const BATCH_BYTES: usize = 1 << 20;
pub const BATCH_FRAMES: usize = 512;

/// Bytes written after which a file is looked at again at the latest: so much more than twice what
/// is of use may it take.
const LOOK_BYTES: u64 = 8 << 20;

/// Room that must be left below, besides what is moved at a time.
pub const SPARE_BYTES: u64 = 8 << 20;

/// The longest gap.
pub const GAP_BYTES_MAX: u64 = 1 << 31;

/// Content on its way behind a border.
pub struct Move {
    /// Where the file ended.
    border: u64,
    /// Of the last frame before it.
    sequence: u64,
    /// The next chunk.
    next: u64,
    /// Where the file ended when space was last given back.
    given_back: u64,
    is_everything: bool,
}

impl Log {
    /// Cleans the file if it holds too much garbage. Where there is no room for that, it stays.
    pub fn clean_where_due(&mut self, io: Io<'_>) -> Result<()> {
        if !self.may_hold_too_much(io) {
            return Ok(());
        }
        let cleaned = io.lower.keeping_all(io.request, || self.look_and_clean(io));
        // So long, nobody looks again.
        self.next_look = self.end + (self.garbage_bytes_max(io) / 2).min(LOOK_BYTES);
        match cleaned {
            Err(error) if matches!(error.errno(), Errno::NOSPC | Errno::DQUOT) => Ok(()),
            answer => answer,
        }
    }

    /// Garbage that is put up with.
    fn garbage_bytes_max(&self, io: Io<'_>) -> u64 {
        io.settings.garbage_bytes_max.max(self.live_bytes)
    }

    /// From what is in memory: the space that was given back is still counted.
    fn may_hold_too_much(&self, io: Io<'_>) -> bool {
        let garbage = (self.end - HEAD_BYTES).saturating_sub(self.live_bytes);
        garbage > self.garbage_bytes_max(io) && self.end >= self.next_look
    }

    fn look_and_clean(&mut self, io: Io<'_>) -> Result<()> {
        if self.holds_too_much(io)? {
            // Perhaps it is enough to punch.
            self.sync(io, true)?;
            if self.holds_too_much(io)? && self.has_room(io)? {
                return self.clean(io);
            }
        }
        Ok(())
    }

    fn holds_too_much(&self, io: Io<'_>) -> Result<bool> {
        let allocated = io.lower.attr(io.request)?.blocks * 512;
        let most = self.live_bytes.saturating_add(self.garbage_bytes_max(io));
        Ok(allocated.min(self.end) > most)
    }

    /// Whether moving takes nothing from others who want to write.
    fn has_room(&self, io: Io<'_>) -> Result<bool> {
        Ok(free_bytes(io)? >= 2 * self.live_bytes.min(MOVED_BYTES) + SPARE_BYTES)
    }

    fn clean(&mut self, io: Io<'_>) -> Result<()> {
        let mut moving = self.begin_move();
        while self.move_some(io, &mut moving)? {}
        self.end_move(io, &moving).map(drop)
    }

    /// Begins to move everything behind the present end.
    pub fn begin_move(&mut self) -> Move {
        let (border, sequence) = (self.end, self.sequence);
        Move { border, sequence, next: 0, given_back: border, is_everything: true }
    }

    /// Moves about a mebibyte; answers whether there may be more. Others may write meanwhile.
    pub fn move_some(&mut self, io: Io<'_>, moving: &mut Move) -> Result<bool> {
        let (mut batch, mut batch_bytes, mut is_last) = (Vec::new(), 0, false);
        while batch_bytes < BATCH_BYTES && batch.len() < BATCH_FRAMES && !is_last {
            let Some(chunk) = self.next_present(io, moving.next)? else {
                is_last = true;
                continue;
            };
            moving.next = chunk + 1;
            match self.moved(io, chunk) {
                Ok(frame) => {
                    batch_bytes += frame.body.len();
                    batch.push(frame);
                }
                // What can't be read stays where it is: perhaps somebody can mend it.
                Err(error) if error.errno() == Errno::IO => moving.is_everything = false,
                Err(error) => return Err(error),
            }
        }
        self.in_order = false;
        self.append_frames(io, batch, WriteOptions::default())?;
        if self.end - moving.given_back >= MOVED_BYTES {
            self.sync(io, true)?;
            moving.given_back = self.end;
        }
        self.index.lock().trim();
        Ok(!is_last)
    }

    /// Makes gaps of all before the border, if nothing of use is left there; answers whether so.
    pub fn end_move(&mut self, io: Io<'_>, moving: &Move) -> Result<bool> {
        let is_led_to = self.sync_with_slot(io)?;
        // Any older checkpoint, behind the border or not, may have pages of its index before it.
        let is_free = moving.is_everything && is_led_to && self.slotted.offset >= moving.border;
        if is_free {
            self.make_gaps_before(io, moving.border, moving.sequence)?;
        }
        Ok(is_free)
    }

    /// All that a chunk holds in one new frame: with the body of the old one if that is all.
    pub fn moved(&self, io: Io<'_>, chunk: u64) -> Result<NewFrame> {
        let entry = self.entry(io, chunk)?.filter(|_| !self.segments.contains_key(&chunk));
        if let Some(entry) = entry {
            let (frame, body) = self.read_frame(io.of_chunk(chunk), entry.frame)?;
            let Frame { kind, position, raw, from, length, .. } = frame;
            if (kind, position, frame.entry()) == (Kind::Data, chunk, entry) {
                return Ok(self.data_frame(chunk, raw, (from, length), body.to_vec()));
            }
        }
        self.encoded(io, chunk, &self.chunk_content(io, chunk)?)
    }

    /// Gives back everything up to `border`, where no frame is of use any more. `sequence` is that
    /// of the last frame before it.
    fn make_gaps_before(&mut self, io: Io<'_>, border: u64, sequence: u64) -> Result<()> {
        // Another move, which began later, may have ended before.
        if end_of(&self.leading_gaps(io)?) >= border {
            return Ok(());
        }
        let there = Reference { offset: HEAD_BYTES, stored_length: 0, header_crc: 0 };
        let first = self.header_of(io, there)?;
        let Some(gaps) = gaps(HEAD_BYTES..border, first.sequence, sequence) else { return Ok(()) };
        // The first leads to the others, so it is written when they are there.
        for gap in gaps.into_iter().rev() {
            if gap.range.start == HEAD_BYTES && gap.range.end < border {
                io.lower.sync(io.request, true)?;
            }
            self.make_gap(io, &gap, self.size)?;
        }
        self.fragments.retain(|frame| frame.offset >= border);
        self.dead.retain(|frame| frame.offset >= border);
        Ok(())
    }
}

/// Room that is left below.
pub fn free_bytes(io: Io<'_>) -> Result<u64> {
    let below = io.lower.fs.statfs(io.request, io.lower.ino)?;
    Ok(below.blocks_available.saturating_mul(u64::from(below.fragment_size)))
}

/// Gaps that fill a range and stand for the sequences from `first` to `last`; none if these are
/// fewer than the gaps.
fn gaps(range: Range<u64>, first: u64, last: u64) -> Option<Vec<Gap>> {
    let step = usize::try_from(GAP_BYTES_MAX).ok()?;
    let starts = range.clone().step_by(step).zip(first..);
    let gap = |(start, sequence)| {
        let end = range.end.min(start + GAP_BYTES_MAX);
        let last = if end == range.end { last } else { sequence };
        (sequence <= last).then_some(Gap { range: start..end, sequences: sequence..=last })
    };
    starts.map(gap).collect()
}

#[cfg(test)]
mod tests;
