//! Recalling blocks: a program requests blocks, threads of the engine fetch them, and the program
//! waits only for the blocks of its own range.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use fslab_vfs::{Deferral, Errno, Ino, Request, Result};
use parking_lot::Mutex;

use crate::archive::{Archive, TimeoutArchive};
use crate::engine::files::block_cache::Needed;
use crate::engine::files::{FileState, TieredFile};
use crate::engine::metrics::Counter;
use crate::engine::recall::queue::{Class, Position, Queue};
use crate::engine::recall::reader_cache::ReaderCache;
use crate::engine::{Settings, Tier};
use crate::environment::Environment;
use crate::error::{Error, shown};
use crate::id::Id;
use crate::lower::is_full;
use crate::object::reader::ObjectReader;
use crate::rate_limit::RateLimit;
use crate::stored::{BLOCK_BYTES, Location, Version};

pub(super) mod cold_storage;
pub(super) mod fetching;
mod lanes;
pub(super) mod movers;
mod order;
mod pending;
pub(super) mod prefetching;
mod waiter;
mod waiting;

use cold_storage::{ColdStorage, Staging};
use waiter::{Deferred, Waiter};
pub use waiting::Recall;
pub mod queue;
pub(super) mod reader_cache;

/// Interval at which a waiting thread checks for cancellation and for the time limit.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Maximum number of blocks that are requested at once, so that one large range does not fill the
/// queue.
const WINDOW: u64 = 16;

/// State of the engine's recalls: the queue, the threads that serve it, and their rate limit.
pub(super) struct Recalls {
    queue: Arc<Queue>,
    readers: ReaderCache,
    movers: Mutex<Vec<JoinHandle<()>>>,
    limit: Option<Arc<RateLimit>>,
    pub(super) cold_storage: ColdStorage,
    /// Whether the tier is at the top of its stack, so that its requests may be deferred.
    defers: AtomicBool,
    /// Whether the last recalled block could not be stored, because the disk or a quota was full.
    stores_nothing: AtomicBool,
}

impl Recalls {
    pub(super) fn new(settings: &Settings, around: &Environment) -> Self {
        let queue = Queue::new(Arc::clone(&settings.order), Arc::clone(&around.clock));
        Self {
            queue: Arc::new(queue),
            readers: ReaderCache::default(),
            movers: Mutex::default(),
            limit: RateLimit::new(settings.recall_rate, &around.clock).map(Arc::new),
            cold_storage: ColdStorage::default(),
            defers: AtomicBool::new(false),
            stores_nothing: AtomicBool::new(false),
        }
    }

    /// Reserves a recall thread for an archive. Returns the archive with the time limit for its
    /// calls, if the settings have one.
    pub(super) fn with_time_limit(
        &self,
        archive: Arc<dyn Archive>,
        settings: &Settings,
        around: &Environment,
    ) -> Arc<dyn Archive> {
        self.queue.reserve(archive.id());
        if settings.call_limit == Duration::MAX {
            return archive;
        }
        let limit = (Arc::clone(&around.clock), settings.call_limit);
        let queue = Arc::downgrade(&self.queue);
        // When the archive responds again, postponed recalls are retried.
        let returned = move || queue.upgrade().iter().for_each(|queue| queue.resume_postponed());
        Arc::new(TimeoutArchive::new(archive, limit, Box::new(returned)))
    }
}

/// The error of a recall.
struct Stopped {
    error: fslab_vfs::Error,
    /// Whether an archive stages the block, if the recall is postponed for a block in cold storage.
    staging: Option<Staging>,
}

impl<E: Into<fslab_vfs::Error>> From<E> for Stopped {
    fn from(error: E) -> Self {
        Self { error: error.into(), staging: None }
    }
}

impl FileState {
    /// Returns the recalls of blocks in a range that have written their block but have not ended
    /// yet.
    fn landed(&self, blocks: &Range<u64>) -> Vec<Arc<Recall>> {
        let has_landed = |recall: &&Arc<Recall>| recall.has_landed.load(Ordering::SeqCst);
        let length = blocks.end.saturating_sub(blocks.start);
        // Iterates over the range or over the recalls of the file, whichever is shorter.
        if length <= self.flight.len() as u64 {
            let inside = blocks.clone().filter_map(|block| self.flight.get(&block));
            return inside.filter(has_landed).cloned().collect();
        }
        let inside = self.flight.values().filter(|recall| blocks.contains(&recall.block));
        inside.filter(has_landed).cloned().collect()
    }
}

