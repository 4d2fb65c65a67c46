//! The files in use: the state of each, and the number of its users.
//!
//! Invariant: while a file is in use, there is exactly one [`TieredFile`] for its inode. The last
//! user writes the file's residency before leaving. Each user or its caller keeps a lookup
//! reference to the inode, so that the inode number is not reused for another file.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use fslab_vfs::{Attr, Errno, FileSystem, Ino, Result};
use parking_lot::{Mutex, MutexGuard};

use crate::engine::Tier;
use crate::engine::files::block_cache::BlockCache;
use crate::engine::recall::Recall;
use crate::lower::{OwnFile, is_full};
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

/// A file in use.
pub struct TieredFile {
    ino: Ino,
    state: Mutex<FileState>,
}

/// The state of a file in use.
pub struct FileState {
    pub(super) ino: Ino,
    loaded: Loaded,
    /// The lower file, opened for reading and writing; `None` until the engine needs it.
    own: Option<OwnFile>,
    /// Number of handles that programs have open.
    pub(super) handles: usize,
    /// Number of these handles that may write.
    pub(super) writers: usize,
    /// Number of changes of the file that have begun.
    pub(super) changes: u64,
    /// The value of `changes` after a program opened the file for writing; `None` if a write could
    /// go unnoticed. As long as the two values are equal, the daemon has seen no write.
    pub(super) untouched: Option<u64>,
    /// Whether the file is being archived.
    pub(super) is_archiving: bool,
    /// Whether a sync of the file has failed since the file was first used.
    pub(super) sync_failed: bool,
    /// Requested recalls that are not finished, by block.
    pub(super) flight: HashMap<u64, Arc<Recall>>,
}

enum Loaded {
    /// The residency has not been read yet.
    No,
    /// The file was never archived.
    Plain,
    /// The file has a residency.
    Tiered(Box<KnownResidency>),
    /// The file can't be used, because its bytes are offline and their location is unknown.
    Damaged,
}

/// The location of a file's bytes: in the lower file or only in archives.
#[derive(Debug)]
pub struct KnownResidency {
    /// The residency in the file's xattr.
    pub recorded: Residency,
    /// Blocks that are offline now. Blocks that the xattr records as offline may have been recalled
    /// since.
    pub offline: Runs,
    /// Whether the xattr was written and not yet synced.
    pub unsynced: bool,
    /// Whether the whole file was rewritten in the lower directory.
    pub is_rewritten: bool,
}

impl KnownResidency {
    /// Returns the residency of a file of `size` bytes that was not in use until now. An earlier
    /// user of the file may have left the xattr unsynced.
    fn at_rest(recorded: Residency, size: u64) -> Self {
        let mut offline = recorded.offline.clone();
        offline.cut(crate::stored::format::blocks_of(size));
        Self { recorded, offline, unsynced: true, is_rewritten: false }
    }

    /// Returns whether all bytes are resident, and the xattr records that.
    #[must_use]
    pub fn is_resident(&self) -> bool {
        self.offline.is_empty() && self.recorded.offline.is_empty()
    }

    /// Returns whether the xattr records the present state.
    #[must_use]
    pub fn is_in_order(&self) -> bool {
        self.offline == self.recorded.offline && !self.recorded.moving
    }
}

/// The files in use, with the number of their users.
#[derive(Default)]
pub struct Files {
    table: Mutex<HashMap<Ino, (Arc<TieredFile>, usize)>>,
    /// Recalled blocks of a read-only tree, which are kept in memory.
    cache: BlockCache,
    /// Whether the lower file system distinguishes holes from data; set by the first query.
    tells_holes: OnceLock<bool>,
}

impl Files {
    fn enter(&self, ino: Ino) -> Arc<TieredFile> {
        let mut table = self.table.lock();
        let (file, users) = table.entry(ino).or_insert_with(|| (Arc::new(TieredFile::new(ino)), 0));
        *users += 1;
        Arc::clone(file)
    }

    /// Ends a use of a file. The last user removes the file from the table, but only if
    /// `is_in_order` returns `true`. Otherwise the use continues, and `false` is returned.
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
        // Closing the lower file may take long, so the table is unlocked first.
        drop(last);
        true
    }

    /// Returns the file if it is in use.
    pub fn get(&self, ino: Ino) -> Option<Arc<TieredFile>> {
        self.table.lock().get(&ino).map(|(file, _)| Arc::clone(file))
    }

    /// Returns every file in use.
    pub fn all(&self) -> Vec<Arc<TieredFile>> {
        self.table.lock().values().map(|(file, _)| Arc::clone(file)).collect()
    }
}

/// A use of a file; ends when dropped.
pub struct FileUse {
    tier: Arc<Tier>,
    /// The file.
    pub file: Arc<TieredFile>,
    /// Whether this use holds a lookup reference on the lower inode, which is released on drop.
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
        // If the state is locked, the residency is treated as not yet recorded, because the holder
        // of the lock may be about to change it.
        let in_order =
            |file: &TieredFile| file.state.try_lock().is_some_and(|state| state.is_in_order());
        // Retries, because other users may enter and leave while the residency is being written.
        while !self.tier.files.leave(self.file.ino, in_order) {
            if let Err(error) = self.tier.settle(&self.file) {
                // The xattr still records recalled blocks as offline, so no data is lost.
                tracing::warn!(%error, ino = self.file.ino.0, "can't record recalled blocks; the \
                    blocks will be recalled again");
                self.tier.files.leave(self.file.ino, |_| true);
                return;
            }
        }
    }
}

impl Tier {
    /// Begins a use of an inode. The caller must keep a lookup reference to the inode during the
    /// use.
    #[must_use]
    pub fn enter(self: &Arc<Self>, ino: Ino) -> FileUse {
        FileUse { tier: Arc::clone(self), file: self.files.enter(ino), holds: false }
    }

