//! The files in use: the state of each, and the number of its users.
//!
//! Invariant: while a file is in use there is one [`TieredFile`] for its inode. The last user
//! writes its residency before it goes. A user remembers or holds the inode, so that its number is
//! not used for another file.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use fslab_vfs::{Attr, Errno, FileSystem, Ino, Result};
use parking_lot::{Mutex, MutexGuard};

use crate::engine::Tier;
use crate::engine::files::block_cache::BlockCache;
use crate::engine::recall::Recall;
use crate::lower::OwnFile;
use crate::runs::Runs;
use crate::stored::Residency;
use crate::stored::residency::Unreadable;

pub(super) mod attributes;
pub(super) mod block_cache;
pub(super) mod edits_below;
pub(super) mod openings;
pub(super) mod read_ahead;
pub(super) mod residency_xattr;
pub(super) mod sync;
pub(super) mod writing;

/// A file that somebody uses.
pub struct TieredFile {
    ino: Ino,
    state: Mutex<FileState>,
}

/// What is known of a file in use.
pub struct FileState {
    pub(super) ino: Ino,
    loaded: Loaded,
    /// Open for reading and writing, once that was needed.
    own: Option<OwnFile>,
    /// Openings by programs.
    pub(super) handles: usize,
    /// Those of them that may write.
    pub(super) writers: usize,
    /// How often somebody began to change the file.
    pub(super) changes: u64,
    /// What `changes` was when a program opened the file for writing and, so far, nobody wrote.
    pub(super) untouched: Option<u64>,
    /// The file is being archived.
    pub(super) is_archiving: bool,
    /// A sync of it failed since it is in use.
    pub(super) sync_failed: bool,
    /// Recalls that were asked for and not done.
    pub(super) flight: HashMap<u64, Arc<Recall>>,
}

enum Loaded {
    /// Nobody has looked yet.
    No,
    /// Never archived.
    Plain,
    /// Has a residency.
    Tiered(Box<KnownResidency>),
    /// Can't be used, because its bytes are offline and nobody knows where.
    Damaged,
}

/// Where the bytes of a file are.
#[derive(Debug)]
pub struct KnownResidency {
    /// As its xattr says.
    pub recorded: Residency,
    /// Blocks that are offline now: of those that the xattr names, some may have been recalled.
    pub offline: Runs,
    /// The xattr was written and not synced.
    pub unsynced: bool,
    /// The whole file was written anew below the mount.
    pub is_rewritten: bool,
}

impl KnownResidency {
    /// Whether all bytes are here, and the xattr says so.
    #[must_use]
    pub fn is_resident(&self) -> bool {
        self.offline.is_empty() && self.recorded.offline.is_empty()
    }

    /// Whether the xattr says all that is known.
    #[must_use]
    pub fn is_in_order(&self) -> bool {
        self.offline == self.recorded.offline && !self.recorded.moving
    }
}

/// Files in use, with the number of their users.
#[derive(Default)]
pub struct Files {
    table: Mutex<HashMap<Ino, (Arc<TieredFile>, usize)>>,
    /// Blocks that were recalled for a tree that must not change.
    cache: BlockCache,
    /// Whether the tree below tells holes from data, once that was asked.
    tells_holes: OnceLock<bool>,
}

impl Files {
    fn enter(&self, ino: Ino) -> Arc<TieredFile> {
        let mut table = self.table.lock();
        let (file, users) = table.entry(ino).or_insert_with(|| (Arc::new(TieredFile::new(ino)), 0));
        *users += 1;
        Arc::clone(file)
    }

    /// Ends a use; `true` if it was the last and the file is gone. `is_in_order` is asked of the
    /// last one: if it is not so, the use goes on.
    fn leave(&self, ino: Ino, is_in_order: impl FnOnce(&TieredFile) -> bool) -> bool {
        let mut table = self.table.lock();
        let Some((file, users)) = table.get_mut(&ino) else { return true };
        if *users > 1 {
            *users -= 1;
            return true;
        }
        if !is_in_order(file) {
            return false;
        }
        let last = table.remove(&ino);
        drop(table);
        // Closing the file below may take long.
        drop(last);
        true
    }

    /// The file, if somebody uses it.
    pub fn get(&self, ino: Ino) -> Option<Arc<TieredFile>> {
        self.table.lock().get(&ino).map(|(file, _)| Arc::clone(file))
    }

