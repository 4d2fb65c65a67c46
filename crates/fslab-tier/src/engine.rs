//! The engine: everything that moves bytes between a tree and its archives, for any front end.
//!
//! `file`: files in use and what is known of each. `marks`: the residency xattr, in the order in
//! which it may be written. `recall`: bringing blocks back. `changing`: writes and truncations of
//! files that are partly elsewhere. `reading`: who reads in order. `behind`: what others wrote to
//! these below. `syncing`: what a failed sync leaves. `archiving`, `bundling`, `releasing`,
//! `alone`: the way out. `settling`, `repacking`: what a crash left, and what nobody needs any
//! more. `unserved`: scans beside which names change. `uses`: whether catalogue and tree are of one
//! day. `attached`, `takers`: which archives are here, and which of them take copies. `scrubbing`,
//! `copying`: whether copies are whole, and making those that are missing. `ending`: the end of it
//! all.
//! `docs/formats/tier.md` has the protocols and why they are safe.
//!
//! Locks: a file's state is locked while the file below is changed, never while an archive works.
//! The queue's lock and the table's of files in use are held for a moment only, inside of it.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use fslab_vfs::{Attr, Claim, Errno, FileSystem, Handle, Ino, Request};
use parking_lot::{Mutex, RwLock};

use crate::archive::{Archive, TimedArchive};
use crate::catalogue::Catalogue;
use crate::closed_root::{ClosedRoot, Treatment};
use crate::deny::Deny;
use crate::engine::recall::queue::{Fifo, Order, Queue};
use crate::error::{Error, Result};
use crate::home::Attached;
use crate::id::Id;
use crate::limit::Limit;
use crate::lower::{OwnFile, own_request, request_at};
use crate::poison::Poison;
use crate::rounds::Rounds;
use crate::stored::reader::ObjectReader;
use crate::stored::{Marks, TreeMark, Version};
use crate::surroundings::Surroundings;

mod archives;
mod copies;
mod expiry;
mod files;
mod gauges;
mod inspect;
mod metrics;
mod outbound;
pub(crate) mod recall;
mod release;
mod shutdown;
mod tree;

pub use archives::ArchiveState;
pub use copies::scrubbing::{Heard, Scrubbed};
pub use expiry::{Expired, age};
pub(crate) use files::read_ahead::Place as ReadingPlace;
pub use files::{FileUse, Known, TieredFile};
pub use outbound::archiving::Archived;
pub use outbound::bundling::{Archiver, BUNDLED_BYTES_MAX, Outcome};
pub use recall::Recall;
pub use release::Released;
pub use tree::archived_tree::ArchivedTree;
pub use tree::scan::Scanned;
pub(crate) use tree::walk::is_gone;
pub use tree::walk::{Closed, Place, Visit};

/// How the engine works.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Its identity.
    pub tier: Id,
    /// Nothing of the tree is changed: what is recalled stays in memory.
    pub read_only: bool,
    /// Archives that must hold a file before its bytes may be released.
    pub copies: usize,
    /// Level of zstd for what is archived; 0 for none.
    pub level: i32,
    /// Files of so many bytes or fewer go out together; 0 for none.
    pub bundled: u64,
    /// How long what was replaced or removed is kept.
    pub keep: Duration,
    /// How long a program waits for a recall; nothing for as long as it takes.
    pub patience: Option<Duration>,
    /// What it is answered then.
    pub late: Errno,
    /// Programs that do not recall, and are answered that at once.
    pub deny: Deny,
    /// In which order recalls of a user are served.
    pub order: Arc<dyn Order>,
    /// Threads that recall; one an archive at least.
    pub movers: usize,
    /// How long a call of an archive may take, beside the time that its bytes take; calls have no
    /// limit, and are made directly, where it is [`Duration::MAX`].
    pub call_limit: Duration,
    /// Blocks read ahead of a program that reads in order.
    pub ahead: u64,
    /// Bytes a second that archiving writes and reads back; 0 for any.
    pub archive_rate: u64,
    /// Bytes a second that recalls read; 0 for any.
    pub recall_rate: u64,
    /// Where its usual policy is.
    pub policy: Option<PathBuf>,
    /// The archives that its home names, attached or not.
    pub known_archives: Vec<Attached>,
    /// Nobody enters the tree but through the mount.
    pub closes: bool,
    /// Released files show poison below, where blocks can be shared, and no zeros.
    pub poison: bool,
}

