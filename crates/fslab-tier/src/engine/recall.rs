//! Bringing blocks back: who wants one asks for it, threads of the engine fetch it, and everybody
//! waits for blocks of his own range only.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::time::Duration;

use fslab_vfs::{Errno, Ino, Request, Result};
use parking_lot::{Condvar, Mutex};

use crate::archive::Archive;
use crate::engine::Tier;
use crate::engine::copies::patchwork::Patchwork;
use crate::engine::files::residency_xattr::Durable;
use crate::engine::files::{FileState, FileUse, Known, TieredFile};
use crate::engine::recall::queue::{Class, Position};
use crate::error::Error;
use crate::lower::OwnFile;
use crate::stored::writer::is_zero;
use crate::stored::{BLOCK_BYTES, Location, Residency, Version};

pub mod queue;
pub(in crate::engine) mod reader_cache;

/// How often somebody who waits looks whether he has been signalled.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Blocks of one range that are asked for at once: bounds the queue.
const WINDOW: u64 = 16;

/// How long a recall waits first for an archive that is away, and how long at most: each time twice
/// as long as before.
const PAUSE_FIRST: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// A block on its way.
#[derive(Debug)]
pub struct Recall {
    /// The file.
    pub file: Arc<TieredFile>,
    /// The block.
    pub block: u64,
    /// Who asked first.
    pub user: u32,
    /// When, by the engine's clock.
    pub asked_ns: u64,
    /// Where it lies.
    pub position: Position,
    class: AtomicU8,
    /// Who waits for it.
    waiters: Mutex<Vec<WaitingFor>>,
    /// It is being read.
    is_begun: AtomicBool,
    /// How often all archives were away that hold it.
    put_off: AtomicU32,
    /// The file stays in use until this is done: a later use must not find it otherwise than this.
    used: Mutex<Option<FileUse>>,
    /// Its block is in its place, and it is about to end.
    has_landed: AtomicBool,
    outcome: Mutex<Option<std::result::Result<(), Errno>>>,
    done: Condvar,
}

impl Recall {
    /// How urgent it is.
    pub fn class(&self) -> Class {
        match self.class.load(Ordering::SeqCst) {
            0 => Class::Waiting,
            1 => Class::Bulk,
            _ => Class::Ahead,
        }
    }

    pub(crate) fn set_class(&self, class: Class) {
        self.class.store(class as u8, Ordering::SeqCst);
    }

    /// How many wait for it.
    pub fn waiters(&self) -> usize {
        self.waiters.lock().len()
    }

    /// Who waits for it.
    pub(crate) fn who_waits(&self) -> Vec<WaitingFor> {
        self.waiters.lock().clone()
    }

    /// Whether a thread reads it already.
    pub(crate) fn is_begun(&self) -> bool {
        self.is_begun.load(Ordering::SeqCst)
    }

    /// Whether it waits for an archive that is away.
    pub(crate) fn is_put_off(&self) -> bool {
        self.put_off.load(Ordering::SeqCst) > 0
    }

    /// Ends it for all who wait.
    pub(crate) fn end(&self, outcome: std::result::Result<(), Errno>) {
        // Before anybody goes on: he may find nobody else who uses the file.
        self.leave();
        *self.outcome.lock() = Some(outcome);
        self.done.notify_all();
    }

    /// Ends its use of the file.
    fn leave(&self) {
        drop(self.used.lock().take());
    }

    /// Waits until it has ended.
    fn join(&self) {
        let mut outcome = self.outcome.lock();
        self.done.wait_while(&mut outcome, |outcome| outcome.is_none());
    }
}

/// A process that waits for a recall.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WaitingFor {
    /// Its user.
    pub user: u32,
    /// Its number, 0 where that is not known.
    pub pid: u32,
}

/// Who waits for a recall, until dropped. Begun with the file locked: nobody ends a recall for want
/// of waiters meanwhile.
struct Waiter {
    recall: Arc<Recall>,
    who: WaitingFor,
    class: Class,
    /// How often it was put off before.
    put_off: u32,
}