    /// Every file in use.
    pub fn all(&self) -> Vec<Arc<TieredFile>> {
        self.table.lock().values().map(|(file, _)| Arc::clone(file)).collect()
    }
}

/// A use of a file; dropped, it ends.
pub struct FileUse {
    tier: Arc<Tier>,
    /// The file.
    pub file: Arc<TieredFile>,
    /// It holds the inode below.
    holds: bool,
}

impl Drop for FileUse {
    fn drop(&mut self) {
        self.leave();
        if self.holds {
            self.tier.lower.let_go(self.file.ino);
        }
    }
}

impl FileUse {
    fn leave(&self) {
        // Who has the state locked is about to leave it otherwise.
        let in_order =
            |file: &TieredFile| file.state.try_lock().is_some_and(|state| state.is_in_order());
        // Somebody may come and go while the file is being left in order.
        while !self.tier.files.leave(self.file.ino, in_order) {
            if let Err(error) = self.tier.settle(&self.file) {
                // The xattr still names blocks as offline that were recalled: nothing is lost.
                tracing::warn!(%error, ino = self.file.ino.0, "recalls are forgotten");
                self.tier.files.leave(self.file.ino, |_| true);
                return;
            }
        }
    }
}

impl Tier {
    /// Begins a use of an inode, which must be remembered by who asks as long as it lasts.
    #[must_use]
    pub fn enter(self: &Arc<Self>, ino: Ino) -> FileUse {
        FileUse { tier: Arc::clone(self), file: self.files.enter(ino), holds: false }
    }

    /// Begins a use that may outlast whoever asks: the inode is kept from being forgotten below,
    /// where another file would get its number and be taken for it.
    ///
    /// # Errors
    /// `ESTALE` where nobody remembers the inode.
    pub(super) fn enter_and_hold(self: &Arc<Self>, ino: Ino) -> Result<FileUse> {
        self.lower.hold(ino)?;
        let mut used = self.enter(ino);
        used.holds = true;
        Ok(used)
    }

    /// The file, if somebody uses it.
    #[must_use]
    pub fn in_use(&self, ino: Ino) -> Option<Arc<TieredFile>> {
        self.files.get(ino)
    }

    /// The state of a file, which was looked at.
    pub(super) fn state<'a>(&self, file: &'a TieredFile) -> Result<MutexGuard<'a, FileState>> {
        let mut state = file.lock();
        if matches!(state.loaded, Loaded::No) {
            state.loaded = self.load(file.ino)?;
        }
        if matches!(state.loaded, Loaded::Damaged) {
            return Err(Errno::IO.into());
        }
        Ok(state)
    }

    fn load(&self, ino: Ino) -> Result<Loaded> {
        let recorded = match self.residency_at_rest(ino) {
            Ok(None) => return Ok(Loaded::Plain),
            Ok(Some(recorded)) => recorded,
            Err(Unreadable::Below(error)) => return Err(error),
            Err(Unreadable::Corrupt(what)) => {
                tracing::error!("{}: {what}; it can't be used", self.name(ino));
                return Ok(Loaded::Damaged);
            }
        };
        let attr = self.attr_below(ino, None)?;
        if !self.is_own(&recorded, &attr) {
            return Ok(self.load_foreign(ino, &recorded));
        }
        let mut offline = recorded.offline.clone();
        offline.cut(crate::stored::format::blocks_of(attr.size));
        // Who had the file open before may have left the xattr to be synced.
        let mut known = KnownResidency { recorded, offline, unsynced: true, is_rewritten: false };
        if !self.find_rewrite_below(ino, &attr, &mut known)? {
            tracing::error!(
                "{}: changed behind the mount while its bytes are in an archive, and the file \
                 system below can't tell what was written: it can't be used",
                self.name(ino)
            );
            return Ok(Loaded::Damaged);
        }
        // First that no block comes back: of a file that is said to have changed nobody looks again
        // whether all of it is new.
        if !self.settings.read_only {
            self.record_rewritten(ino, &mut known)?;
        }
        match self.repair_times(ino, &attr, &mut known) {
            // Where nothing can be written any more, a file that lacks nothing is read as it is.
            Err(error) if error.errno() == Errno::ROFS && known.offline.is_empty() => {
                Ok(Loaded::Plain)
            }
            // A kill left it with the time at which a block was put into it.
            Err(error) if error.errno() == Errno::ROFS && self.settings.read_only => {
                Ok(Loaded::Tiered(Box::new(known)))
            }
            repaired => repaired.map(|()| Loaded::Tiered(Box::new(known))),
        }
    }

    /// Whether a residency was written to the inode that it is on, by this tier.
    pub(crate) fn is_own(&self, residency: &Residency, attr: &Attr) -> bool {
        residency.tier == self.settings.tier && self.around.is_of(residency.inode, attr)
    }

    /// Whether a residency says anything of the file that it is on: that of another file says where
    /// bytes are that this one lacks, and where it lacks none, nothing.
    pub(super) fn means_something(&self, residency: &Residency, attr: &Attr) -> bool {
        self.is_own(residency, attr) || !residency.offline.is_empty()
    }

    /// A residency that was written to another inode: the file is a copy of what is below.
    fn load_foreign(&self, ino: Ino, recorded: &Residency) -> Loaded {
        if recorded.offline.is_empty() {
            return Loaded::Plain;
        }
        tracing::error!(
            "{}: a copy of a file whose bytes are in an archive, made behind the mount; it can't \
             be used",
            self.name(ino)
        );
        Loaded::Damaged
    }

    pub(super) fn name(&self, ino: Ino) -> String {
        match self.lower.path_below(ino) {
            Some(path) => path.display().to_string(),
            None => format!("inode {}", ino.0),
        }
    }
}

