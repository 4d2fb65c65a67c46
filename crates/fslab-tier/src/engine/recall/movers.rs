//! The threads that serve recalls. Each thread takes the next recall from the queue, reads its
//! block from an archive, verifies it, and writes it to the lower file.

use std::io::ErrorKind;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use fslab_vfs::{Errno, Result};

use crate::archive::{Archive, ContainerKind, Later, Staged};
use crate::engine::Tier;
use crate::engine::copies::combined::CombinedCopies;
use crate::engine::files::residency_xattr::Durable;
use crate::engine::files::{FileState, KnownResidency, TieredFile};
use crate::engine::metrics::Counter;
use crate::engine::recall::Recall;
use crate::engine::recall::queue::{Class, Queue};
use crate::error::Error;
use crate::id::Id;
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
    /// All archives that contain the block are unavailable, or have it in cold storage.
    Unavailable {
        is_cold: bool,
        later: Option<Later>,
    },
    /// The block is in memory, because it could not be stored.
    Unstored(fslab_vfs::Error),
}

/// The result of fetching a block.
pub(in crate::engine) enum Fetched {
    /// The bytes of the block.
    Block(Vec<u8>),
    /// All archives that contain the block are unavailable.
    Unavailable,
    /// All readable archives with the block have it in cold storage, and it was not staged.
    Cold,
    /// An archive is staging the block.
    Later(Later),
}

/// Whether a copy in cold storage may be staged, which may cost money and take hours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) enum MayStage {
    /// No copy is staged.
    No,
    /// A copy is staged if no other copy is in an unavailable archive, which may soon be available
    /// again.
    IfAllAreCold,
    Yes,
}

/// After so many postponements, about a minute, a recall no longer waits for an unavailable archive
/// if another one can stage the block.
const POSTPONED_FIRST: u32 = 6;

