//! Recalling blocks: a program asks for blocks, threads of the engine fetch them, and the program
//! waits for the blocks of its own range only.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use fslab_vfs::{Errno, Ino, Request, Result};
use parking_lot::Mutex;

use crate::archive::{Archive, TimeoutArchive};
use crate::engine::files::{FileState, TieredFile};
use crate::engine::metrics::Counter;
use crate::engine::recall::queue::{Class, Position, Queue};
use crate::engine::recall::reader_cache::ReaderCache;
use crate::engine::{Settings, Tier};
use crate::environment::Environment;
use crate::error::Error;
use crate::id::Id;
use crate::object::reader::ObjectReader;
use crate::rate_limit::RateLimit;
use crate::stored::{BLOCK_BYTES, Location, Version};

mod lanes;
pub(super) mod movers;
mod order;
mod waiting;

pub use waiting::Recall;
use waiting::Waiter;
pub mod queue;
pub(super) mod reader_cache;

/// How often somebody who waits looks whether he has been signalled.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Blocks of one range that are asked for at once: bounds the queue.
const WINDOW: u64 = 16;

/// The recalls of an engine: the queue, the threads that serve it, and how fast they may.
pub(super) struct Recalls {
    queue: Arc<Queue>,
    readers: ReaderCache,
    movers: Mutex<Vec<JoinHandle<()>>>,
    limit: Option<Arc<RateLimit>>,
}

impl Recalls {
    pub(super) fn new(settings: &Settings, around: &Environment) -> Self {
        let queue = Queue::new(Arc::clone(&settings.order), Arc::clone(&around.clock));
        Self {
            queue: Arc::new(queue),
            readers: ReaderCache::default(),
            movers: Mutex::default(),
            limit: RateLimit::new(settings.recall_rate, &around.clock).map(Arc::new),
        }
    }

    /// Reserves one of so many movers for an archive, and limits how long its calls take, where
    /// there is a limit.
    pub(super) fn with_time_limit(
        &self,
        archive: Arc<dyn Archive>,
        settings: &Settings,
        around: &Environment,
        movers: usize,
    ) -> Arc<dyn Archive> {
        self.queue.reserve(archive.id(), movers);
        if settings.call_limit == Duration::MAX {
            return archive;
        }
        let limit = (Arc::clone(&around.clock), settings.call_limit);
        let queue = Arc::downgrade(&self.queue);
        // Recalls that were put off for the archive are tried again.
        let returned = move || queue.upgrade().iter().for_each(|queue| queue.resume_postponed());
        Arc::new(TimeoutArchive::new(archive, limit, Box::new(returned)))
    }
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
    /// Recalls that are waiting.
    #[must_use]
    pub fn queue(&self) -> &Queue {
        &self.recalls.queue
    }

    /// Opens a version in an archive to read it, unless it is open.
    pub(super) fn reader(
        &self,
        archive: &Arc<dyn Archive>,
        version: &Version,
    ) -> crate::Result<Arc<ObjectReader>> {
        let reader = self.recalls.readers.get(archive, version);
        // It was detached meanwhile.
        if !self.has_archive(archive.id()) {
            self.forget_readers(archive.id());
        }
        reader
    }

    /// Closes what reads in an archive, which is opened again when it is needed.
    pub(super) fn forget_readers(&self, archive: Id) {
        self.recalls.readers.forget_archive(archive);
    }

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

    /// [`Self::recall`] for who has other files to go on with: what is unavailable is not waited
    /// for.
    ///
    /// # Errors
    /// `NoCopy` where all archives are unavailable that hold a block; `Interrupted`; otherwise as
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

    /// Asks for the first blocks of a range that are offline, and waits for none; returns how many.
    ///
    /// # Errors
    /// Errors of the file system below.
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
        for recall in self.recalls.queue.surplus(user) {
            let mut state = recall.file.lock();
            if recall.waiters() > 0 || !self.recalls.queue.cancel(&recall) {
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
        self.counters.add(Counter::RefusedRecalls, 1);
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
                self.recalls.queue.promote(recall, class);
                continue;
            }
            let version = state.known().map(|known| &known.recorded.version);
            let position = version.map(|version| self.position(version, block));
            // Who asks may give up, and the file go, before it comes to this.
            let used = Some(tier.enter_and_hold(file.ino())?);
            let (user, asked_ns) = (request.credentials.uid, self.around.clock.now_ns());
            let position = position.unwrap_or_default();
            let recall = Recall::new((file, block), user, asked_ns, position, class, used);
            state.flight.insert(block, Arc::clone(&recall));
            self.recalls.queue.push(recall);
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
}