    /// Begins a use that may outlast the caller's lookup reference. The use holds its own
    /// reference, because otherwise the inode number could be reused for another file.
    ///
    /// # Errors
    /// `ESTALE` if there is no lookup reference to the inode.
    pub(crate) fn enter_and_hold(self: &Arc<Self>, ino: Ino) -> Result<FileUse> {
        self.lower.hold(ino)?;
        let mut used = self.enter(ino);
        used.holds = true;
        Ok(used)
    }

    /// Returns the file if it is in use.
    #[must_use]
    pub fn in_use(&self, ino: Ino) -> Option<Arc<TieredFile>> {
        self.files.get(ino)
    }

    /// Locks the state of a file, and reads its residency if it is not loaded yet.
    ///
    /// # Errors
    /// `EIO` if the file is damaged; errors of the lower file system.
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
            Err(unknown @ Unreadable::UnknownObject(_)) => {
                tracing::error!("{}: {unknown}", self.name(ino));
                return Err(Errno::IO.into());
            }
            Err(Unreadable::Corrupt(what)) => {
                tracing::error!("{}: {what}; the file can't be used", self.name(ino));
                return Ok(Loaded::Damaged);
            }
        };
        let attr = self.attr_below(ino, None)?;
        if !self.is_own(&recorded, &attr) {
            return Ok(self.load_foreign(ino, &recorded));
        }
        let mut known = KnownResidency::at_rest(recorded, attr.size);
        if !self.find_rewrite_below(ino, &attr, &mut known)? {
            tracing::error!(
                "{}: a program changed this file in the lower directory while bytes of it were \
                 offline. The file can't be used, because the lower file system can't report which \
                 bytes were written",
                self.name(ino)
            );
            return Ok(Loaded::Damaged);
        }
        // The rewrite is recorded before the file is recorded as changed, because a changed file is
        // not examined for a rewrite again.
        if !self.settings.read_only {
            self.record_rewritten(ino, &mut known)?;
        }
        match self.repair_times(ino, &attr, &mut known) {
            // On a file system that became read-only, a fully resident file can be read without a
            // residency.
            Err(error) if error.errno() == Errno::ROFS && known.offline.is_empty() => {
                Ok(Loaded::Plain)
            }
            // A read-only tier can't repair the modification time, but the mount shows the right
            // one.
            Err(error) if error.errno() == Errno::ROFS && self.settings.read_only => {
                Ok(Loaded::Tiered(Box::new(known)))
            }
            // A full disk must not prevent reading. The next load tries again.
            Err(error) if is_full(error.errno()) && !known.recorded.moving => {
                Ok(Loaded::Tiered(Box::new(known)))
            }
            repaired => repaired.map(|()| Loaded::Tiered(Box::new(known))),
        }
    }

    /// Returns whether this tier wrote a residency, and wrote it for the inode that has this xattr
    /// now.
    pub(crate) fn is_own(&self, residency: &Residency, attr: &Attr) -> bool {
        residency.tier == self.settings.tier && self.around.is_of(residency.inode, attr)
    }

    /// Returns whether a residency is valid for the file that has this xattr now. A residency that
    /// was copied from another file is valid only if it records offline blocks, because the copy
    /// lacks these bytes, too.
    pub(super) fn means_something(&self, residency: &Residency, attr: &Attr) -> bool {
        self.is_own(residency, attr) || !residency.offline.is_empty()
    }

    /// Returns the state of a file whose residency was written for another inode. Such a file is a
    /// copy that was made in the lower directory.
    fn load_foreign(&self, ino: Ino, recorded: &Residency) -> Loaded {
        if recorded.offline.is_empty() {
            return Loaded::Plain;
        }
        tracing::error!(
            "{}: this file can't be used, because it was copied in the lower directory from a file \
             with offline bytes and lacks these bytes",
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

    /// Returns the inode.
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

    /// Returns the location of the file's bytes; `None` for a file that was never archived.
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

    /// Returns the residency in the file's xattr.
    pub(super) fn recorded(&self) -> Option<&Residency> {
        self.known().map(|known| &known.recorded)
    }

    pub(super) fn set_known(&mut self, known: KnownResidency) {
        self.loaded = Loaded::Tiered(Box::new(known));
    }

    /// Returns whether all bytes are resident, and the xattr records that.
    #[must_use]
    pub fn is_resident(&self) -> bool {
        self.known().is_none_or(KnownResidency::is_resident)
    }

    /// Returns whether some bytes are only in archives.
    #[must_use]
    pub fn has_offline(&self) -> bool {
        self.known().is_some_and(|known| !known.offline.is_empty())
    }

    /// Returns whether some blocks of a range are treated as offline again because a sync failed. A
    /// read that overlapped the failed sync may have returned zeros from these blocks.
    pub(super) fn has_lost(&self, blocks: Range<u64>) -> bool {
        let is_offline = |known: &KnownResidency| known.offline.meets(blocks);
        self.sync_failed && self.known().is_some_and(is_offline)
    }

    /// Returns whether the xattr records the present state.
    fn is_in_order(&self) -> bool {
        self.known().is_none_or(KnownResidency::is_in_order)
    }

    /// Returns the lower file, opened for reading and writing.
    pub(super) fn own(&mut self, tier: &Tier) -> Result<&OwnFile> {
        let own = match self.own.take() {
            Some(own) => own,
            None => tier.open_own(self.ino, true)?,
        };
        Ok(self.own.insert(own))
    }

    /// Closes the lower file unless a program has it open. Otherwise archiving a bundle of
    /// thousands of files would keep thousands of descriptors open.
    pub(super) fn close_unused(&mut self) {
        if self.handles == 0 {
            self.own = None;
        }
    }
}