impl MayStage {
    fn of(recall: &Recall) -> Self {
        let is_staged = recall.is_staged.load(Ordering::SeqCst);
        let times_postponed = recall.times_postponed.load(Ordering::SeqCst);
        match recall.class() {
            // Nobody may ever read the block.
            Class::Ahead if recall.waiters() == 0 => Self::No,
            // The archive that stages the block may be unavailable for a moment.
            _ if is_staged || times_postponed < POSTPONED_FIRST => Self::IfAllAreCold,
            _ => Self::Yes,
        }
    }
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
            Ok(Ok(Served::Unavailable { is_cold, later })) => {
                recall.is_staged.fetch_or(later.is_some(), Ordering::SeqCst);
                *recall.later.lock() = later;
                return self.postpone(recall, is_cold);
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

    /// Postpones a recall whose archives are all unavailable, if a program waits for it; otherwise
    /// ends it with an error. A postponed recall delays no other recall.
    fn postpone(&self, recall: &Arc<Recall>, is_cold: bool) {
        // While the file's state is locked, no program can begin to wait for the recall.
        let mut state = recall.file.lock();
        let times = recall.times_postponed.fetch_add(1, Ordering::SeqCst);
        let pause = PAUSE_FIRST.saturating_mul(1 << times.min(16)).min(PAUSE_MAX);
        let until_ns = self.around.clock.now_ns().saturating_add(pause.as_nanos() as u64);
        recall.is_begun.store(false, Ordering::SeqCst);
        if recall.waiters() > 0 && self.recalls.queue.postpone(recall, until_ns) {
            // An archive may have become available just before this recall was postponed. That has
            // requeued only recalls postponed earlier, so this recall is requeued here. The archive
            // of a block in cold storage is available all the time.
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
        let fetched = self.fetch(&recall.file, &version, recall.block, MayStage::of(recall));
        let mut state = recall.file.lock();
        let has_moved = |known: &KnownResidency| known.recorded.version.object != version.object;
        let bytes = match fetched {
            Ok(Fetched::Block(bytes)) => bytes,
            // The bundle was repacked during the read. Waiting programs request the block again, at
            // its new location.
            _ if state.known().is_some_and(has_moved) => return Ok(Served::Done),
            Ok(Fetched::Unavailable) => {
                return Ok(Served::Unavailable { is_cold: false, later: None });
            }
            Ok(Fetched::Cold) => return Ok(Served::Unavailable { is_cold: true, later: None }),
            Ok(Fetched::Later(later)) => {
                return Ok(Served::Unavailable { is_cold: true, later: Some(later) });
            }
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

    /// Returns a block from the first available archive with an intact copy of it, or combined from
    /// several damaged copies. If no archive has a readable copy, starts to stage a copy in cold
    /// storage, as far as `may_stage` permits this. The result is [`Fetched::Unavailable`] only if
    /// an archive with a recorded copy is unavailable, and no other archive with a recorded copy
    /// failed.
    pub(in crate::engine) fn fetch(
        &self,
        file: &TieredFile,
        version: &Version,
        block: u64,
        may_stage: MayStage,
    ) -> Result<Fetched> {
        let holders = self.may_hold(version);
        // Whether an archive is unavailable is determined before the archives are read, because it
        // may become available during the reads.
        let is_said_to_hold = |archive: &Arc<dyn Archive>| version.copies.contains(&archive.id());
        let mut is_unavailable = self.holders_anywhere(version).len()
            > holders.iter().filter(|archive| is_said_to_hold(archive)).count();
        if !is_unavailable && let Err(error) = self.is_there(version) {
            tracing::error!("{}: {error}", self.name(file.ino()));
        }
        let (mut has_failed, mut cold) = (false, Vec::new());
        for archive in &holders {
            let read = self.reader(archive, version).and_then(|reader| {
                if let Some(limit) = &self.recalls.limit {
                    limit.charge(reader.stored_bytes(block)?);
                }
                reader.block(block)
            });
            match read {
                Ok(bytes) => return Ok(Fetched::Block(bytes)),
                Err(error) if error.cold_container().is_some() => {
                    cold.extend(error.cold_container().map(|container| (archive, container)));
                }
                Err(error) if error.is_unavailable() => is_unavailable |= is_said_to_hold(archive),
                // Archives without a recorded copy are tried, too, but their failures are expected.
                Err(_) if is_unavailable && !is_said_to_hold(archive) => {}
                Err(error) => {
                    has_failed |= is_said_to_hold(archive);
                    self.recalls.readers.remove(&(archive.id(), version.object));
                    tracing::error!("{}: {error}", self.name_of_block(file, block));
                }
            }
        }
        if cold.is_empty() && is_unavailable && !has_failed {
            return Ok(Fetched::Unavailable);
        }
        let are_several = holders.len() - cold.len() >= 2;
        if are_several
            && (has_failed || cold.is_empty())
            && let Some(bytes) = self.combined(file, version, block, holders.clone())
        {
            return Ok(Fetched::Block(bytes));
        }
        match may_stage {
            _ if cold.is_empty() => {
                self.note_damaged(version);
                Err(Errno::IO.into())
            }
            MayStage::No => Ok(Fetched::Cold),
            MayStage::IfAllAreCold if is_unavailable => Ok(Fetched::Unavailable),
            MayStage::IfAllAreCold | MayStage::Yes => {
                let staged = self.stage(&cold, || self.name_of_block(file, block))?;
                // Without a result, the block became readable just now.
                staged.map_or_else(|| self.fetch(file, version, block, MayStage::No), Ok)
            }
        }
    }

    /// Returns a block that is combined from the intact parts of several copies, if they make up
    /// the whole block.
    fn combined(
        &self,
        file: &TieredFile,
        version: &Version,
        block: u64,
        holders: Vec<Arc<dyn Archive>>,
    ) -> Option<Vec<u8>> {
        let name = self.name_of_block(file, block);
        match CombinedCopies::block(holders, version, block) {
            Ok(bytes) => {
                tracing::warn!("{name}: the block was recovered from several damaged copies");
                Some(bytes)
            }
            Err(error) => {
                tracing::error!("{name}: no intact copy could be read: {error}");
                None
            }
        }
    }

    /// Starts to stage one of several containers with the same block, in the first archive that
    /// accepts this. Returns `None` if the container can be read now. Fails if all archives refuse
    /// to stage it.
    fn stage(
        &self,
        cold: &[(&Arc<dyn Archive>, Id)],
        name: impl Fn() -> String,
    ) -> Result<Option<Fetched>> {
        let mut is_unavailable = false;
        for (archive, container) in cold {
            match archive.stage((ContainerKind::Files, *container)) {
                Ok(Staged::Later(later)) => return Ok(Some(Fetched::Later(later))),
                Ok(Staged::Ready) => return Ok(None),
                Err(error) if error.kind() == ErrorKind::NotConnected => is_unavailable = true,
                Err(error) => {
                    tracing::error!(
                        "{}: the archive {} can't restore object {container} from cold storage: \
                         {error}",
                        name(),
                        archive.label()
                    );
                }
            }
        }
        if is_unavailable { Ok(Some(Fetched::Unavailable)) } else { Err(Errno::IO.into()) }
    }

    /// Records that a block of a version can't be read from any archive, so that no later version
    /// refers to it.
    fn note_damaged(&self, version: &Version) {
        if let Err(error) = self.catalogue.note_damaged(version.object, true) {
            tracing::error!(%error, "can't record that an archived version is damaged");
        }
    }

    fn name_of_block(&self, file: &TieredFile, block: u64) -> String {
        let (name, offset) = (self.name(file.ino()), block * BLOCK_BYTES);
        format!("{name}, block {block} at offset {offset}")
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
