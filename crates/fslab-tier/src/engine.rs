//! The engine: moves bytes between a tree and its archives. The mount and the commands use it.
//!
//! Each folder implements a part of [`Tier`]:
//! - `files`: files in use, their residency, reads, writes and syncs.
//! - `recall`: the queue of recalls, their order, and the threads that serve them.
//! - `outbound`: archiving, bundling, repacking, and fail-over between archives.
//! - `release`: freeing the bytes of archived files, under an exclusive lease.
//! - `copies`: writing, verifying, scrubbing and repairing copies.
//! - `tree`: walks, scans, renames, and the archived tree.
//! - `expiry`: deleting old versions, and undelete.
//!
//! `archives`: the attached archives. `crash_recovery`: completes or deletes uploads that an
//! interrupted run has not recorded. `pin`: pinned files. `inspect`, `metrics`: status queries.
//! `plan`: the requests, bytes and space of a command before it runs.
//! `shutdown`: stops an engine. `docs/formats/tier.md` describes the protocols and why they are
//! safe.
//!
//! The folders and this file import each other, because this file defines the struct.
//!
//! Locks: the engine locks a file's state while it changes the lower file, but never while it calls
//! an archive. The locks of the recall queue and of the table of files in use are held only
//! briefly. They may be taken while a file's state is locked.

use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;

use fslab_vfs::{Attr, Errno, FileSystem, Handle, Ino, LockMode, Request};
use parking_lot::{Mutex, RwLock};

use crate::archive::{Archive, ArchiveEntry};
use crate::catalogue::Catalogue;
use crate::closed_root::{ClosedRoot, Treatment};
use crate::deny_list::DenyList;
use crate::engine::recall::queue::{Fifo, Order};
use crate::environment::Environment;
use crate::error::{Error, Result};
use crate::id::Id;
use crate::lower::{OwnFile, request_at};
use crate::stored::{Marks, TreeMark};

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
mod plan;
pub(crate) mod recall;
mod release;
mod shutdown;
mod tree;
mod versions;

pub(crate) use background::BackgroundThread;
pub use copies::scrubbing::{ProgressSink, Scrubbed};
pub use expiry::Expired;
pub(crate) use files::read_ahead::ReadAhead;
pub use files::{FileUse, KnownResidency, TieredFile};
pub(crate) use metrics::Counter;
pub use outbound::archiver::{Archiver, OutcomeSink};
pub use outbound::archiving::Archived;
pub use outbound::bundling::BUNDLED_BYTES_MAX;
pub use pin::PIN_NAME;
pub(crate) use plan::{ArchivingPlan, CopiesPlan};
pub use recall::Recall;
pub(crate) use recall::prefetching::{BundledObjects, RECALLED_TOGETHER};
pub(crate) use release::ReleaseBatch;
pub use release::Released;
pub use tree::archived_tree::ArchivedTree;
pub use tree::scan::Scanned;
pub use tree::walk::{Visit, WalkEntry};

