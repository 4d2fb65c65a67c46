//! The residency xattr of a file, and the order in which it may be written.
//!
//! 1. A block is durable in the lower file before the xattr records it as resident. Otherwise a
//!    crash could leave zeros in a block that is recorded as resident.
//! 2. The xattr durably records that a file is changed before a byte changes. Otherwise the next
//!    release could free bytes that no archive contains.
//! 3. The xattr durably records a block as offline before its bytes are freed.
//!
//! So after a crash, the xattr may still record recalled blocks as offline. They are recalled
//! again.

use std::sync::Arc;

use fslab_vfs::{Attr, Errno, Ino, Result};

use crate::archive::{Archive, ArchiveEntry, ArchiveUsage};
use crate::engine::Tier;
use crate::engine::files::edits_below::is_same;
use crate::engine::files::{FileState, KnownResidency, TieredFile};
use crate::error::Error;
use crate::id::Id;
use crate::lower::{OwnFile, is_missing, with_leave};
use crate::object::reader::ObjectReader;
use crate::runs::Runs;
use crate::stored::compact::ReadStored;
use crate::stored::format::blocks_of;
use crate::stored::residency::{ReadResidency, Unreadable};
use crate::stored::{self, BLOCK_BYTES, CompactResidency, Residency, StoredResidency, Version};

/// Maximum number of runs of offline blocks in a residency; this many always fit into the xattr.
pub const PIECES_MAX: usize = 140;

/// When a change of the xattr becomes durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durable {
    /// At the next sync of the file. A power cut before that does no harm, because the previous
    /// value is equally valid.
    Later,
    /// Before the call that writes the xattr returns.
    Now,
}

impl Tier {
    /// Syncs a file's bytes, and then records in its xattr which blocks are offline. Removing
    /// truncated blocks from the xattr is always made durable, because a later extension of the
    /// file does not check for them.
    pub(in crate::engine) fn record(&self, state: &mut FileState, durable: Durable) -> Result<()> {
        self.sync_below(state)?;
        let size = self.attr_below(state.ino, None)?.size;
        let Some(known) = state.known_mut() else { return Ok(()) };
        let durable = if names_too_much(known, size) { Durable::Now } else { durable };
        let offline = if known.recorded.changed {
            known.offline.clone()
        } else {
            // In an unchanged file, resident blocks between runs may be recorded as offline,
            // because they can be recalled again. So runs are joined until they fit.
            known.offline.joined(PIECES_MAX)
        };
        known.offline = offline.clone();
        let touched_seconds = self.now_seconds();
        let recorded = known.recorded.clone();
        let residency = Residency { offline, moving: false, touched_seconds, ..recorded };
        self.write_mark(state, residency, durable)
    }

    /// Returns the current time in the format of residencies: seconds since 1970.
    pub(in crate::engine) fn now_seconds(&self) -> u32 {
        let seconds = self.around.calendar.now().seconds;
        seconds.clamp(0, u32::MAX.into()) as u32
    }

    /// Writes a residency, and records that a sync is needed at shutdown. Uses the compact form if
    /// the catalogue has the other facts about the object.
    pub(in crate::engine) fn write_residency(&self, ino: Ino, residency: &Residency) -> Result<()> {
        self.lifecycle.note_change();
        let mut stored = StoredResidency::shortest(residency);
        if matches!(stored, StoredResidency::Compact(_)) && !self.is_catalogued(residency) {
            stored = StoredResidency::Full(Box::new(residency.clone()));
        }
        self.around.marks.write(&*self.lower, &self.request(), ino, &stored)
    }

    /// Returns whether the catalogue has a row from which a compact residency can be expanded.
    fn is_catalogued(&self, residency: &Residency) -> bool {
        let row = self.catalogue.get(residency.version.object);
        row.ok()
            .flatten()
            .is_some_and(|row| (row.file, &row.version) == (residency.file, &residency.version))
    }

    /// Returns the residency in a file's xattr, regardless of the state in memory. The caller must
    /// not hold the lock of the file's state.
    ///
    /// # Errors
    /// Errors of the lower file system, or the reason why the residency can't be used.
    pub fn residency_below(&self, ino: Ino) -> ReadResidency {
        self.expand(ino, self.stored_below(ino)?)
    }

    /// Like [`Self::residency_below`], in the form in which the xattr has it.
    pub(in crate::engine) fn stored_below(&self, ino: Ino) -> ReadStored {
        match self.around.marks.read(&*self.lower, ino) {
            Err(Unreadable::Below(error)) if error.errno() == Errno::ACCESS => {
                let tier = self.me.upgrade().ok_or(error)?;
                let used = tier.enter(ino);
                let _state = used.file.lock();
                self.around.marks.read_at_rest(&*self.lower, ino)
            }
            known => known,
        }
    }