impl Settings {
    /// The usual ones.
    #[must_use]
    pub fn of(tier: Id) -> Self {
        Self {
            tier,
            read_only: false,
            copies: 1,
            level: 3,
            bundled: 64 << 10,
            keep: Duration::from_secs(30 * 24 * 3600),
            patience: None,
            late: Errno::AGAIN,
            deny: Deny::default(),
            order: Arc::new(Fifo),
            movers: 4,
            call_limit: Duration::from_secs(60),
            ahead: 4,
            archive_rate: 0,
            recall_rate: 0,
            policy: None,
            known_archives: Vec::new(),
            closes: true,
            poison: true,
        }
    }

    fn treatment(&self) -> Treatment {
        match (self.read_only, self.closes) {
            (true, _) => Treatment::Leave,
            (false, true) => Treatment::Close,
            (false, false) => Treatment::Open,
        }
    }
}

/// A tree whose files may be in archives.
pub struct Tier {
    /// Itself, for uses of files that outlast a call.
    me: Weak<Self>,
    lower: Arc<dyn FileSystem>,
    root: ClosedRoot,
    settings: Settings,
    archives: RwLock<Vec<Arc<dyn Archive>>>,
    catalogue: Catalogue,
    /// What was begun before this engine was has sequences up to it.
    first_sequence: u64,
    sequences: outbound::sequences::Sequences,
    around: Surroundings,
    files: files::Files,
    queue: Arc<Queue>,
    readers: recall::reader_cache::Readers,
    in_memory: files::block_cache::BlocksInMemory,
    poison: Poison,
    movers: Mutex<Vec<std::thread::JoinHandle<()>>>,
    resting: outbound::failover::Resting,
    counted: metrics::Counted,
    moves: tree::renames::Moves,
    rounds: Arc<Rounds>,
    /// Held by whoever finds out what nobody needs, removes or moves it, or needs it again.
    unneeded: Mutex<()>,
    archive_limit: Option<Limit>,
    recall_limit: Option<Arc<Limit>>,
    /// The last use did not end in order, and not every file was looked at since.
    in_doubt: AtomicBool,
    /// The tree below tells holes from data, once that was asked.
    tells_holes: OnceLock<bool>,
    /// The tree below can't lease files, which was said.
    lacks_leases: AtomicBool,
    /// It has leased one.
    has_leased: AtomicBool,
    /// From here on nobody moves bytes, or says where they are.
    is_ending: AtomicBool,
    /// Programs use the tree through the engine.
    is_served: AtomicBool,
    /// It wrote to the tree, or said of a name that it went: a clean end makes that durable.
    has_acted: AtomicBool,
}

/// What a new catalogue can't know of: it may be in the place of one that was lost.
fn last_number_known(catalogue: &Catalogue, archives: &[Arc<dyn Archive>]) -> Result<u64> {
    if catalogue.has_numbered()? {
        return Ok(0);
    }
    Ok(tree::archived_tree::last_number(archives))
}

