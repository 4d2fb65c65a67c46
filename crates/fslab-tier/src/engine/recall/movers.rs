//! The threads that serve recalls. Each thread takes the next recall from the queue, reads its
//! block from an archive, verifies it, and writes it to the lower file.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use fslab_vfs::{Errno, Result};

use crate::engine::Tier;
use crate::engine::files::residency_xattr::Durable;
use crate::engine::files::{FileState, KnownResidency};
use crate::engine::metrics::Counter;
use crate::engine::recall::Recall;
use crate::engine::recall::cold_storage::Staging;
use crate::engine::recall::fetching::Fetched;
use crate::engine::recall::queue::Queue;
use crate::error::Error;
use crate::lower::{OwnFile, is_full};
use crate::object::writer::is_zero;
use crate::stored::{BLOCK_BYTES, Residency, Version};

/// First and longest pause before a recall tries an unavailable archive again. Each pause is twice
/// as long as the one before.
const PAUSE_FIRST: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// The result of serving a recall.
enum Served {
    Done,
    /// All archives that contain the block are unavailable.
    Unavailable,
    /// All readable archives that contain the block have it in cold storage.
    Cold(Staging),
    /// The block is in memory, because it could not be stored.
    Unstored(fslab_vfs::Error),
}

impl Tier {
    pub(in crate::engine) fn mover_count(&self) -> usize {
        self.recalls.movers.lock().len()
    }

    pub(in crate::engine) fn start_movers(self: &Arc<Self>, count: usize) -> crate::Result<()> {
        let mut movers = self.recalls.movers.lock();
        for number in movers.len()..movers.len() + count {
            let (queue, tier) = (Arc::clone(&self.recalls.queue), Arc::downgrade(self));
            let limit = self.recalls.limit.clone();
            // The thread waits for the rate limit before it chooses a recall, because a more urgent
            // recall may arrive during the wait.
            let next = move |queue: &Queue| {
                limit.iter().for_each(|limit| limit.wait_until_open(|| queue.is_closed()));
                queue.next()
            };
            let work = move || {
                while let Some(recall) = next(&queue) {
                    let Some(tier) = tier.upgrade() else { return };
                    tier.serve(&recall);
                    queue.served(&recall);
                }
            };
            let thread = std::thread::Builder::new().name(format!("fslab-mover-{number}"));
            let thread = thread.spawn(work).map_err(|source| Error::Refused {
                what: format!("can't start a thread that recalls files: {source}"),
            })?;
            movers.push(thread);
            self.recalls.queue.set_threads(movers.len());
        }
        Ok(())
    }

    pub(in crate::engine) fn end_queue(&self) {
        self.recalls.queue.close();
        self.recalls.queue.list().iter().for_each(|recall| {
            if self.recalls.queue.cancel(recall) {
                recall.file.lock().flight.remove(&recall.block);
                recall.end(Err(Errno::INTR));
            }
        });
    }