    /// Like [`Self::residency_below`], for a caller that holds the lock of the file's state.
    pub(in crate::engine) fn residency_at_rest(&self, ino: Ino) -> ReadResidency {
        self.expand(ino, self.around.marks.read_at_rest(&*self.lower, ino)?)
    }

    /// Returns the full form of a residency. The facts that a compact residency does not record are
    /// read from the catalogue, or from the object if a lost catalogue was replaced.
    fn expand(&self, ino: Ino, stored: Option<StoredResidency>) -> ReadResidency {
        let compact = match stored {
            Some(StoredResidency::Compact(compact)) => compact,
            Some(StoredResidency::Full(full)) => return Ok(Some(*full)),
            None => return Ok(None),
        };
        let attr = self.lower.getattr(&self.request(), ino, None)?;
        let (tier, own) = (self.settings.tier, (self.around.inode_identity)(&attr));
        let is_own = compact.is_of(tier, own);
        let row = self.catalogue.get(compact.object).map_err(unknown_object)?;
        let (former, file, version) = match row.filter(|row| compact.is_at(&row.version)) {
            Some(row) => (row.inode, row.file, row.version),
            None => match self.find_version(&compact) {
                Ok((file, version)) => (Id::default(), file, version),
                // The stub was copied from another tier, or its object has expired.
                Err(error) if !is_own && error.is_missing_object() && self.has_all_archives() => {
                    return Ok(Some(compact.without_object(attr.size)));
                }
                Err(error) => return Err(unknown_object(error)),
            },
        };
        // The file may be a copy of a stub of this tier. Its residency is that of another inode.
        let inode = if is_own { own } else { former };
        Ok(Some(compact.expand((tier, inode), file, version)))
    }

    /// Returns whether all archives that are not detached can be read.
    pub(in crate::engine) fn has_all_archives(&self) -> bool {
        let archives = self.archives.read();
        let is_available = |archive: &Arc<dyn Archive>| archive.why_unavailable().is_none();
        let is_attached = |known: &ArchiveEntry| {
            known.usage == ArchiveUsage::Detached
                || archives.iter().any(|archive| archive.id() == known.id)
        };
        archives.iter().all(is_available) && self.known_archives.read().iter().all(is_attached)
    }

    /// Reads the facts about an object from the available archives.
    pub(in crate::engine) fn find_version(
        &self,
        compact: &CompactResidency,
    ) -> crate::Result<(Id, Version)> {
        let mut archives = self.archives.read().clone();
        archives.retain(|archive| archive.why_unavailable().is_none());
        let object = (self.settings.tier, compact.object, compact.location);
        ObjectReader::find_version(&archives, object)
    }

    /// Returns the value of an xattr that users can set, such as a pin. If the tier runs as the
    /// file's owner and has no permission to read the xattr, it grants itself this permission
    /// temporarily. If it runs as another user, an unreadable xattr is treated as missing. The
    /// caller must not hold the lock of the file's state.
    ///
    /// # Errors
    /// Errors of the lower file system, if it is unknown whether the xattr exists.
    pub(crate) fn users_xattr(&self, attr: &Attr, name: &str) -> Result<Option<Vec<u8>>> {
        let marks = self.around.marks;
        let get = || stored::marks::get(&*self.lower, attr.ino, name);
        match get() {
            Err(error) if !marks.wants_leave(&error) => Err(error),
            Err(_) if !marks.are_believed(attr) => Ok(None),
            Err(error) => {
                let tier = self.me.upgrade().ok_or(error)?;
                let used = tier.enter(attr.ino);
                let _state = used.file.lock();
                let (value, restored) = with_leave(&*self.lower, &self.request(), attr.ino, get)?;
                restored.map(|()| value)
            }
            value => value,
        }
    }

    /// Returns whether a file's residency refers to an object, or may do so because it is
    /// unreadable. The object must then be kept. The caller keeps a lookup reference to the inode,
    /// so the file is found under any name.
    pub(in crate::engine) fn may_name(&self, ino: Ino, object: Id) -> bool {
        match self.stored_below(ino) {
            Ok(known) => known.is_some_and(|known| known.object() == object),
            Err(Unreadable::Below(error)) => !is_missing(&error),
            Err(Unreadable::Corrupt(_) | Unreadable::UnknownObject(_)) => true,
        }
    }

    /// Writes a residency to the xattr, and then stores it in the file's state.
    pub(in crate::engine) fn write_mark(
        &self,
        state: &mut FileState,
        residency: Residency,
        durable: Durable,
    ) -> Result<()> {
        self.write_residency(state.ino, &residency)?;
        state.known_mut().iter_mut().for_each(|known| known.unsynced = true);
        if durable == Durable::Now {
            // The residency is stored in the file's state only after the xattr is durable.
            self.sync_below(state)?;
        }
        if let Some(known) = state.known_mut() {
            known.recorded = residency;
            known.unsynced = durable == Durable::Later;
        }
        Ok(())
    }