impl Tier {
    /// Puts the engine over a tree, which it claims for itself.
    ///
    /// # Errors
    /// Where the tree belongs to another tier or somebody uses it.
    pub fn open(
        lower: Arc<dyn FileSystem>,
        settings: Settings,
        archives: Vec<Arc<dyn Archive>>,
        catalogue: Catalogue,
        around: Surroundings,
    ) -> Result<Arc<Self>> {
        claim(&*lower)?;
        check_mark(&*lower, settings.tier, around.marks)?;
        let root = ClosedRoot::enter(&*lower, around.marks, settings.treatment());
        let root = root.map_err(Error::below(b""))?;
        let known = last_number_known(&catalogue, &archives)?;
        let first_sequence = catalogue.next_sequence(around.calendar.now(), known)?;
        // Tests have none: nothing is recalled then.
        let least = if settings.movers == 0 { 0 } else { archives.len() };
        let movers = settings.movers.max(least);
        let queue = Arc::new(Queue::new(Arc::clone(&settings.order), Arc::clone(&around.clock)));
        let timed = |archive| timed(archive, &settings, &around, &queue, movers);
        let archives: Vec<_> = archives.into_iter().map(timed).collect();
        let archive_limit = Limit::new(settings.archive_rate, &around.clock);
        let recall_limit = Limit::new(settings.recall_rate, &around.clock).map(Arc::new);
        let poison = Poison::new(&lower, settings.poison);
        let tier = Arc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            lower,
            root,
            settings,
            archives: RwLock::new(archives),
            catalogue,
            first_sequence,
            sequences: outbound::sequences::Sequences::default(),
            around,
            files: files::Files::default(),
            queue,
            readers: recall::reader_cache::Readers::default(),
            in_memory: files::block_cache::BlocksInMemory::default(),
            poison,
            movers: Mutex::default(),
            resting: outbound::failover::Resting::default(),
            counted: metrics::Counted::default(),
            moves: tree::renames::Moves::default(),
            rounds: Arc::default(),
            unneeded: Mutex::default(),
            archive_limit,
            recall_limit,
            in_doubt: AtomicBool::new(true),
            tells_holes: OnceLock::new(),
            lacks_leases: AtomicBool::new(false),
            has_leased: AtomicBool::new(false),
            is_ending: AtomicBool::new(false),
            is_served: AtomicBool::new(false),
            has_acted: AtomicBool::new(false),
        });
        tier.start_movers(movers)?;
        if !tier.settings.read_only {
            tier.compare_uses()?;
        }
        tier.catalogue.begin_use()?;
        tier.in_doubt.store(tier.catalogue.is_in_doubt()?, Ordering::SeqCst);
        if !tier.settings.read_only {
            tier.settle_pending()?;
        }
        Ok(tier)
    }

    /// The tree below.
    #[must_use]
    pub fn lower(&self) -> &Arc<dyn FileSystem> {
        &self.lower
    }

    /// The root of the tree below, as programs see it.
    pub(crate) fn root(&self) -> &ClosedRoot {
        &self.root
    }

    /// How it works.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The archives that are attached and not away. Those that are away are looked for, which takes
    /// as long as they do: never with a file locked.
    #[must_use]
    pub fn archives(&self) -> Vec<Arc<dyn Archive>> {
        self.look_for_archives();
        let archives = self.archives.read();
        archives.iter().filter(|archive| archive.why_away().is_none()).cloned().collect()
    }

    /// What archives hold.
    #[must_use]
    pub fn catalogue(&self) -> &Catalogue {
        &self.catalogue
    }

    /// Recalls that are waiting.
    #[must_use]
    pub fn queue(&self) -> &Queue {
        &self.queue
    }

    /// Clocks and random numbers.
    #[must_use]
    pub fn surroundings(&self) -> &Surroundings {
        &self.around
    }

    /// What it does by itself.
    pub(crate) fn rounds(&self) -> &Arc<Rounds> {
        &self.rounds
    }

    /// What it has counted.
    pub(crate) fn counted(&self) -> &metrics::Counted {
        &self.counted
    }

    /// A request of the engine's own.
    pub(crate) fn request(&self) -> Request {
        request_at(&*self.around.calendar)
    }

    /// Whether the last use did not end in order, and no scan has looked at every file since.
    fn is_in_doubt(&self) -> bool {
        self.in_doubt.load(Ordering::SeqCst)
    }

    /// The attributes of a file below, whose size is known: what lies behind it does not count.
    fn attr_below(&self, ino: Ino, handle: Option<Handle>) -> fslab_vfs::Result<Attr> {
        let attr = self.lower.getattr(&self.request(), ino, handle)?;
        if attr.is_size_known { Ok(attr) } else { Err(Errno::IO.into()) }
    }

    /// Opens a file to read it, while nobody changes its permissions: who may not read it gets
    /// leave for a moment, and then they are as they were.
    fn open_to_read(&self, file: &TieredFile) -> fslab_vfs::Result<OwnFile> {
        let _state = file.lock();
        self.open_own(file.ino(), false)
    }

    fn open_own(&self, ino: Ino, writes: bool) -> fslab_vfs::Result<OwnFile> {
        OwnFile::open(&self.lower, &self.around.calendar, ino, writes)
    }

    /// Attaches one more archive.
    pub fn attach(&self, archive: Arc<dyn Archive>) {
        let movers = self.movers.lock().len();
        let archive = timed(archive, &self.settings, &self.around, &self.queue, movers);
        self.archives.write().push(archive);
    }

    /// The archives that hold a version, as far as they are attached and not away.
    fn holders(&self, version: &Version) -> Vec<Arc<dyn Archive>> {
        let mut holders = self.holders_anywhere(version);
        holders.retain(|archive| archive.why_away().is_none());
        holders
    }

    /// The archives that hold a version, as far as they are attached, also those that are away.
    fn holders_anywhere(&self, version: &Version) -> Vec<Arc<dyn Archive>> {
        let archives = self.archives.read();
        let holds = |archive: &&Arc<dyn Archive>| version.copies.contains(&archive.id());
        archives.iter().filter(holds).cloned().collect()
    }

    /// Whether an archive that holds a version is away: it can't be asked for it, nor to remove it.
    fn is_partly_away(&self, version: &Version) -> bool {
        self.holders_anywhere(version).iter().any(|archive| archive.why_away().is_some())
    }

    fn look_for_archives(&self) {
        let archives = self.archives.read().clone();
        if archives.iter().filter(|archive| archive.look()).count() > 0 {
            self.queue.bring_back();
        }
    }

    /// The archives that are here, those first that are said to hold a version. Others may hold it
    /// too: a scrub can't tell a file that has another name by now of a copy that it made.
    fn may_hold(&self, version: &Version) -> Vec<Arc<dyn Archive>> {
        let mut archives = self.archives();
        archives.sort_by_key(|archive| !version.copies.contains(&archive.id()));
        archives
    }

    /// What the first archive answers that holds a version and does not fail.
    fn ask_holders<T>(
        &self,
        version: &Version,
        mut ask: impl FnMut(&Arc<dyn Archive>) -> Result<T>,
    ) -> Result<T> {
        let mut problem = self.is_there(version).err();
        for archive in self.may_hold(version) {
            match ask(&archive) {
                Ok(answer) => return Ok(answer),
                Err(error) => drop(problem.get_or_insert(error)),
            }
        }
        Err(problem.unwrap_or_else(|| self.no_copy(version)))
    }

    fn reader(&self, archive: &Arc<dyn Archive>, version: &Version) -> Result<Arc<ObjectReader>> {
        self.readers.get(archive, version)
    }

    fn start_movers(self: &Arc<Self>, count: usize) -> Result<()> {
        let mut movers = self.movers.lock();
        for number in 0..count {
            let (queue, tier) = (Arc::clone(&self.queue), Arc::downgrade(self));
            let limit = self.recall_limit.clone();
            // Waits before it chooses: who comes meanwhile may be more urgent.
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
        }
        Ok(())
    }
}