impl Waiter {
    fn new(recall: &Arc<Recall>, request: &Request, class: Class) -> Self {
        let who = WaitingFor { user: request.credentials.uid, pid: request.pid };
        recall.waiters.lock().push(who);
        let put_off = recall.put_off.load(Ordering::SeqCst);
        Self { recall: Arc::clone(recall), who, class, put_off }
    }

    /// Whether all archives are away that hold it, and other files are to be gone on with.
    fn goes_on(&self) -> bool {
        self.class != Class::Waiting && self.recall.put_off.load(Ordering::SeqCst) > self.put_off
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let mut waiters = self.recall.waiters.lock();
        if let Some(index) = waiters.iter().position(|who| *who == self.who) {
            waiters.swap_remove(index);
        }
    }
}

/// What became of a recall.
enum Served {
    Done,
    /// All archives are away that hold it.
    Away,
}

/// What became of a block that was asked for.
pub(super) enum Fetched {
    /// Its bytes.
    Block(Vec<u8>),
    /// All archives are away that hold it.
    Away,
}

impl FileState {
    /// Recalls of a range whose blocks are in their places, and which have not quite ended.
    fn landed(&self, blocks: &Range<u64>) -> Vec<Arc<Recall>> {
        let mut landed: Vec<_> = self.flight.values().cloned().collect();
        landed.retain(|recall| {
            blocks.contains(&recall.block) && recall.has_landed.load(Ordering::SeqCst)
        });
        landed
    }
}

impl Tier {
    /// Waits until no block of a range is offline. The caller's signals end the wait, and so does
    /// the patience of the tree, where it has an end.
    ///
    /// # Errors
    /// `EINTR`; what the tree answers who waited too long; `EIO` where no archive has the block.
    pub fn recall(
        &self,
        file: &Arc<TieredFile>,
        blocks: Range<u64>,
        request: &Request,
        class: Class,
    ) -> Result<()> {
        self.recall_and_ask_ahead(file, blocks, 0..0, request, class)
    }

    /// The same, and asks for blocks that may be wanted next, without waiting for them.
    pub(super) fn recall_and_ask_ahead(
        &self,
        file: &Arc<TieredFile>,
        blocks: Range<u64>,
        mut ahead: Range<u64>,
        request: &Request,
        class: Class,
    ) -> Result<()> {
        let begun_ns = self.around.clock.now_ns();
        loop {
            let wanted = {
                let mut state = self.state(file)?;
                let Some(known) = state.known() else { return Ok(()) };
                let Some(first) = self.first_missing(known, blocks.clone()) else {
                    let landed = state.landed(&blocks);
                    if let Err(error) = self.ask_ahead(file, &mut state, ahead, request) {
                        tracing::debug!(%error, "nothing is asked for ahead");
                    }
                    drop(state);
                    self.end_surplus(request.credentials.uid);
                    // They use the file until they end: who closes it may be the last who does.
                    landed.iter().for_each(|recall| recall.join());
                    return Ok(());
                };
                self.check_program(file, request, class)?;
                let window = first..blocks.end.min(first + WINDOW);
                self.ask(file, &mut state, window, request, class)?;
                self.ask_ahead(file, &mut state, std::mem::take(&mut ahead), request)?;
                state.flight.get(&first).map(|recall| Waiter::new(recall, request, class))
            };
            self.end_surplus(request.credentials.uid);
            match wanted {
                Some(wanted) => self.wait(&wanted, request, begun_ns)?,
                // The engine is being ended.
                None => return Err(Errno::IO.into()),
            }
        }
    }

