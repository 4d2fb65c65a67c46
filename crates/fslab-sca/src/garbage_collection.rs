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

use super::commit::{Stepped, Steps, Stop, clear_end, commit, commit_with_slot};
use super::context::{Io, is_full};
use super::dead_frames::{Gap, make_gap};
use super::format::{HEAD_BYTES, Kind};
use super::frame::{Frame, NewFrame};
use super::frame_reader;
use super::log::Log;
use super::reclaim_policy::{MOVED_BYTES, free_bytes};

/// Bytes moved with one write, and frames: each may need a page of the index of its own.
const BATCH_BYTES: usize = 1 << 20;
pub const BATCH_FRAMES: usize = 512;

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

/// Commits the file and cleans it, as far as each is due. A disk without room for cleaning is
/// no error. After success and after failure, the next attempt waits until more was written.
pub fn tend(file: &impl Steps) -> Stepped<()> {
    let committed = commit_where_due(file);
    file.look_and_note(|io, log| {
        log.put_off_commit(free_bytes(io)?);
        Ok(())
    })?;
    committed?;
    if !file.look(|io, log| Ok(log.may_want_cleaning(io.settings)))? {
        return Ok(());
    }
    let cleaned = clean_where_due(file);
    file.look_and_note(|io, log| {
        log.put_off_cleaning(io.settings);
        Ok(())
    })?;
    match cleaned {
        Err(Stop::Failed(error)) if is_full(&error) => Ok(()),
        answer => answer,
    }
}

fn commit_where_due(file: &impl Steps) -> Stepped<()> {
    if file.look(|io, log| log.wants_commit(io))? {
        commit(file, true)?;
    }
    Ok(())
}

fn clean_where_due(file: &impl Steps) -> Stepped<()> {
    if !file.look(|io, log| log.wants_cleaning(io))? {
        return Ok(());
    }
    // Perhaps it is enough to punch.
    commit(file, true)?;
    if file.look(|io, log| Ok(log.wants_cleaning(io)? && log.has_room_to_clean(io)?))? {
        clean(file)?;
    }
    Ok(())
}

/// Moves everything behind the end, and gives back what lies before.
pub fn clean(file: &impl Steps) -> Stepped<()> {
    let mut moving = file.step(|_, log| Ok(log.begin_move()))?;
    while move_some(file, &mut moving)? {}
    end_move(file, &moving).map(drop)
}

/// Moves about a mebibyte; answers whether there may be more. Others may write meanwhile.
pub fn move_some(file: &impl Steps, moving: &mut Move) -> Stepped<bool> {
    clear_end(file)?;
    let (has_more, end) = file.step(|io, log| Ok((log.move_some(io, moving)?, log.end())))?;
    if end.saturating_sub(moving.given_back) >= MOVED_BYTES {
        commit(file, true)?;
        moving.given_back = end;
    }
    Ok(has_more)
}

/// Makes gaps of all before the border, if nothing of use is left there; answers whether so.
pub fn end_move(file: &impl Steps, moving: &Move) -> Stepped<bool> {
    let is_led_to = commit_with_slot(file)?;
    let gaps = file.step(|io, log| {
        // Any older checkpoint, behind the border or not, may have pages of its index before it.
        let is_free =
            moving.is_everything && is_led_to && log.commits.slotted().offset >= moving.border;
        if is_free { log.gaps_before(io, moving).map(Some) } else { Ok(None) }
    })?;
    let Some(gaps) = gaps else { return Ok(false) };
    // The first leads to the others, so it is written when they are there.
    let Some((first, others)) = gaps.split_first() else { return Ok(true) };
    if !others.is_empty() {
        file.step(|io, log| log.make_gaps(io, others))?;
        file.sync_below(true)?;
    }
    file.step(|io, log| {
        log.make_gaps(io, std::slice::from_ref(first))?;
        log.garbage.forget_before(moving.border);
        Ok(true)
    })
}

impl Log {
    /// Begins to move everything behind the present end.
    pub fn begin_move(&mut self) -> Move {
        let (border, sequence) = (self.end(), self.journal.sequence());
        self.garbage.keep_apart(border);
        Move { border, sequence, next: 0, given_back: border, is_everything: true }
    }

    fn move_some(&mut self, io: Io<'_>, moving: &mut Move) -> Result<bool> {
        let (mut batch, mut batch_bytes, mut is_last) = (Vec::new(), 0, false);
        while batch_bytes < BATCH_BYTES && batch.len() < BATCH_FRAMES && !is_last {
            let Some(chunk) = self.map.next_present(io, moving.next)? else {
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
        self.map.note_disorder();
        self.append_frames(io, batch, WriteOptions::default())?;
        self.map.trim();
        Ok(!is_last)
    }

    /// All that a chunk holds in one new frame: with the body of the old one if that is all.
    pub fn moved(&self, io: Io<'_>, chunk: u64) -> Result<NewFrame> {
        let has_tail = !self.map.segments(chunk).is_empty();
        if let Some(entry) = self.map.entry(io, chunk)?.filter(|_| !has_tail) {
            let (frame, body) =
                frame_reader::frame(io.of_chunk(chunk), self.identity(), entry.frame)?;
            let Frame { kind, position, raw, from, length, .. } = frame;
            if (kind, position, frame.entry()) == (Kind::Data, chunk, entry) {
                return Ok(self.data_frame(chunk, raw, (from, length), body.to_vec()));
            }
        }
        self.encoded(io, chunk, &self.map.chunk_content(io, chunk)?)
    }

    /// The gaps that take the place of all before a move's border, where no frame is of use any
    /// more; none if they are there already.
    fn gaps_before(&self, io: Io<'_>, moving: &Move) -> Result<Vec<Gap>> {
        // Another move, which began later, may have ended before.
        if end_of(&self.leading_gaps(io)?) >= moving.border {
            return Ok(Vec::new());
        }
        let first = frame_reader::header(io, self.identity(), HEAD_BYTES)?;
        let made = gaps(HEAD_BYTES..moving.border, first.sequence, moving.sequence);
        Ok(made.unwrap_or_default())
    }

    /// Writes gaps, the last one first.
    fn make_gaps(&self, io: Io<'_>, gaps: &[Gap]) -> Result<()> {
        let make = |gap| make_gap(io, self.identity(), gap, self.size()).map(drop);
        gaps.iter().rev().try_for_each(make)
    }
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

/// Where gaps that the file begins with end.
pub fn end_of(gaps: &[Frame]) -> u64 {
    gaps.last().map_or(HEAD_BYTES, |gap| gap.reference.end())
}

#[cfg(test)]
mod tests;