#[cfg(test)]
impl Default for TieredFile {
    fn default() -> Self {
        Self::new(Ino::ROOT)
    }
}

impl TieredFile {
    fn new(ino: Ino) -> Self {
        Self { ino, state: Mutex::new(FileState::new(ino)) }
    }

    /// Its inode.
    #[must_use]
    pub fn ino(&self) -> Ino {
        self.ino
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, FileState> {
        self.state.lock()
    }
}

impl FileState {
    fn new(ino: Ino) -> Self {
        Self {
            ino,
            loaded: Loaded::No,
            own: None,
            handles: 0,
            writers: 0,
            changes: 0,
            untouched: None,
            is_archiving: false,
            sync_failed: false,
            flight: HashMap::new(),
        }
    }

    /// Where its bytes are; none for a file that was never archived.
    #[must_use]
    pub fn known(&self) -> Option<&KnownResidency> {
        match &self.loaded {
            Loaded::Tiered(known) => Some(known),
            Loaded::No | Loaded::Plain | Loaded::Damaged => None,
        }
    }

    pub(super) fn known_mut(&mut self) -> Option<&mut KnownResidency> {
        match &mut self.loaded {
            Loaded::Tiered(known) => Some(known),
            Loaded::No | Loaded::Plain | Loaded::Damaged => None,
        }
    }

    /// The residency that the xattr has.
    pub(super) fn recorded(&self) -> Option<&Residency> {
        self.known().map(|known| &known.recorded)
    }

    pub(super) fn set_known(&mut self, known: KnownResidency) {
        self.loaded = Loaded::Tiered(Box::new(known));
    }

    /// Whether all bytes are here for good.
    #[must_use]
    pub fn is_resident(&self) -> bool {
        self.known().is_none_or(KnownResidency::is_resident)
    }

    /// Whether some bytes are in archives only.
    #[must_use]
    pub fn has_offline(&self) -> bool {
        self.known().is_some_and(|known| !known.offline.is_empty())
    }

    /// Whether some blocks of a range were here until a sync failed: who read them meanwhile may
    /// have read zeros.
    pub(super) fn has_lost(&self, blocks: Range<u64>) -> bool {
        let is_offline = |known: &KnownResidency| known.offline.meets(blocks);
        self.sync_failed && self.known().is_some_and(is_offline)
    }

    /// Whether the xattr says all that is known.
    fn is_in_order(&self) -> bool {
        self.known().is_none_or(KnownResidency::is_in_order)
    }

    /// The file below, opened for reading and writing.
    pub(super) fn own(&mut self, tier: &Tier) -> Result<&OwnFile> {
        let own = match self.own.take() {
            Some(own) => own,
            None => tier.open_own(self.ino, true)?,
        };
        Ok(self.own.insert(own))
    }

    /// Closes the file below unless a program has it open: thousands may be on their way at a time.
    pub(super) fn close_unused(&mut self) {
        if self.handles == 0 {
            self.own = None;
        }
    }
}