impl Drop for Tier {
    fn drop(&mut self) {
        self.queue.close();
    }
}

impl std::fmt::Debug for Tier {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Tier").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// An archive whose calls have a time limit where there is one, with a thread reserved of so many
/// that recall.
fn timed(
    archive: Arc<dyn Archive>,
    settings: &Settings,
    around: &Surroundings,
    queue: &Arc<Queue>,
    movers: usize,
) -> Arc<dyn Archive> {
    queue.reserve(archive.id(), movers);
    if settings.call_limit == Duration::MAX {
        return archive;
    }
    let (limit, queue) = ((Arc::clone(&around.clock), settings.call_limit), Arc::downgrade(queue));
    // What was put off for it goes on.
    let returned = move || queue.upgrade().iter().for_each(|queue| queue.bring_back());
    Arc::new(TimedArchive::new(archive, limit, Box::new(returned)))
}

/// Claims a tree for the one who moves its files.
pub(crate) fn claim(lower: &dyn FileSystem) -> Result<()> {
    match lower.claim_tree(Claim::Exclusive) {
        Ok(()) => Ok(()),
        Err(error) if error.errno() == Errno::BUSY => Err(Error::InUse),
        Err(error) => Err(Error::below(b"")(error)),
    }
}

/// Checks that a tree belongs to a tier.
pub(crate) fn check_mark(lower: &dyn FileSystem, tier: Id, marks: Marks) -> Result<()> {
    let mark = marks.read_tree(lower, &own_request());
    let mark = mark.map_err(|error| Error::Refused { what: format!("the tree: {error}") })?;
    match mark {
        Some(mark) if mark.tier == tier => Ok(()),
        Some(TreeMark { tier: found, .. }) => {
            Err(Error::Refused { what: format!("the tree belongs to tier {found}, not to {tier}") })
        }
        None => Err(Error::Refused {
            what: "the tree belongs to no tier; `fslab tier init` makes one".to_owned(),
        }),
    }
}
