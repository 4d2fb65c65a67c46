//! Planted bugs: a tier makes data durable in the wrong order. Observers between the engine and the
//! lower tree have the effect of a missing line of code.

use std::ffi::OsStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use fslab_tier::stored::{Marks, Residency, StoredResidency, Version};

use fslab_tier::Id;
use fslab_vfs::{Errno, FileSystem, Ino, OpenMode, Request, Result, Timestamp};
use fslab_vfs_testing::crash::overtaking::{Bug, Call, LateSync, Verdict, with_bug};
use parking_lot::Mutex;

/// A planted bug.
pub struct Mutant {
    pub bug: &'static str,
    /// The script that finds the bug, counted from the fixed seed.
    pub script: u64,
    /// Whether released files get poison instead of holes.
    pub poison: bool,
    pub plant: Plant,
}

/// A function that puts the bug between the engine and the lower tree.
pub type Plant = fn(Arc<dyn FileSystem>) -> Arc<dyn FileSystem>;

pub const MUTANTS: &[Mutant] = &[
    Mutant {
        bug: "bytes are not synced before the xattr records them as resident",
        script: 1,
        poison: false,
        plant: |inner| forgetful(inner, Forgets::SyncBefore(|step| step.comes_here())),
    },
    Mutant {
        bug: "bytes are not synced before the xattr records their copies",
        script: 0,
        poison: false,
        plant: |inner| forgetful(inner, Forgets::SyncBefore(|step| step.is_archived())),
    },
    Mutant {
        bug: "the files of a bundle are not synced before their xattrs record their copies",
        script: 0,
        poison: false,
        plant: |inner| forgetful(inner, Forgets::SyncOfAllBefore(|step| step.is_archived())),
    },
    Mutant {
        bug: "the flag for changes is not durable before the change",
        script: 0,
        poison: false,
        plant: |inner| forgetful(inner, Forgets::SyncAfter(|step| step.is_changed())),
    },
    Mutant {
        bug: "the record of a truncation is not durable before growth",
        script: 18,
        poison: false,
        plant: |inner| forgetful(inner, Forgets::SyncAfter(|step| step.is_recorded())),
    },
    Mutant {
        bug: "blocks are punched before the xattr durably records them as offline",
        script: 1,
        poison: false,
        plant: |inner| forgetful(inner, Forgets::SyncAfter(|step| step.goes_away())),
    },
    Mutant {
        bug: "poison is written before the xattr durably records it",
        script: 1,
        poison: true,
        plant: |inner| forgetful(inner, Forgets::SyncAfter(|step| step.goes_away())),
    },
    Mutant {
        bug: "the xattr does not record that blocks are being moved",
        script: 1,
        poison: false,
        plant: |inner| forgetful(inner, Forgets::Moving),
    },
    Mutant {
        bug: "xattrs for the new bundle are not durable before the old one is deleted",
        script: 13,
        poison: false,
        plant: |inner| forgetful(inner, Forgets::SyncOfAllAfter(|step| step.is_moved())),
    },
];

/// The xattrs of a bundle are not synced. This loses no data, because an expiry syncs the tree, but
/// after a power cut the files are no longer archived.
pub fn without_sync_of_marks(inner: Arc<dyn FileSystem>) -> Arc<dyn FileSystem> {
    forgetful(inner, Forgets::SyncOfAllAfter(|step| step.is_archived()))
}

/// A lower tree on which a sync of the whole file system fails, or syncs nothing, as on FUSE.
struct BadSyncOfAll {
    inner: Arc<dyn FileSystem>,
    /// Whether the lower tree claims that a sync of the whole file system works.
    syncs_whole_tree: bool,
    /// The number of the first sync that fails; `None` if every sync succeeds but syncs nothing.
    first_failure: Option<usize>,
    syncs: AtomicUsize,
}

impl FileSystem for BadSyncOfAll {
    fn fallback(&self) -> Option<&dyn FileSystem> {
        Some(&*self.inner)
    }

    fn syncs_whole_tree(&self) -> bool {
        self.syncs_whole_tree
    }

    fn syncfs(&self, request: &Request, ino: Ino) -> Result<()> {
        let number = self.syncs.fetch_add(1, Ordering::SeqCst);
        match self.first_failure {
            None => Ok(()),
            Some(first) if number >= first => Err(Errno::IO.into()),
            Some(_) => self.inner.syncfs(request, ino),
        }
    }
}

fn bad_sync_of_all(
    inner: Arc<dyn FileSystem>,
    syncs_whole_tree: bool,
    first_failure: Option<usize>,
) -> Arc<dyn FileSystem> {
    let syncs = AtomicUsize::default();
    Arc::new(BadSyncOfAll { inner, syncs_whole_tree, first_failure, syncs })
}