    /// [`Self::recall`] for who has other files to go on with: what is away is not waited for.
    ///
    /// # Errors
    /// `NoCopy` where all archives are away that hold a block; `Interrupted`; otherwise as
    /// [`Self::recall`], under the path of the file.
    pub(crate) fn recall_in_bulk(
        &self,
        file: &Arc<TieredFile>,
        path: &[u8],
        blocks: Range<u64>,
        request: &Request,
    ) -> crate::error::Result<()> {
        let Err(error) = self.recall(file, blocks, request, Class::Bulk) else { return Ok(()) };
        // By then what was put off is in the queue, and nobody may wait for it any more.
        let version = file.lock().known().map(|known| known.recorded.version.clone());
        self.end_surplus(request.credentials.uid);
        if error.errno() == Errno::INTR {
            return Err(Error::Interrupted);
        }
        version.map_or(Ok(()), |version| self.is_there(&version))?;
        Err(Error::below(path)(error))
    }

    /// Asks for the first blocks of a range that are offline, and waits for none; answers how many.
    ///
    /// # Errors
    /// What the file system below answers.
    pub(crate) fn ask_in_advance(
        &self,
        file: &Arc<TieredFile>,
        blocks: Range<u64>,
        request: &Request,
    ) -> Result<u64> {
        let mut state = self.state(file)?;
        let Some(known) = state.known() else { return Ok(0) };
        let Some(first) = known.offline.first_in(blocks.clone()) else { return Ok(0) };
        let window = first..blocks.end.min(first + WINDOW);
        let wanted = window.clone().filter(|block| known.offline.contains(*block)).count();
        self.ask(file, &mut state, window, request, Class::Bulk)?;
        drop(state);
        self.end_surplus(request.credentials.uid);
        Ok(wanted as u64)
    }

    /// Ends what a user has too much of in the queue and nobody waits for: whoever asks and goes,
    /// again and again, would fill the memory and keep archives busy.
    fn end_surplus(&self, user: u32) {
        for recall in self.queue.surplus(user) {
            let mut state = recall.file.lock();
            if recall.waiters() > 0 || !self.queue.cancel(&recall) {
                continue;
            }
            state.flight.remove(&recall.block);
            // A recall is a use of its file, and the last one locks it.
            drop(state);
            recall.end(Err(Errno::CANCELED));
        }
    }

    /// Some programs do not recall: they are told so at once.
    fn check_program(&self, file: &TieredFile, request: &Request, class: Class) -> Result<()> {
        if class != Class::Waiting {
            return Ok(());
        }
        let settings = &self.settings;
        let Some(program) = settings.deny.refused(request.pid) else { return Ok(()) };
        self.counted.refused();
        if settings.deny.is_first(&program) {
            let (name, file) = (program.name, self.name(file.ino()));
            tracing::warn!("{file}: {name} (process {}) does not recall here", request.pid);
        }
        Err(settings.late.into())
    }

    fn ask(
        &self,
        file: &Arc<TieredFile>,
        state: &mut FileState,
        blocks: Range<u64>,
        request: &Request,
        class: Class,
    ) -> Result<()> {
        let (Some(known), Some(tier)) = (state.known(), self.me.upgrade()) else { return Ok(()) };
        let wanted: Vec<u64> = blocks.filter(|block| self.is_missing(known, *block)).collect();
        for block in wanted {
            if let Some(recall) = state.flight.get(&block) {
                self.queue.hurry(recall, class);
                continue;
            }
            let version = state.known().map(|known| &known.recorded.version);
            let position = version.map(|version| self.position(version, block));
            let recall = Arc::new(Recall {
                file: Arc::clone(file),
                block,
                user: request.credentials.uid,
                asked_ns: self.around.clock.now_ns(),
                position: position.unwrap_or_default(),
                class: AtomicU8::new(class as u8),
                waiters: Mutex::default(),
                is_begun: AtomicBool::new(false),
                put_off: AtomicU32::new(0),
                // Who asks may give up, and the file go, before it comes to this.
                used: Mutex::new(Some(tier.enter_and_hold(file.ino())?)),
                has_landed: AtomicBool::new(false),
                outcome: Mutex::new(None),
                done: Condvar::new(),
            });
            state.flight.insert(block, Arc::clone(&recall));
            self.queue.push(recall);
        }
        Ok(())
    }

