//! Garbage collection: live content is appended again, and everything before it becomes one gap.
//!
//! The space of single dead frames is freed by punching, but only in whole blocks. A file that is
//! rewritten in small pieces would grow without limit. So once a file has more garbage than content
//! (and more than the option `garbage` allows), every chunk is appended again, like any other
//! write. Then all space before these copies is freed at once. After a crash in between, each chunk
//! is found at the old or at the new offset, with the same content.
//!
//! This is not packing (see `pack`): the stored file remains in log form. Its length grows, but its
//! allocated space does not.

use fslab_vfs::{Errno, Result, WriteOptions};

use super::commit::{Stepped, Steps, Stop, clear_end, commit, commit_with_slot};
use super::context::{Io, is_full};
use super::format::{HEAD_BYTES, Kind};
use super::frame::{Frame, NewFrame};
use super::frame_reader;
use super::gap::{Gap, gaps};
use super::leading_gaps::end_of;
use super::log::Log;
use super::reclaim_policy::{MOVED_BYTES, free_bytes};

/// Maximum numbers of bytes and frames moved with one write. Each frame may need its own page of
/// the index.
const BATCH_BYTES: usize = 1 << 20;
pub const BATCH_FRAMES: usize = 512;

/// A running move of all content to offsets past a border.
pub struct Move {
    /// End of the file when the move began.
    border: u64,
    /// Sequence number of the last frame before the border.
    sequence: u64,
    /// The next chunk to be moved.
    next: u64,
    /// End of the file when space was last freed.
    given_back: u64,
    is_everything: bool,
}

/// Commits the file and collects its garbage, if either is due. A disk without room for the
/// collection is not an error. After success or failure, the next attempt waits for more writes.
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
    // This commit punches out dead frames, which may free enough space.
    commit(file, true)?;
    if file.look(|io, log| Ok(log.wants_cleaning(io)? && log.has_room_to_clean(io)?))? {
        clean(file)?;
    }
    Ok(())
}

/// Moves all content past the end, and frees the space before it.
pub fn clean(file: &impl Steps) -> Stepped<()> {
    let mut moving = file.step(|_, log| Ok(log.begin_move()))?;
    while move_some(file, &mut moving)? {}
    end_move(file, &moving).map(drop)
}

/// Moves about a mebibyte; returns whether content remains to be moved. Others may write between
/// two calls.
pub fn move_some(file: &impl Steps, moving: &mut Move) -> Stepped<bool> {
    clear_end(file)?;
    let (has_more, end) = file.step(|io, log| Ok((log.move_some(io, moving)?, log.end())))?;
    if end.saturating_sub(moving.given_back) >= MOVED_BYTES {
        commit(file, true)?;
        moving.given_back = end;
    }
    Ok(has_more)
}

/// Turns everything before the border into gaps. Returns `false` if anything before the border is
/// still needed; the file is then left unchanged.
pub fn end_move(file: &impl Steps, moving: &Move) -> Stepped<bool> {
    let is_led_to = commit_with_slot(file)?;
    let gaps = file.step(|io, log| {
        // Index pages of an older checkpoint may lie before the border, even if the checkpoint
        // itself does not.
        let is_free =
            moving.is_everything && is_led_to && log.commits.slotted().offset >= moving.border;
        if is_free { log.gaps_before(io, moving).map(Some) } else { Ok(None) }
    })?;
    let Some(gaps) = gaps else { return Ok(false) };
    // A walk reaches the other gaps through the first one, so the first gap is written last.
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
    /// Starts moving all content past the current end of the file.
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
                // Unreadable content is not moved, because it may be repaired later.
                Err(error) if error.errno() == Errno::IO => moving.is_everything = false,
                Err(error) => return Err(error),
            }
        }
        self.map.note_disorder();
        self.append_frames(io, batch, WriteOptions::default())?;
        self.map.trim();
        Ok(!is_last)
    }

    /// Makes one new frame for a chunk's whole content. It reuses the old body if that contains
    /// exactly this content.
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

    /// Returns the gaps that replace everything before a move's border. No live frame may remain
    /// before the border. The list is empty if the gaps exist already.
    fn gaps_before(&self, io: Io<'_>, moving: &Move) -> Result<Vec<Gap>> {
        // Another move, which began later, may have ended first.
        if end_of(&self.leading_gaps(io)?) >= moving.border {
            return Ok(Vec::new());
        }
        let first = frame_reader::header(io, self.identity(), HEAD_BYTES)?;
        let made = gaps(HEAD_BYTES..moving.border, first.sequence, moving.sequence);
        Ok(made.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests;