impl Tier {
    /// Returns the queue of recalls.
    #[must_use]
    pub fn queue(&self) -> &Queue {
        &self.recalls.queue
    }

    /// Returns a reader of a version in an archive; opens the version unless it is cached.
    pub(super) fn reader(
        &self,
        archive: &Arc<dyn Archive>,
        version: &Version,
    ) -> crate::Result<Arc<ObjectReader>> {
        let reader = self.recalls.readers.get(archive, version);
        // If the archive was detached while the reader was opened, the cached reader must not keep
        // the archive open.
        if !self.has_archive(archive.id()) {
            self.forget_readers(archive.id());
        }
        reader
    }

    /// Returns whether the reader of a version is cached.
    pub(super) fn has_reader(&self, archive: &Arc<dyn Archive>, version: &Version) -> bool {
        self.recalls.readers.has(&(archive.id(), version.object))
    }

    /// Closes the cached readers of an archive.
    pub(super) fn forget_readers(&self, archive: Id) {
        self.recalls.readers.forget_archive(archive);
    }

    /// Recalls the offline blocks of a range and waits for them. The wait ends early if the caller
    /// gets a signal, or at the time limit [`Settings::patience`].
    ///
    /// # Errors
    /// `EINTR` after a signal; [`Settings::late`] after the time limit, or if the program may not
    /// recall files; `EIO` if no archive has a required block.
    pub fn recall(
        &self,
        file: &Arc<TieredFile>,
        blocks: Range<u64>,
        request: &Request,
        class: Class,
    ) -> Result<()> {
        self.recall_blocks(file, blocks, 0..0, request, (class, Needed::Stored))
            .map_err(|stopped| stopped.error)
    }

    /// Recalls blocks for a program that reads them. If the lower file system is full, the blocks
    /// remain offline, and [`Self::show_from_memory`] returns their bytes. Also requests the blocks
    /// of `ahead` without waiting for them.
    ///
    /// # Errors
    /// As for [`Self::recall`].
    pub(super) fn recall_to_read(
        &self,
        file: &Arc<TieredFile>,
        blocks: Range<u64>,
        ahead: Range<u64>,
        request: &Request,
    ) -> Result<()> {
        self.recall_blocks(file, blocks, ahead, request, (Class::Waiting, Needed::Readable))
            .map_err(|stopped| stopped.error)
    }

    fn recall_blocks(
        &self,
        file: &Arc<TieredFile>,
        blocks: Range<u64>,
        mut ahead: Range<u64>,
        request: &Request,
        (class, needed): (Class, Needed),
    ) -> std::result::Result<(), Stopped> {
        // `deferred` is kept until the end of this function, because it keeps this process
        // registered as waiting.
        let deferred = self.offer(request).and_then(Deferral::take::<Deferred>);
        let begun_ns = match &deferred {
            Some(deferred) => self.after_deferral(deferred, request, needed)?,
            None => self.around.clock.now_ns(),
        };
        loop {
            let wanted = {
                let mut state = self.state(file)?;
                let Some(known) = state.known() else { return Ok(()) };
                let Some(first) = self.first_missing(known, blocks.clone(), needed) else {
                    let landed = state.landed(&blocks);
                    if let Err(error) = self.ask_ahead(file, &mut state, ahead, request) {
                        tracing::debug!(%error, "can't recall blocks ahead of a reader");
                    }
                    drop(state);
                    self.end_surplus(request.credentials.uid);
                    // These recalls remain users of the file until they end. This function waits
                    // for their end, because the caller may close the file next and must then be
                    // its last user.
                    landed.iter().for_each(|recall| recall.join());
                    return Ok(());
                };
                self.check_program(file, request, class)?;
                let window = first..blocks.end.min(first + WINDOW);
                self.ask(file, &mut state, window, request, (class, needed))?;
                self.ask_ahead(file, &mut state, std::mem::take(&mut ahead), request)?;
                let queue = &self.recalls.queue;
                let recall = state.flight.get(&first);
                recall.map(|recall| (first, Waiter::new(queue, recall, request, class)))
            };
            self.end_surplus(request.credentials.uid);
            // Without a recall, the engine is shutting down.
            let (first, wanted) = wanted.ok_or(Errno::IO)?;
            let recall = Arc::clone(&wanted.recall);
            match self.wait(wanted, request, begun_ns) {
                Err(error)
                    if is_full(error.errno()) && !self.is_lacking(file, first, needed)? => {}
                Err(error) => {
                    // An error that ended the recall has another reason.
                    let staging = recall.staging().filter(|_| !recall.has_ended());
                    return Err(Stopped { error, staging });
                }
                Ok(()) => {}
            }
        }
    }