    /// Where a block lies in the archive that will be asked first.
    fn position(&self, version: &Version, block: u64) -> Position {
        let Some(archive) = self.holders(version).into_iter().next() else {
            return Position::default();
        };
        let Location { container, offset, .. } = version.location;
        let (medium, place) = archive.position(container, offset + block * BLOCK_BYTES);
        Position { archive: archive.id(), medium, place }
    }

    /// Asks for what may be wanted next, unless the program does not recall.
    fn ask_ahead(
        &self,
        file: &Arc<TieredFile>,
        state: &mut FileState,
        ahead: Range<u64>,
        request: &Request,
    ) -> Result<()> {
        if ahead.is_empty() || self.settings.deny.refused(request.pid).is_some() {
            return Ok(());
        }
        self.ask(file, state, ahead, request, Class::Ahead)
    }

    fn wait(&self, waiter: &Waiter, request: &Request, begun_ns: u64) -> Result<()> {
        let recall = &waiter.recall;
        let mut outcome = recall.outcome.lock();
        loop {
            if let Some(outcome) = *outcome {
                return Ok(outcome?);
            }
            request.cancellation.check()?;
            if self.is_late(begun_ns) {
                return Err(self.settings.late.into());
            }
            if waiter.goes_on() {
                return Err(Errno::IO.into());
            }
            recall.done.wait_for(&mut outcome, LOOK_EVERY);
        }
    }

    /// Waits until nothing of a file is on its way, and asks for nothing.
    ///
    /// # Errors
    /// `EINTR` where the caller is signalled.
    pub(crate) fn wait_for_recalls(&self, ino: Ino, request: &Request) -> Result<()> {
        let next = || self.in_use(ino)?.lock().flight.values().next().cloned();
        while let Some(recall) = next() {
            let mut outcome = recall.outcome.lock();
            while outcome.is_none() {
                request.cancellation.check()?;
                recall.done.wait_for(&mut outcome, LOOK_EVERY);
            }
        }
        Ok(())
    }

    fn is_late(&self, begun_ns: u64) -> bool {
        let waited = Duration::from_nanos(self.around.clock.now_ns().saturating_sub(begun_ns));
        self.settings.patience.is_some_and(|patience| waited >= patience)
    }

    /// Does one recall; called by threads of the engine.
    pub(super) fn serve(&self, recall: &Arc<Recall>) {
        recall.is_begun.store(true, Ordering::SeqCst);
        let served = catch_unwind(AssertUnwindSafe(|| self.fetch_and_apply(recall)));
        let outcome = match served {
            Ok(Ok(Served::Away)) => return self.put_off(recall),
            Ok(Ok(Served::Done)) => Ok(()),
            Ok(Err(error)) => Err(error),
            // Whoever waits is answered, and the thread goes on with other files.
            Err(_) => {
                let name = self.name_of_block(&recall.file, recall.block);
                tracing::error!("{name}: recalling it panicked; please report this");
                Err(Errno::IO.into())
            }
        };
        self.counted.recalled(&outcome);
        // Who reads what has landed waits for what he finds in flight, and for nothing else.
        recall.leave();
        recall.file.lock().flight.remove(&recall.block);
        recall.end(outcome.map_err(|error| error.errno()));
    }