    /// Waits until the recall threads have ended, but at most about a second, because an archive
    /// may not respond. Idle threads end at once, and then no longer keep archives open.
    pub(in crate::engine) fn wait_for_movers(&self) {
        const PAUSE: Duration = Duration::from_millis(1);
        const PAUSES: usize = 1000;
        let mut movers = self.recalls.movers.lock();
        for _ in 0..PAUSES {
            movers.retain(|mover| !mover.is_finished());
            if movers.is_empty() {
                return;
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Serves one recall; called by the recall threads.
    pub(super) fn serve(&self, recall: &Arc<Recall>) {
        recall.is_begun.store(true, Ordering::SeqCst);
        let served = catch_unwind(AssertUnwindSafe(|| self.fetch_and_apply(recall)));
        let outcome = match served {
            Ok(Ok(Served::Unavailable)) => return self.postpone(recall, false),
            Ok(Ok(Served::Cold(staging))) => {
                recall.note_staging(staging);
                return self.postpone(recall, true);
            }
            Ok(Ok(Served::Done)) => Ok(()),
            // Programs that read the block find it in memory in spite of this error.
            Ok(Ok(Served::Unstored(error))) => {
                self.note_unstored(recall, &error);
                return self.end_served(recall, Err(error));
            }
            Ok(Err(error)) => Err(error),
            // After a panic, the waiting programs get an error, and the thread continues with other
            // recalls.
            Err(_) => {
                let name = self.name_of_block(&recall.file, recall.block);
                tracing::error!("{name}: the recall panicked; please report this");
                Err(Errno::IO.into())
            }
        };
        match &outcome {
            Ok(()) => self.counters.add(Counter::RecalledBytes, BLOCK_BYTES),
            Err(_) => self.counters.add(Counter::FailedRecalls, 1),
        }
        self.end_served(recall, outcome);
    }

    /// Counts a block that could not be stored. The log has a line for the first one after a block
    /// was stored.
    fn note_unstored(&self, recall: &Recall, error: &fslab_vfs::Error) {
        self.counters.add(Counter::UnstoredBytes, BLOCK_BYTES);
        if !self.recalls.stores_nothing.swap(true, Ordering::Relaxed) {
            let name = self.name_of_block(&recall.file, recall.block);
            tracing::warn!(
                "{name}: can't store recalled data ({error}), so programs read it from memory; \
                 free some disk space"
            );
        }
    }

    fn end_served(&self, recall: &Arc<Recall>, outcome: Result<()>) {
        // A program whose blocks are all written waits only for recalls that are still in `flight`.
        // So this recall's use of the file ends before the recall is removed from `flight`.
        recall.leave();
        recall.file.lock().flight.remove(&recall.block);
        recall.end(outcome.map_err(|error| error.errno()));
    }

    /// Postpones a recall whose archives are all unavailable, or have the block in cold storage, if
    /// a program waits for it; otherwise ends it with an error. A postponed recall delays no other
    /// recall.
    fn postpone(&self, recall: &Arc<Recall>, is_cold: bool) {
        // While the file's state is locked, no program can begin to wait for the recall.
        let mut state = recall.file.lock();
        let times = recall.times_postponed.fetch_add(1, Ordering::SeqCst);
        let pause = PAUSE_FIRST.saturating_mul(1 << times.min(16)).min(PAUSE_MAX);
        let until_ns = self.around.clock.now_ns().saturating_add(pause.as_nanos() as u64);
        recall.is_begun.store(false, Ordering::SeqCst);
        if recall.waiters() > 0 && self.recalls.queue.postpone(recall, until_ns) {
            // An archive may have become available just before this recall was postponed. That has
            // requeued only recalls postponed earlier, so this recall is requeued here. A block in
            // cold storage takes longer, and one of its archives may be available all the time.
            let is_back = |known: &KnownResidency| {
                !is_cold && !self.holders(&known.recorded.version).is_empty()
            };
            if state.known().is_some_and(is_back) {
                self.recalls.queue.resume_postponed();
            }
            return;
        }
        state.flight.remove(&recall.block);
        // Ending the recall may drop the file's last use, which locks the state.
        drop(state);
        recall.end(Err(Errno::IO));
    }

    fn fetch_and_apply(&self, recall: &Recall) -> Result<Served> {
        let version = {
            let state = recall.file.lock();
            let wanted = state.known().filter(|known| known.offline.contains(recall.block));
            match wanted {
                Some(known) => known.recorded.version.clone(),
                // The block was overwritten or truncated after the recall was queued.
                None => return Ok(Served::Done),
            }
        };
        let fetched = self.fetch(&recall.file, &version, recall.block, recall.may_stage());
        let mut state = recall.file.lock();
        let has_moved = |known: &KnownResidency| known.recorded.version.object != version.object;
        let bytes = match fetched {
            Ok(Fetched::Block(bytes)) => bytes,
            // The bundle was repacked during the read. Waiting programs request the block again, at
            // its new location.
            _ if state.known().is_some_and(has_moved) => return Ok(Served::Done),
            Ok(Fetched::Unavailable) => return Ok(Served::Unavailable),
            Ok(Fetched::Cold(staging)) => return Ok(Served::Cold(staging)),
            Err(error) => return Err(error),
        };
        match self.apply(&mut state, &version, recall.block, &bytes) {
            Err(error) if is_full(error.errno()) => {
                self.keep_in_memory(&state, recall.block, bytes)?;
                recall.has_landed.store(true, Ordering::SeqCst);
                Ok(Served::Unstored(error))
            }
            applied => {
                applied?;
                self.recalls.stores_nothing.store(false, Ordering::Relaxed);
                recall.has_landed.store(true, Ordering::SeqCst);
                Ok(Served::Done)
            }
        }
    }

    /// Writes a block to the lower file, if it is still offline there.
    fn apply(
        &self,
        state: &mut FileState,
        version: &Version,
        block: u64,
        bytes: &[u8],
    ) -> Result<()> {
        let is_wanted = |known: &KnownResidency| {
            known.offline.contains(block) && known.recorded.version.object == version.object
        };
        if !state.known().is_some_and(is_wanted) {
            return Ok(());
        }
        self.check_open().or(Err(Errno::INTR))?;
        if self.settings.read_only {
            return self.keep_in_memory(state, block, bytes.to_vec());
        }
        let kept = self.edits_to_keep(state, block, bytes)?;
        self.mark_moving(state)?;
        let is_poisoned = state.recorded().is_some_and(Residency::is_poisoned);
        let own = state.own(self)?;
        let before = own.attr()?;
        let privileges = own.privileges(&before)?;
        let offset = block * BLOCK_BYTES;
        let length = before.size.saturating_sub(offset).min(BLOCK_BYTES) as usize;
        let bytes = &bytes[..bytes.len().min(length)];
        let written = match is_poisoned && kept.is_empty() {
            true => fill_pieces(own, offset, bytes, true),
            false => fill(own, offset, bytes, &kept),
        };
        if written.as_ref().is_err_and(|error| is_full(error.errno()))
            && !is_poisoned
            && kept.is_empty()
        {
            // Part of the block would otherwise take the last free space.
            if let Err(error) = own.punch(offset, BLOCK_BYTES) {
                let name = self.name(own.ino());
                tracing::warn!(%error, "{name}: can't remove a block that was written in part");
            }
        }
        own.set_modified(before.modified)?;
        if let Err(error) = own.give_back(&privileges) {
            // The error is only logged, because no program gains rights by the loss of these
            // privileges.
            let name = self.name(state.ino);
            tracing::warn!(%error, "{name}: can't restore set-id bits or capabilities");
        }
        written?;
        if let Some(known) = state.known_mut() {
            known.offline.remove(block..block + 1);
        }
        Ok(())
    }

    /// Marks a file as `moving` before a block is written. Writing changes the modification time.
    /// If the engine is killed before it restores the time, the mark shows that the time is wrong.
    fn mark_moving(&self, state: &mut FileState) -> Result<()> {
        if state.recorded().is_none_or(|recorded| recorded.changed || recorded.moving) {
            return Ok(());
        }
        self.change_mark(state, Durable::Later, |residency| {
            (residency.moving, residency.touched_seconds) = (true, self.now_seconds());
        })
    }
}

/// Size in bytes of the aligned pieces of a block. A piece that contains only zeros remains a hole.
const PIECE: usize = 4096;

/// Writes a block except for the ranges that must be kept. If no range is kept, pieces of zeros
/// remain holes.
fn fill(own: &OwnFile, offset: u64, bytes: &[u8], kept: &[Range<u64>]) -> Result<()> {
    if kept.is_empty() {
        return fill_whole(own, offset, bytes);
    }
    let end = bytes.len() as u64;
    let starts = std::iter::once(0).chain(kept.iter().map(|piece| piece.end.min(end)));
    let ends = kept.iter().map(|piece| piece.start.min(end)).chain([end]);
    let mut gaps = starts.zip(ends).filter(|(start, end)| start < end);
    gaps.try_for_each(|(start, end)| {
        own.write(offset + start, &bytes[start as usize..end as usize])
    })
}

fn fill_whole(own: &OwnFile, offset: u64, bytes: &[u8]) -> Result<()> {
    // Data in an offline block was left by an interrupted recall or a torn write.
    if own.has_data(offset, offset + BLOCK_BYTES)? {
        own.punch(offset, BLOCK_BYTES)?;
    }
    fill_pieces(own, offset, bytes, false)
}

/// Writes the pieces that are not all zeros. In a poisoned file, runs of zero pieces are punched;
/// the whole block is never punched first. So a killed engine never leaves zeros where the archived
/// file has other bytes.
fn fill_pieces(own: &OwnFile, offset: u64, bytes: &[u8], is_poisoned: bool) -> Result<()> {
    let pieces = bytes.chunks(PIECE).map(|piece| (is_zero(piece), piece.len()));
    let mut runs: Vec<(bool, Range<usize>)> = Vec::new();
    for (is_hole, length) in pieces {
        match runs.last_mut().filter(|(before, _)| *before == is_hole) {
            Some((_, run)) => run.end += length,
            None => {
                let start = runs.last().map_or(0, |(_, run)| run.end);
                runs.push((is_hole, start..start + length));
            }
        }
    }
    runs.into_iter().try_for_each(|(is_hole, run)| {
        let at = offset + run.start as u64;
        match (is_hole, is_poisoned) {
            (false, _) => own.write(at, &bytes[run]),
            (true, true) => own.punch(at, run.len() as u64),
            (true, false) => Ok(()),
        }
    })
}
