//! The engine: moves bytes between a tree and its archives, for any front end.
//!
//! Each room is a folder, and owns a part of [`Tier`]'s state:
//! - `files`: files in use, their residency, reads, writes and syncs.
//! - `recall`: the queue of recalls, their order, and the threads that serve them.
//! - `outbound`: archiving, bundling, repacking, and fail-over between archives.
//! - `release`: freeing the bytes of archived files, under an exclusive lease.
//! - `copies`: writing, verifying, scrubbing and repairing copies.
//! - `tree`: walks, scans, renames, and the archived tree.
//! - `expiry`: deleting old versions, and undelete.
//!
//! `archives`: the attached archives. `crash_recovery`: what an interrupted run left. `pin`: files
//! that stay. `inspect`, `metrics`: answers to questions. `shutdown`: the end of an engine.
//! `docs/formats/tier.md` has the protocols and why they are safe.
//!
//! Locks: a file's state is locked while the file below is changed, never while an archive works.
//! The locks of the queue and of the table of files in use are held for a moment only, inside it.

use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;

use fslab_vfs::{Attr, Claim, Errno, FileSystem, Handle, Ino, Request};
use parking_lot::RwLock;

use crate::archive::{Archive, ArchiveEntry};
use crate::catalogue::Catalogue;
use crate::closed_root::{ClosedRoot, Treatment};
use crate::deny_list::DenyList;
use crate::engine::recall::queue::{Fifo, Order};
use crate::error::{Error, Result};
use crate::id::Id;
use crate::lower::{OwnFile, own_request, request_at};
use crate::stored::{Marks, TreeMark};
use crate::surroundings::Surroundings;

mod archives;
mod background;
mod copies;
mod crash_recovery;
mod expiry;
mod files;
mod inspect;
mod metrics;
mod outbound;
mod pin;
pub(crate) mod recall;
mod release;
mod shutdown;
mod tree;

pub use archives::ArchiveState;
pub(crate) use background::BackgroundThread;
pub use copies::scrubbing::{ProgressSink, Scrubbed};
pub use expiry::Expired;
pub(crate) use files::read_ahead::ReadAhead;
pub use files::{FileUse, KnownResidency, TieredFile};
pub(crate) use metrics::Counter;
pub use outbound::archiving::Archived;
pub use outbound::bundling::{Archiver, BUNDLED_BYTES_MAX, OutcomeSink};
pub use pin::PIN_NAME;
pub use recall::Recall;
pub use release::Released;
pub use tree::archived_tree::ArchivedTree;
pub use tree::scan::Scanned;
pub use tree::walk::{SkippedDirectories, Visit, WalkEntry};

/// Settings of an engine.
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
    /// How long a program waits for a recall; none for as long as it takes.
    pub patience: Option<Duration>,
    /// What it is answered then.
    pub late: Errno,
    /// Programs that do not recall, and are answered that at once.
    pub deny: DenyList,
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
    pub known_archives: Vec<ArchiveEntry>,
    /// Nobody enters the tree but through the mount.
    pub closes: bool,
    /// Released files show poison below, where blocks can be shared, and no zeros.
    pub poison: bool,
}

impl Settings {
    /// The default settings.
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
            deny: DenyList::default(),
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
    around: Surroundings,
    files: files::Files,
    recalls: recall::Recalls,
    outbound: outbound::Outbound,
    releases: release::Releases,
    tree: tree::TreeState,
    expiry: expiry::ExpiryLock,
    counters: metrics::Counters,
    lifecycle: shutdown::Lifecycle,
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
        let known = tree::archived_tree::last_number_known(&catalogue, &archives)?;
        let first_sequence = catalogue.next_sequence(around.calendar.now(), known)?;
        // Tests have none: nothing is recalled then.
        let least = if settings.movers == 0 { 0 } else { archives.len() };
        let movers = settings.movers.max(least);
        let recalls = recall::Recalls::new(&settings, &around);
        let archives: Vec<_> = archives
            .into_iter()
            .map(|archive| recalls.with_time_limit(archive, &settings, &around, movers))
            .collect();
        let outbound = outbound::Outbound::new(&settings, &around, first_sequence);
        let releases = release::Releases::new(&lower, &settings);
        let tier = Arc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            lower,
            root,
            settings,
            archives: RwLock::new(archives),
            catalogue,
            around,
            files: files::Files::default(),
            recalls,
            outbound,
            releases,
            tree: tree::TreeState::default(),
            expiry: expiry::ExpiryLock::default(),
            counters: metrics::Counters::default(),
            lifecycle: shutdown::Lifecycle::default(),
        });
        tier.start_movers(movers)?;
        if !tier.settings.read_only {
            tier.check_open_epoch()?;
        }
        tier.catalogue.begin_use()?;
        tier.tree.set_in_doubt(tier.catalogue.is_in_doubt()?);
        if !tier.settings.read_only {
            tier.recover_pending()?;
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

    /// Its settings.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// What archives hold.
    #[must_use]
    pub fn catalogue(&self) -> &Catalogue {
        &self.catalogue
    }

    /// Clocks and random numbers.
    #[must_use]
    pub fn surroundings(&self) -> &Surroundings {
        &self.around
    }

    /// What it has counted.
    pub(crate) fn counters(&self) -> &metrics::Counters {
        &self.counters
    }

    /// A request of the engine's own.
    pub(crate) fn request(&self) -> Request {
        request_at(&*self.around.calendar)
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
}

impl Drop for Tier {
    fn drop(&mut self) {
        self.queue().close();
    }
}

impl std::fmt::Debug for Tier {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Tier").field("settings", &self.settings).finish_non_exhaustive()
    }
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
