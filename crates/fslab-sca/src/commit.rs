//! Makes a stored file durable. A stored file is synced only through [`Steps::sync_below`].
//!
//! A commit is prepared and published under the file's lock. In between, it is made durable without
//! the lock, so only callers of fsync wait for the device. The order matters. Frames and a
//! checkpoint must be durable before a slot points to the checkpoint. The space of dead frames is
//! freed only after that (see `dead_frames`).

use fslab_vfs::{Errno, Error, Result};
use parking_lot::MutexGuard;

use super::context::{Io, is_full};
use super::dead_frames::ToGiveBack;
use super::journal::Behind;
use super::log::Log;
use super::quarantine::blank_header;
use super::superblock::Slot;

/// A stored file in use, whose lock is held for one step at a time.
///
/// At most one caller at a time commits a file, moves its content or packs it: the holder of the
/// turn. Others may read and write between the steps.
pub trait Steps {
    /// Waits for the turn: the right to commit the file, move its content or pack it.
    fn turn(&self) -> MutexGuard<'_, ()>;

    /// Runs `work`, which only reads the file, in parallel with readers.
    ///
    /// # Errors
    /// As for [`Self::step`].
    fn look<T>(&self, work: impl FnOnce(Io<'_>, &Log) -> Result<T>) -> Stepped<T>;

    /// Runs `work`, which changes the file, under the file's lock. Times, set-id bits and
    /// capabilities are preserved.
    ///
    /// # Errors
    /// [`Stop::Gone`] if the file was emptied or closed since the operation began.
    fn step<T>(&self, work: impl FnOnce(Io<'_>, &mut Log) -> Result<T>) -> Stepped<T>;

    /// Runs `work`, which reads the file and changes its state in memory, under the lock. `work`
    /// does not write to the lower file.
    ///
    /// # Errors
    /// As for [`Self::step`].
    fn look_and_note<T>(&self, work: impl FnOnce(Io<'_>, &mut Log) -> Result<T>) -> Stepped<T>;

    /// Syncs the lower file without holding the lock. If the sync fails, the open file records
    /// this.
    fn sync_below(&self, data_only: bool) -> Stepped<()>;
}

pub type Stepped<T> = std::result::Result<T, Stop>;

/// Reason why an operation in steps ends early.
#[derive(Debug)]
pub enum Stop {
    /// The file was emptied or closed.
    Gone,
    /// A step failed.
    Failed(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// Turns `Stop::Gone` into `None`.
pub fn unless_gone<T>(stepped: Stepped<T>) -> Result<Option<T>> {
    match stepped {
        Ok(done) => Ok(Some(done)),
        Err(Stop::Gone) => Ok(None),
        Err(Stop::Failed(error)) => Err(error),
    }
}

/// A prepared commit.
pub struct PreparedCommit {
    /// The slot to write after the sync; `None` if there was no room for a checkpoint. Recovery
    /// then finds the content by a walk over the frames.
    slot: Option<Slot>,
    /// Frames that are not needed once this commit is durable, such as the previous checkpoint.
    garbage: ToGiveBack,
    /// Frames that end at or before this offset may be joined into gaps.
    joinable: u64,
    writes: u64,
}

/// Makes all earlier writes durable, and writes a checkpoint so that recovery finds them quickly.
/// Returns whether a slot points to a checkpoint that covers all of them. The slot itself becomes
/// durable with the next commit.
///
/// # Errors
/// Errors of the lower file. After a failed sync it is unknown which writes are durable, so `EIO`
/// is returned until the file is reopened.
pub fn commit(file: &impl Steps, data_only: bool) -> Stepped<bool> {
    clear_end(file)?;
    if file.look(|_, log| Ok(log.commits.is_committed(log.journal.writes())))? {
        file.sync_below(data_only)?;
        if file.look(|_, log| Ok(log.garbage.may_join(log.commits.slotted().end())))? {
            file.step(|io, log| {
                log.join_dead_frames(io);
                Ok(())
            })?;
        }
        return Ok(true);
    }
    let prepared = file.step(|io, log| log.prepare_commit(io))?;
    file.sync_below(data_only)?;
    file.step(|io, log| log.publish(io, prepared))
}

/// Commits twice, so that the slot for all writes is itself durable. Returns whether there is such
/// a slot. If the disk is too full for a checkpoint, the slot written last points to an older
/// checkpoint.
pub fn commit_with_slot(file: &impl Steps) -> Stepped<bool> {
    let is_led_to = commit(file, true)?;
    commit(file, true)?;
    Ok(is_led_to)
}

/// Clears the end of the file for the next frame. It appends staged chunks, removes content that
/// packing superseded, quarantines bytes that are not a frame, and commits if recovery left out
/// incomplete frames.
pub fn clear_end(file: &impl Steps) -> Stepped<()> {
    if file.look(|_, log| Ok(log.journal.is_end_clear()))? {
        return Ok(());
    }
    if file.look(|_, log| Ok(log.journal.is_staging()))? {
        end_staging(file)?;
    }
    if file.look(|_, log| Ok(log.journal.is_superseding()))? {
        cut_off_superseded(file)?;
    }
    keep_aside(file)?;
    if file.look_and_note(|_, log| Ok(log.journal.take_left_out()))? {
        // Without this commit, new frames would follow the incomplete ones. The next recovery could
        // then interpret the incomplete ones differently.
        commit(file, true)?;
    }
    Ok(())
}

/// Appends all staged chunks and removes the staging area.
fn end_staging(file: &impl Steps) -> Stepped<()> {
    file.look_and_note(|_, log| {
        log.close_open_chunk();
        Ok(())
    })?;
    // Encodes in parallel with readers, except for chunks that recovery found.
    file.look(|io, log| log.encode_staged(io))?;
    if file.look(|_, log| Ok(log.is_staging_recovered()))? {
        // Staged chunks that recovery found after a power cut must survive the next power cut.
        file.step(|io, log| log.append_all_staged(io))?;
        file.sync_below(false)?;
    }
    file.step(|io, log| log.end_staging(io))
}

/// Cuts off the old content that packing superseded.
pub fn cut_off_superseded(file: &impl Steps) -> Stepped<()> {
    file.step(|io, log| log.shorten_first_gap(io))?;
    file.sync_below(true)?;
    file.step(|io, log| io.lower.truncate(io.request, log.end()))?;
    file.sync_below(false)?;
    file.look_and_note(|_, log| {
        log.journal.note_behind(Behind::Nothing);
        // The next slot must no longer have the flag for superseded content.
        log.commits.outdate();
        Ok(())
    })?;
    commit(file, true).map(drop)
}

/// Copies unknown bytes after the last frame into durable frames before their space becomes a gap.
fn keep_aside(file: &impl Steps) -> Stepped<()> {
    let behind = file.look(|_, log| Ok(log.journal.behind().clone()))?;
    let Behind::Unknown(leftover) = behind else { return Ok(()) };
    let is_empty = file.step(|io, log| {
        let is_empty = io.lower.is_zero(io.request, &leftover)?;
        if is_empty {
            io.lower.truncate(io.request, leftover.start)?;
            log.journal.note_behind(Behind::Nothing);
        }
        Ok(is_empty)
    })?;
    if is_empty {
        return Ok(());
    }
    let aside = file.step(|io, log| log.copy_aside(io, &leftover))?;
    file.sync_below(false)?;
    file.step(|io, log| blank_header(io, log.identity(), leftover.start))?;
    file.sync_below(false)?;
    file.step(|io, log| log.end_aside(io, &leftover, aside))
}

impl Log {
    fn prepare_commit(&mut self, io: Io<'_>) -> Result<PreparedCommit> {
        if self.commits.sync_has_failed() {
            return Err(Errno::IO.into());
        }
        self.commits.begin(self.end());
        let slot = match self.write_checkpoint(io) {
            Err(error) if is_full(&error) => None,
            written => Some(written).transpose()?.map(|()| self.slot_of_checkpoint(false)),
        };
        self.map.trim();
        let garbage = if slot.is_some() { self.garbage.take() } else { ToGiveBack::default() };
        // The following sync makes the last slot and its checkpoint durable, so dead frames up to
        // that checkpoint may be joined.
        let joinable = self.commits.slotted().end();
        Ok(PreparedCommit { slot, garbage, joinable, writes: self.journal.writes() })
    }

    /// Joins dead frames before the checkpoint of a durable slot.
    fn join_dead_frames(&mut self, io: Io<'_>) {
        let (identity, joinable) = (*self.identity(), self.commits.slotted().end());
        self.garbage.give_back(io, &identity, ToGiveBack::default(), joinable);
    }

    /// Ends a commit whose writes are durable; returns whether a slot points to its checkpoint.
    fn publish(&mut self, io: Io<'_>, prepared: PreparedCommit) -> Result<bool> {
        self.commits.note_durable(prepared.writes);
        let Some(slot) = prepared.slot else { return Ok(false) };
        if slot.checkpoint != self.commits.slotted()
            && let Err(error) = self.write_slot(io, &slot)
        {
            self.garbage.take_again(prepared.garbage);
            return Err(error);
        }
        let identity = *self.identity();
        self.garbage.give_back(io, &identity, prepared.garbage, prepared.joinable);
        Ok(true)
    }
}

#[cfg(test)]
mod tests;