/// Settings of an engine.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The identity of the tier.
    pub tier: Id,
    /// Whether the tree is read-only. Recalled blocks are then kept in memory.
    pub read_only: bool,
    /// Number of copies in archives that a file needs before its bytes may be released; 0 is
    /// treated as 1.
    pub copies: usize,
    /// The zstd level of archived blocks; 0 for no compression.
    pub level: i32,
    /// Files of at most this many bytes are bundled; 0 disables bundling.
    pub bundled: u64,
    /// Whether a new version of a file of more than one block is archived without the blocks that
    /// archives already contain.
    pub deltas: bool,
    /// Retention time of old versions.
    pub keep: Duration,
    /// The maximum time that a program waits for a recall; `None` for no limit.
    pub patience: Option<Duration>,
    /// The error that a program receives if its wait takes longer than [`Settings::patience`].
    pub late: Errno,
    /// Programs that may not recall files. Their accesses to offline blocks fail with
    /// [`Settings::late`] at once.
    pub deny: DenyList,
    /// The order in which the recalls of one user are served.
    pub order: Arc<dyn Order>,
    /// Minimum number of files in a bundle for which the whole lower tree is synced. The files of a
    /// smaller bundle are synced one by one.
    pub synced_together: usize,
    /// Maximum number of bundles and separate files that a command or a run of the policy uploads
    /// at the same time.
    pub uploads: usize,
    /// Number of threads that recall blocks. The engine starts at least one for each attached
    /// archive; 0 disables recalls.
    pub movers: usize,
    /// Time limit of a call to an archive, not counting the time for transferring bytes. With
    /// [`Duration::MAX`], calls have no limit and run in the caller's thread.
    pub call_limit: Duration,
    /// Number of blocks that are read ahead of a sequential reader.
    pub ahead: u64,
    /// Rate limit of archiving in bytes a second; both written bytes and bytes read back are
    /// counted. 0 sets no limit.
    pub archive_rate: u64,
    /// Rate limit of recalls in bytes a second; 0 for none.
    pub recall_rate: u64,
    /// The home directory of the tier. Commands that attach and detach archives update it.
    pub home: Option<PathBuf>,
    /// The path of the tier's default policy.
    pub policy: Option<PathBuf>,
    /// The archives that the home lists when the engine starts, attached or not.
    pub known_archives: Vec<ArchiveEntry>,
    /// What the engine does with the root directory of the tree. An engine of a read-only tree
    /// leaves it unchanged.
    pub root: Treatment,
    /// Whether released files show poison instead of zeros in the lower directory. This needs a
    /// lower file system in which files can share blocks.
    pub poison: bool,
}

impl Settings {
    /// Returns the default settings of a tier.
    #[must_use]
    pub fn of(tier: Id) -> Self {
        Self {
            tier,
            read_only: false,
            copies: 1,
            level: 3,
            bundled: 64 << 10,
            deltas: false,
            keep: Duration::from_secs(30 * 24 * 3600),
            patience: None,
            late: Errno::AGAIN,
            deny: DenyList::default(),
            order: Arc::new(Fifo),
            synced_together: 16,
            uploads: 32,
            movers: 16,
            call_limit: Duration::from_secs(60),
            ahead: 4,
            archive_rate: 0,
            recall_rate: 0,
            home: None,
            policy: None,
            known_archives: Vec::new(),
            root: Treatment::Close,
            poison: true,
        }
    }

    fn treatment(&self) -> Treatment {
        if self.read_only { Treatment::Leave } else { self.root }
    }
}

/// An engine over a tree whose files may have their content only in archives.
pub struct Tier {
    /// A weak reference to the tier itself, from which a [`FileUse`] gets a strong one.
    me: Weak<Self>,
    lower: Arc<dyn FileSystem>,
    root: ClosedRoot,
    settings: Settings,
    archives: RwLock<Vec<Arc<dyn Archive>>>,
    /// The archives that the home lists, attached or not.
    known_archives: RwLock<Vec<ArchiveEntry>>,
    catalogue: Catalogue,
    around: Environment,
    files: files::Files,
    recalls: recall::Recalls,
    outbound: outbound::Outbound,
    releases: release::Releases,
    tree: tree::TreeState,
    /// Serialises operations that delete or move objects, or determine which objects are needed.
    /// Examples are scans, expiry, repacking and undelete.
    expiry: Mutex<()>,
    counters: metrics::Counters,
    lifecycle: shutdown::Lifecycle,
}