    /// Returns whether a caller still lacks a block after the lower file system was full.
    fn is_lacking(&self, file: &TieredFile, block: u64, needed: Needed) -> Result<bool> {
        let state = self.state(file)?;
        Ok(state.known().is_some_and(|known| self.is_missing(known, block, needed)))
    }

    /// Recalls blocks for a caller that has other files to process. It does not wait for
    /// unavailable archives.
    ///
    /// # Errors
    /// `NoCopy` if all archives with a block are unavailable; `Staging` if an archive stages a
    /// block; `NotNow` if a copy in cold storage is not staged yet; `Interrupted`; otherwise as
    /// [`Self::recall`], with the path of the file.
    pub(crate) fn recall_in_bulk(
        &self,
        file: &Arc<TieredFile>,
        path: &[u8],
        blocks: Range<u64>,
        request: &Request,
    ) -> crate::error::Result<()> {
        let kind = (Class::Bulk, Needed::Stored);
        let recalled = self.recall_blocks(file, blocks, 0..0, request, kind);
        let Err(Stopped { error, staging }) = recalled else { return Ok(()) };
        // Cancels postponed recalls that only this caller was waiting for.
        let version = file.lock().known().map(|known| known.recorded.version.clone());
        self.end_surplus(request.credentials.uid);
        if error.errno() == Errno::INTR {
            return Err(Error::Interrupted);
        }
        match staging {
            Some(Staging::Begun(later)) => {
                return Err(Error::Staging { path: shown(path), later });
            }
            Some(Staging::NotYet) => {
                let why = "a copy is in cold storage, and an archive with another copy is \
                           unavailable for now; recall the file again in a minute";
                return Err(Error::NotNow { path: shown(path), why });
            }
            None => {}
        }
        version.map_or(Ok(()), |version| self.is_there(&version))?;
        Err(Error::below(path)(error))
    }