    /// Changes the residency in the file's xattr, if there is one.
    pub(in crate::engine) fn change_mark(
        &self,
        state: &mut FileState,
        durable: Durable,
        change: impl FnOnce(&mut Residency),
    ) -> Result<()> {
        let Some(mut residency) = state.recorded().cloned() else { return Ok(()) };
        change(&mut residency);
        self.write_mark(state, residency, durable)
    }

    /// Durably records that a file is about to be changed, unless that is already recorded.
    pub(in crate::engine) fn mark_changed(&self, state: &mut FileState) -> Result<()> {
        state.changes += 1;
        if state.recorded().is_none_or(|recorded| recorded.changed) {
            return Ok(());
        }
        self.change_mark(state, Durable::Now, |residency| {
            (residency.changed, residency.moving) = (true, false);
            residency.touched_seconds = self.now_seconds();
        })
    }

    /// Makes the xattr record the present state of a file.
    pub(in crate::engine) fn settle(&self, file: &TieredFile) -> Result<()> {
        let mut state = file.lock();
        if state.known().is_none_or(KnownResidency::is_in_order) {
            return Ok(());
        }
        let size = self.attr_below(file.ino(), None)?.size;
        if let Some(known) = state.known_mut() {
            forget_surplus(known, size);
        }
        self.record(&mut state, Durable::Later)
    }

    /// Repairs a modification time that a crash left wrong, and finds changes made in the lower
    /// directory.
    ///
    /// After an interrupted recall or release, a different time may come from that operation, or
    /// from a later change in the lower directory. So the file is treated as changed. Its time is
    /// restored only after this is durably recorded, because only the time reveals a change.
    pub(super) fn repair_times(
        &self,
        ino: Ino,
        attr: &Attr,
        known: &mut KnownResidency,
    ) -> Result<()> {
        let recorded = &known.recorded;
        let (modified, size) = (recorded.version.modified, recorded.version.size);
        let is_same = is_same(recorded, attr);
        if !recorded.moving && (recorded.changed || is_same) {
            return Ok(());
        }
        let own = self.open_own(ino, true)?;
        if !is_same && !recorded.changed {
            tracing::warn!(
                "{}: was changed in the lower directory after it was archived",
                self.name(ino)
            );
            let moving = recorded.moving && attr.size == size;
            self.repair(&own, known, Residency { changed: true, moving, ..recorded.clone() })?;
        }
        if known.recorded.moving {
            if attr.size == size {
                own.set_modified(modified)?;
            }
            self.repair(&own, known, Residency { moving: false, ..known.recorded.clone() })?;
        }
        Ok(())
    }

    pub(in crate::engine) fn repair(
        &self,
        own: &OwnFile,
        known: &mut KnownResidency,
        residency: Residency,
    ) -> Result<()> {
        self.write_residency(own.ino(), &residency)?;
        own.sync()?;
        known.recorded = residency;
        Ok(())
    }

    /// Updates the xattr before a file grows, if it still records blocks at or past the present end
    /// as offline. Otherwise these blocks would be recalled into the new part.
    pub(super) fn record_before_growth(&self, state: &mut FileState, size: u64) -> Result<()> {
        if state.known().is_some_and(|known| names_too_much(known, size)) {
            if let Some(known) = state.known_mut() {
                known.offline.cut(blocks_of(size));
            }
            self.record(state, Durable::Now)?;
        }
        Ok(())
    }
}

fn unknown_object(error: Error) -> Unreadable {
    Unreadable::UnknownObject(Box::new(error))
}

/// Returns whether the xattr wrongly records blocks past the end of a file, or its incomplete last
/// block, as offline.
fn names_too_much(known: &KnownResidency, size: u64) -> bool {
    behind(&known.recorded.offline, size) != behind(&known.offline, size)
}

/// Treats recalled blocks of a changed file as offline again, if the file has more runs than the
/// xattr can record. No change is lost, because such a block was recalled and not changed. The
/// incomplete last block keeps its state.
fn forget_surplus(known: &mut KnownResidency, size: u64) {
    if !known.recorded.changed || known.offline.pieces() <= PIECES_MAX {
        return;
    }
    let last = behind(&known.offline, size);
    known.offline = known.recorded.offline.clone();
    known.offline.cut(size / BLOCK_BYTES);
    last.iter().for_each(|run| known.offline.insert(run));
}

/// Returns the blocks of `runs` at or past the incomplete last block of a file.
fn behind(runs: &Runs, size: u64) -> Runs {
    let mut behind = runs.clone();
    behind.remove(0..size / BLOCK_BYTES);
    behind
}