/// Syncs of the whole file system do nothing, and the lower tree reports this.
pub fn without_sync_of_all(inner: Arc<dyn FileSystem>) -> Arc<dyn FileSystem> {
    bad_sync_of_all(inner, false, None)
}

/// Syncs of the whole file system do nothing, but the lower tree claims that they work.
pub fn with_false_sync_of_all(inner: Arc<dyn FileSystem>) -> Arc<dyn FileSystem> {
    bad_sync_of_all(inner, true, None)
}

/// Every sync of the whole file system fails.
pub fn first_sync_of_all_fails(inner: Arc<dyn FileSystem>) -> Arc<dyn FileSystem> {
    bad_sync_of_all(inner, true, Some(0))
}

/// The first sync of the whole file system works, and later ones fail.
pub fn second_sync_of_all_fails(inner: Arc<dyn FileSystem>) -> Arc<dyn FileSystem> {
    bad_sync_of_all(inner, true, Some(1))
}

/// A function that is called once, after the next sync of the whole file system.
pub static AFTER_SYNC_OF_ALL: Mutex<Option<Box<dyn FnOnce() + Send>>> = Mutex::new(None);

struct RunsAfterSyncOfAll;

impl Bug for RunsAfterSyncOfAll {
    fn before(&self, _: &dyn FileSystem, _: &Request, _: Ino, _: &Call<'_>) -> Result<Verdict> {
        Ok(Verdict::Do)
    }

    fn after(&self, _: &dyn FileSystem, _: &Request, _: Ino, call: &Call<'_>) -> Result<()> {
        let run = matches!(call, Call::SyncFs).then(|| AFTER_SYNC_OF_ALL.lock().take());
        if let Some(run) = run.flatten() {
            run();
        }
        Ok(())
    }
}

/// Plants no bug, but calls [`AFTER_SYNC_OF_ALL`] between two syncs of the whole file system.
pub fn interrupted_after_a_sync(inner: Arc<dyn FileSystem>) -> Arc<dyn FileSystem> {
    with_bug(inner, RunsAfterSyncOfAll)
}

/// The residencies before and after an xattr is set.
struct Step {
    before: Option<Residency>,
    after: Residency,
}

impl Step {
    fn comes_here(&self) -> bool {
        let is_fewer = |before: &Residency| {
            before.offline.iter().flatten().any(|block| !self.after.offline.contains(block))
        };
        self.before.as_ref().is_some_and(is_fewer)
    }

    fn is_archived(&self) -> bool {
        let is_same = |before: &Residency| before.version.object == self.after.version.object;
        !self.before.as_ref().is_some_and(is_same)
    }

    /// Returns whether the xattr now refers to another object with the same version.
    fn is_moved(&self) -> bool {
        self.before.as_ref().map(|before| &before.version).is_some_and(|before| {
            let after = &self.after.version;
            before.object != after.object && before.sequence == after.sequence
        })
    }

    fn is_changed(&self) -> bool {
        self.after.changed && self.before.as_ref().is_some_and(|before| !before.changed)
    }

    fn is_recorded(&self) -> bool {
        self.after.changed && self.comes_here()
    }

    fn goes_away(&self) -> bool {
        self.after.moving && !self.after.offline.is_empty()
    }
}

enum Forgets {
    /// Skips a sync that is followed by a step for which the function returns true.
    SyncBefore(fn(&Step) -> bool),
    /// Skips a sync that follows a step for which the function returns true.
    SyncAfter(fn(&Step) -> bool),
    /// Like `SyncBefore`, for syncs of the whole file system.
    SyncOfAllBefore(fn(&Step) -> bool),
    /// Like `SyncAfter`, for syncs of the whole file system.
    SyncOfAllAfter(fn(&Step) -> bool),
    /// Does not set the `moving` flag of residencies.
    Moving,
}

/// An observer with the effect of a missing line of code.
struct Forgetful {
    forgets: Forgets,
    pending: Mutex<Pending>,
}

#[derive(Default)]
struct Pending {
    /// A sync that is postponed until the next call.
    sync: Option<LateSync>,
    /// A sync of the whole file system that is postponed until the next call.
    sync_of_all: Option<Request>,
    /// The file whose xattr was just written, if its sync is to be skipped.
    forgotten: Option<Ino>,
}

fn forgetful(inner: Arc<dyn FileSystem>, forgets: Forgets) -> Arc<dyn FileSystem> {
    with_bug(inner, Forgetful { forgets, pending: Mutex::default() })
}

/// Returns the step if a call sets the residency of a file.
fn step(below: &dyn FileSystem, request: &Request, ino: Ino, call: &Call<'_>) -> Option<Step> {
    let Call::SetXattr { name, value, .. } = call else { return None };
    if *name != Marks::Trusted.residency_name() {
        return None;
    }
    let before = below.getxattr(request, ino, OsStr::new(Marks::Trusted.residency_name())).ok();
    let size = below.getattr(request, ino, None).ok()?.size;
    let before = before.and_then(|value| decoded(&value, size));
    Some(Step { before, after: decoded(value, size)? })
}