    /// Requests the first offline blocks of a range without waiting for them; returns their number.
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
        self.ask(file, &mut state, window, request, (Class::Bulk, Needed::Stored))?;
        drop(state);
        self.end_surplus(request.credentials.uid);
        Ok(wanted as u64)
    }

    /// Cancels a user's surplus recalls that no program waits for. Otherwise a program that
    /// repeatedly requests blocks and gives up would fill the memory and keep archives busy.
    fn end_surplus(&self, user: u32) {
        for recall in self.recalls.queue.surplus(user) {
            let mut state = recall.file.lock();
            if recall.waiters() > 0 || !self.recalls.queue.cancel(&recall) {
                continue;
            }
            state.flight.remove(&recall.block);
            // Ending a recall may drop the file's last use, which locks the state.
            drop(state);
            recall.end(Err(Errno::CANCELED));
        }
    }

    /// Fails if the program that sent a request may not recall files.
    fn check_program(&self, file: &TieredFile, request: &Request, class: Class) -> Result<()> {
        if class != Class::Waiting {
            return Ok(());
        }
        let settings = &self.settings;
        let Some(program) = settings.deny.refused(request.pid) else { return Ok(()) };
        self.counters.add(Counter::RefusedRecalls, 1);
        if settings.deny.is_first(&program) {
            let (name, file) = (program.name, self.name(file.ino()));
            tracing::warn!(
                "{file}: refused a recall for {name} (process {}), which is on the deny list",
                request.pid
            );
        }
        Err(settings.late.into())
    }

    fn ask(
        &self,
        file: &Arc<TieredFile>,
        state: &mut FileState,
        blocks: Range<u64>,
        request: &Request,
        (class, needed): (Class, Needed),
    ) -> Result<()> {
        let (Some(known), Some(tier)) = (state.known(), self.me.upgrade()) else { return Ok(()) };
        let wanted: Vec<u64> =
            blocks.filter(|block| self.is_missing(known, *block, needed)).collect();
        for block in wanted {
            if let Some(recall) = state.flight.get(&block) {
                self.recalls.queue.promote(recall, class);
                continue;
            }
            let version = state.known().map(|known| &known.recorded.version);
            let position = version.map(|version| self.position(version, block));
            // Keeps the file in use, because the caller may give up and close it before the recall
            // is served.
            let used = Some(tier.enter_and_hold(file.ino())?);
            let (user, asked_ns) = (request.credentials.uid, self.around.clock.now_ns());
            let position = position.unwrap_or_default();
            let recall = Recall::new((file, block), user, asked_ns, position, class, used);
            state.flight.insert(block, Arc::clone(&recall));
            self.recalls.queue.push(recall);
        }
        Ok(())
    }

    /// Returns the position of a block in the archive that will be read first.
    fn position(&self, version: &Version, block: u64) -> Position {
        let Some(archive) = self.holders(version).into_iter().next() else {
            return Position::default();
        };
        let Location { container, offset, .. } = version.location;
        let (medium, place) = archive.position(container, offset + block * BLOCK_BYTES);
        Position { archive: archive.id(), medium, place }
    }

    /// Requests blocks that a program may read next, if the program is permitted to recall files.
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
        self.ask(file, state, ahead, request, (Class::Ahead, Needed::Readable))
    }

    /// Enables deferral: requests then wait for recalls without a thread, if their sender supports
    /// that.
    pub(crate) fn accept_offers(&self) {
        self.recalls.defers.store(true, Ordering::SeqCst);
    }

    /// Returns the deferral of a request, if the tier may defer requests.
    fn offer<'a>(&self, request: &'a Request) -> Option<&'a Deferral> {
        self.recalls.defers.load(Ordering::SeqCst).then_some(&request.deferral)
    }

    /// Returns the time at which the wait of a deferred request began. Fails if the wait must end,
    /// for example after a failed recall or the time limit.
    fn after_deferral(
        &self,
        deferred: &Deferred,
        request: &Request,
        needed: Needed,
    ) -> Result<u64> {
        // The outcome is copied, so that its lock is released at once. Other threads take this lock
        // while they hold other locks.
        let outcome = *deferred.waiter.recall.outcome.lock();
        match outcome {
            // The bytes are in memory.
            Some(Err(errno)) if needed == Needed::Readable && is_full(errno) => {}
            Some(outcome) => outcome?,
            None => request.cancellation.check()?,
        }
        if outcome.is_none() && self.is_late(deferred.begun_ns) {
            return Err(self.settings.late.into());
        }
        Ok(deferred.begun_ns)
    }

    /// Waits for a recall on this thread, or defers the request if its sender supports that.
    fn wait(&self, waiter: Waiter, request: &Request, begun_ns: u64) -> Result<()> {
        let recall = Arc::clone(&waiter.recall);
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
            if let Some(waker) = self.offer(request).and_then(Deferral::accept) {
                waiter.set_waker(waker);
                drop(outcome);
                let at_most = self.patience_left(begun_ns);
                let deferred = Deferred { waiter, begun_ns };
                request.deferral.defer(Box::new(deferred), at_most);
                return Err(fslab_vfs::Error::Deferred);
            }
            recall.done.wait_for(&mut outcome, LOOK_EVERY);
        }
    }

    /// Waits until no recall of a file is running or queued; starts no recall.
    ///
    /// # Errors
    /// `EINTR` if the caller is signalled.
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
        self.patience_left(begun_ns) == Some(Duration::ZERO)
    }

    /// Returns the time left for a program that has waited since `begun_ns`; `None` for no limit.
    fn patience_left(&self, begun_ns: u64) -> Option<Duration> {
        let waited = Duration::from_nanos(self.around.clock.now_ns().saturating_sub(begun_ns));
        self.settings.patience.map(|patience| patience.saturating_sub(waited))
    }
}