impl Tier {
    /// Locks a tree exclusively and opens an engine over it.
    ///
    /// # Errors
    /// If the tree belongs to another tier, or is in use.
    pub fn open(
        lower: Arc<dyn FileSystem>,
        mut settings: Settings,
        archives: Vec<Arc<dyn Archive>>,
        catalogue: Catalogue,
        around: Environment,
    ) -> Result<Arc<Self>> {
        claim(&*lower)?;
        check_mark(&*lower, settings.tier, around.marks)?;
        settings.copies = settings.copies.max(1);
        let root = ClosedRoot::enter(&*lower, around.marks, settings.treatment());
        let root = root.map_err(Error::below(b""))?;
        // A new catalogue has assigned no sequence numbers yet, so it continues after the greatest
        // one in the archives.
        let known = match catalogue.has_numbered()? {
            true => 0,
            false => tree::archived_tree::last_number(&archives),
        };
        let first_sequence = catalogue.next_sequence(around.calendar.now(), known)?;
        // Tests set `movers` to 0, which disables recalls.
        let least = if settings.movers == 0 { 0 } else { archives.len() };
        let movers = settings.movers.max(least);
        let recalls = recall::Recalls::new(&settings, &around);
        let archives: Vec<_> = archives
            .into_iter()
            .map(|archive| recalls.with_time_limit(archive, &settings, &around))
            .collect();
        for archive in archives.iter().filter(|archive| archive.why_unavailable().is_some()) {
            recalls.cold_storage.note_absent(archive.id(), around.clock.now_ns());
        }
        let outbound = outbound::Outbound::new(&settings, &around, first_sequence);
        let releases = release::Releases::new(&lower, &settings);
        let known_archives = RwLock::new(std::mem::take(&mut settings.known_archives));
        let tier = Arc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            lower,
            root,
            settings,
            archives: RwLock::new(archives),
            known_archives,
            catalogue,
            around,
            files: files::Files::default(),
            recalls,
            outbound,
            releases,
            tree: tree::TreeState::default(),
            expiry: Mutex::default(),
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

    /// Returns the lower tree.
    #[must_use]
    pub fn lower(&self) -> &Arc<dyn FileSystem> {
        &self.lower
    }

    /// Returns the root of the lower tree, with the attributes that the mount shows.
    pub(crate) fn root(&self) -> &ClosedRoot {
        &self.root
    }

    /// Returns the settings of the engine.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Returns the catalogue of archived objects.
    #[must_use]
    pub fn catalogue(&self) -> &Catalogue {
        &self.catalogue
    }

    /// Returns the clocks, the source of identities, and the kind of trusted xattrs.
    #[must_use]
    pub fn surroundings(&self) -> &Environment {
        &self.around
    }

    pub(crate) fn counters(&self) -> &metrics::Counters {
        &self.counters
    }

    /// Returns a request that the engine makes for itself, not for a user, with the current time.
    pub(crate) fn request(&self) -> Request {
        request_at(&*self.around.calendar)
    }

    /// Returns the attributes of a lower file; fails if its size is unknown.
    fn attr_below(&self, ino: Ino, handle: Option<Handle>) -> fslab_vfs::Result<Attr> {
        let attr = self.lower.getattr(&self.request(), ino, handle)?;
        if attr.is_size_known { Ok(attr) } else { Err(Errno::IO.into()) }
    }

    /// Opens a lower file for reading. If the engine's user may not read it, read permission is
    /// added and then removed again. The file's state is locked meanwhile, so that the mount does
    /// not show the changed permissions.
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

/// Locks a tree exclusively; fails if another engine uses it.
pub(crate) fn claim(lower: &dyn FileSystem) -> Result<()> {
    match lower.lock_tree(LockMode::Exclusive) {
        Ok(()) => Ok(()),
        Err(error) if error.errno() == Errno::BUSY => Err(Error::InUse),
        Err(error) => Err(Error::below(b"")(error)),
    }
}

/// Checks that a tree belongs to a tier.
pub(crate) fn check_mark(lower: &dyn FileSystem, tier: Id, marks: Marks) -> Result<()> {
    let mark = marks.read_tree(lower);
    let mark = mark.map_err(|error| Error::Refused { what: format!("the tree: {error}") })?;
    match mark {
        Some(mark) if mark.tier == tier => Ok(()),
        Some(TreeMark { tier: found, .. }) => {
            Err(Error::Refused { what: format!("the tree belongs to tier {found}, not to {tier}") })
        }
        None => Err(Error::Refused {
            what: "the tree does not belong to a tier; create one with `fslab tier init`"
                .to_owned(),
        }),
    }
}