/// Decodes the residency of a file of `size` bytes. A compact one has the right object and offline
/// blocks, and a sequence of 0.
fn decoded(value: &[u8], size: u64) -> Option<Residency> {
    let compact = match StoredResidency::decode(value).ok()? {
        StoredResidency::Full(full) => return Some(*full),
        StoredResidency::Compact(compact) => compact,
    };
    let version = Version {
        object: compact.object,
        location: compact.location,
        size,
        sequence: 0,
        modified: Timestamp::default(),
        root: [0; 32],
        copies: Vec::new(),
    };
    Some(compact.expand((Id::default(), Id::default()), Id::default(), version))
}

impl Forgetful {
    /// Performs the postponed sync before any other call. From then on, no sync is skipped.
    fn catch_up(&self, below: &dyn FileSystem) -> Result<()> {
        let pending = std::mem::take(&mut *self.pending.lock());
        pending.sync.map_or(Ok(()), |sync| sync.perform(below))?;
        pending.sync_of_all.map_or(Ok(()), |request| below.syncfs(&request, Ino::ROOT))
    }

    fn sync(&self, below: &dyn FileSystem, sync: LateSync, ino: Ino) -> Result<Verdict> {
        if self.pending.lock().forgotten.take() == Some(ino) {
            return Ok(Verdict::Skip);
        }
        self.catch_up(below)?;
        if !matches!(self.forgets, Forgets::SyncBefore(_)) {
            return Ok(Verdict::Do);
        }
        self.pending.lock().sync = Some(sync);
        Ok(Verdict::Skip)
    }

    fn xattr(
        &self,
        below: &dyn FileSystem,
        request: &Request,
        ino: Ino,
        call: &Call<'_>,
    ) -> Result<Verdict> {
        let step = step(below, request, ino, call);
        match (&self.forgets, &step) {
            (Forgets::SyncBefore(is_such), Some(step)) if is_such(step) => {
                self.pending.lock().sync = None;
            }
            (Forgets::SyncOfAllBefore(is_such), Some(step)) if is_such(step) => {
                self.pending.lock().sync_of_all = None;
            }
            _ => self.catch_up(below)?,
        }
        match (&self.forgets, step, call) {
            (Forgets::Moving, Some(step), Call::SetXattr { name, mode, .. })
                if step.after.moving =>
            {
                let value = Residency { moving: false, ..step.after }.encode().unwrap();
                below.setxattr(request, ino, name, &value, *mode)?;
                Ok(Verdict::Skip)
            }
            (Forgets::SyncAfter(is_such), Some(step), _) if is_such(&step) => {
                self.pending.lock().forgotten = Some(ino);
                Ok(Verdict::Do)
            }
            (Forgets::SyncOfAllAfter(is_such), Some(step), _) if is_such(&step) => {
                self.pending.lock().forgotten = Some(Ino::ROOT);
                Ok(Verdict::Do)
            }
            _ => Ok(Verdict::Do),
        }
    }

    /// Keeps `forgotten` when the engine itself opens the file, which may happen between setting an
    /// xattr and syncing it.
    fn open(&self, below: &dyn FileSystem, mode: OpenMode) -> Result<Verdict> {
        let is_between = mode.contains(OpenMode::READ_WRITE | OpenMode::NO_ACCESS_TIME);
        let forgotten = self.pending.lock().forgotten.filter(|_| is_between);
        self.catch_up(below)?;
        self.pending.lock().forgotten = forgotten;
        Ok(Verdict::Do)
    }
}

impl Bug for Forgetful {
    fn before(
        &self,
        below: &dyn FileSystem,
        request: &Request,
        ino: Ino,
        call: &Call<'_>,
    ) -> Result<Verdict> {
        if let Some(sync) = LateSync::of(request, ino, call) {
            return self.sync(below, sync, ino);
        }
        match call {
            Call::SetXattr { .. } => self.xattr(below, request, ino, call),
            Call::Open { mode } => self.open(below, *mode),
            Call::SyncFs if self.pending.lock().forgotten.take() == Some(Ino::ROOT) => {
                Ok(Verdict::Skip)
            }
            Call::SyncFs if matches!(self.forgets, Forgets::SyncOfAllBefore(_)) => {
                self.pending.lock().sync_of_all = Some(request.clone());
                Ok(Verdict::Skip)
            }
            // A script makes this call after each step.
            Call::StatFs if self.pending.lock().sync_of_all.is_some() => {
                self.catch_up(below).map(|()| Verdict::Do)
            }
            Call::Read | Call::StatFs => Ok(Verdict::Do),
            _ => self.catch_up(below).map(|()| Verdict::Do),
        }
    }
}