    /// Has a recall wait until an archive is back, as long as somebody waits for it: its turn comes
    /// again, and meanwhile it is in nobody's way.
    fn put_off(&self, recall: &Arc<Recall>) {
        // While the file is locked, nobody begins to wait for it.
        let mut state = recall.file.lock();
        let times = recall.put_off.fetch_add(1, Ordering::SeqCst);
        let pause = PAUSE_FIRST.saturating_mul(1 << times.min(16)).min(PAUSE_MAX);
        let until_ns = self.around.clock.now_ns().saturating_add(pause.as_nanos() as u64);
        recall.is_begun.store(false, Ordering::SeqCst);
        if recall.waiters() > 0 && self.queue.put_off(recall, until_ns) {
            // Who found that one is back may have brought back what was put off before.
            let is_back = |known: &Known| !self.holders(&known.recorded.version).is_empty();
            if state.known().is_some_and(is_back) {
                self.queue.bring_back();
            }
            return;
        }
        state.flight.remove(&recall.block);
        // A recall is a use of its file, and the last one locks it.
        drop(state);
        recall.end(Err(Errno::IO));
    }

    fn fetch_and_apply(&self, recall: &Recall) -> Result<Served> {
        let version = {
            let state = recall.file.lock();
            let wanted = state.known().filter(|known| known.offline.contains(recall.block));
            match wanted {
                Some(known) => known.recorded.version.clone(),
                // It was overwritten or cut off meanwhile.
                None => return Ok(Served::Done),
            }
        };
        let fetched = self.fetch(&recall.file, &version, recall.block);
        let mut state = recall.file.lock();
        let has_moved = |known: &Known| known.recorded.version.object != version.object;
        let bytes = match fetched {
            Ok(Fetched::Block(bytes)) => bytes,
            // A bundle was repacked meanwhile: who waits asks again, at the new place.
            _ if state.known().is_some_and(has_moved) => return Ok(Served::Done),
            Ok(Fetched::Away) => return Ok(Served::Away),
            Err(error) => return Err(error),
        };
        self.apply(&recall.file, &mut state, &version, recall.block, bytes)?;
        recall.has_landed.store(true, Ordering::SeqCst);
        Ok(Served::Done)
    }

    /// A block from the first archive that is here and has it right, or of what several have of it.
    /// Whether one is away that holds it counts only where none that is said to hold it failed.
    pub(super) fn fetch(
        &self,
        file: &TieredFile,
        version: &Version,
        block: u64,
    ) -> Result<Fetched> {
        let holders = self.may_hold(version);
        // Before it is asked for: it may be back in between.
        let is_said_to_hold = |archive: &Arc<dyn Archive>| version.copies.contains(&archive.id());
        let mut is_away = self.holders_anywhere(version).len()
            > holders.iter().filter(|archive| is_said_to_hold(archive)).count();
        if !is_away && let Err(error) = self.is_there(version) {
            tracing::error!("{}: {error}", self.name(file.ino()));
        }
        let mut has_failed = false;
        for archive in &holders {
            let read = self.reader(archive, version).and_then(|reader| {
                if let Some(limit) = &self.recall_limit {
                    limit.charge(reader.stored_bytes(block)?);
                }
                reader.block(block)
            });
            match read {
                Ok(bytes) => return Ok(Fetched::Block(bytes)),
                Err(error) if error.is_away() => is_away |= is_said_to_hold(archive),
                // Those of which nobody says that they hold it are asked all the same.
                Err(_) if is_away && !is_said_to_hold(archive) => {}
                Err(error) => {
                    has_failed |= is_said_to_hold(archive);
                    self.readers.remove(&(archive.id(), version.object));
                    tracing::error!("{}: {error}", self.name_of_block(file, block));
                }
            }
        }
        if is_away && !has_failed {
            return Ok(Fetched::Away);
        }
        self.fetch_parts(file, holders, version, block).map(Fetched::Block)
    }

    /// A block that no archive has right, where they have all of it between them.
    fn fetch_parts(
        &self,
        file: &TieredFile,
        holders: Vec<Arc<dyn Archive>>,
        version: &Version,
        block: u64,
    ) -> Result<Vec<u8>> {
        if holders.len() < 2 {
            return Err(Errno::IO.into());
        }
        let name = self.name_of_block(file, block);
        match Patchwork::block(holders, version, block) {
            Ok(bytes) => {
                tracing::warn!("{name}: put together of several damaged copies");
                Ok(bytes)
            }
            Err(error) => {
                tracing::error!("{name}, of all copies: {error}");
                Err(Errno::IO.into())
            }
        }
    }

    fn name_of_block(&self, file: &TieredFile, block: u64) -> String {
        let (name, offset) = (self.name(file.ino()), block * BLOCK_BYTES);
        format!("{name}, block {block} at offset {offset}")
    }

    /// Puts a block into the file below, if it is still wanted there.
    fn apply(
        &self,
        file: &TieredFile,
        state: &mut FileState,
        version: &Version,
        block: u64,
        mut bytes: Vec<u8>,
    ) -> Result<()> {
        let is_wanted = |state: &FileState| {
            state.known().is_some_and(|known| {
                known.offline.contains(block) && known.recorded.version.object == version.object
            })
        };
        if !is_wanted(state) {
            return Ok(());
        }
        self.check_open().or(Err(Errno::INTR))?;
        if self.settings.read_only {
            return self.keep_in_memory(file, state, block, bytes);
        }
        let kept = self.kept_of(file, state, block, &bytes)?;
        self.mark_moving(file, state)?;
        let is_poisoned = state.known().is_some_and(|known| known.recorded.is_poisoned());
        let own = state.own(self, file.ino())?;
        let before = own.attr()?;
        let privileges = own.privileges(&before)?;
        let offset = block * BLOCK_BYTES;
        bytes.truncate(before.size.saturating_sub(offset).min(BLOCK_BYTES) as usize);
        let written = match is_poisoned && kept.is_empty() {
            true => fill_pieces(own, offset, &bytes, true),
            false => fill(own, offset, &bytes, &kept),
        };
        own.set_modified(before.modified)?;
        if let Err(error) = own.give_back(&privileges) {
            // Who waits may go on: nobody has more rights for it.
            let name = self.name(file.ino());
            tracing::warn!(%error, "{name}: has lost set-id bits or capabilities");
        }
        written?;
        if let Some(known) = state.known_mut() {
            known.offline.remove(block..block + 1);
        }
        Ok(())
    }

    /// Writing a block changes the time of modification, which a kill would leave so.
    fn mark_moving(&self, file: &TieredFile, state: &mut FileState) -> Result<()> {
        let at_rest = |residency: &&Residency| !residency.changed && !residency.moving;
        let recorded = state.known().map(|known| &known.recorded).filter(at_rest);
        let Some(recorded) = recorded else { return Ok(()) };
        let touched_seconds = self.now_seconds();
        let residency = Residency { moving: true, touched_seconds, ..recorded.clone() };
        self.write_mark(file, state, residency, Durable::Later)
    }
}

/// Pieces of zeros of this size stay holes.
const PIECE: usize = 4096;

/// Puts a block into its place, but for what must stay there. Where that is nothing, zeros are left
/// as holes.
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
    // What an earlier recall or a torn write left there.
    if own.has_data(offset, offset + BLOCK_BYTES)? {
        own.punch(offset, BLOCK_BYTES)?;
    }
    fill_pieces(own, offset, bytes, false)
}

/// Writes pieces that are not zeros. In the place of others, holes are made where there is poison:
/// one by one, so that a kill never leaves zeros that are not the file's.
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

/// A recall of no file, for tests of queues.
#[cfg(test)]
pub(crate) fn recall_of(block: u64, user: u32, class: Class, asked_ns: u64) -> Arc<Recall> {
    Arc::new(Recall {
        file: Arc::default(),
        block,
        user,
        asked_ns,
        position: Position { place: block, ..Position::default() },
        class: AtomicU8::new(class as u8),
        waiters: Mutex::default(),
        is_begun: AtomicBool::new(false),
        put_off: AtomicU32::new(0),
        used: Mutex::new(None),
        has_landed: AtomicBool::new(false),
        outcome: Mutex::new(None),
        done: Condvar::new(),
    })
}
