//! Recording of additional copies, which are made from archive to archive, without recalling files.
//!
//! 1. The whole container is copied unchanged to the other archive, and the object is read back
//!    from it.
//! 2. The archive is recorded in the file's xattr, if the file is still at the path in its row.
//! 3. The archive is recorded in the catalogue. A scan adds the archive to the xattr of a renamed
//!    file.
//!
//! If the run is interrupted before step 3, the next run finds the copy in the archive. The copy is
//! deleted with the others when the object is no longer needed.

use std::sync::Arc;

use fslab_vfs::Ino;

use crate::catalogue::{ObjectRow, ObjectState};
use crate::engine::Tier;
use crate::engine::files::KnownResidency;
use crate::engine::files::residency_xattr::Durable;
use crate::error::{Error, Result};
use crate::lower::Found;
use crate::stored::{Residency, StoredResidency, Version};

impl Tier {
    /// Records in the xattr of a row's file that additional archives have a copy of its version. A
    /// renamed file is skipped; the next scan updates its xattr.
    pub(super) fn record_copies(self: &Arc<Self>, row: &ObjectRow) -> Result<()> {
        let Some(found) = self.found_live(row) else { return Ok(()) };
        self.record_copies_on(found.ino(), &row.version).map_err(Error::below(&row.path))
    }

    /// Like [`Self::record_copies`], for an inode. Does nothing if the file has another version or
    /// is being archived.
    fn record_copies_on(self: &Arc<Self>, ino: Ino, version: &Version) -> fslab_vfs::Result<()> {
        let used = self.enter(ino);
        let mut state = self.state(&used.file)?;
        let is_its = |known: &Residency| {
            known.version.object == version.object && known.version.location == version.location
        };
        let known = state.recorded().filter(|known| is_its(known) && !state.is_archiving);
        let Some(known) = known else { return Ok(()) };
        let named = known.version.clone().with_copies(&version.copies);
        if named == known.version || self.check_open().is_err() {
            return Ok(());
        }
        let stored = self.around.marks.read_at_rest(&*self.lower, ino);
        if let (Ok(Some(StoredResidency::Compact(_))), Some(known)) = (stored, state.known_mut()) {
            // Only the catalogue lists the copies of such a file.
            known.recorded.version = named;
            return Ok(());
        }
        self.change_mark(&mut state, Durable::Later, |known| known.version = named)
    }

    /// Marks a fully resident file as changed, because no copy of its version is intact. So it is
    /// archived again before it may be released. Returns whether the file is now marked, even if it
    /// was marked before. A renamed file is skipped until a scan has recorded its new path.
    pub(super) fn archive_anew(self: &Arc<Self>, row: &ObjectRow) -> Result<bool> {
        let Some(found) = self.found_live(row) else { return Ok(false) };
        self.archive_anew_on(found.ino(), &row.version).map_err(Error::below(&row.path))
    }

    fn archive_anew_on(self: &Arc<Self>, ino: Ino, version: &Version) -> fslab_vfs::Result<bool> {
        let used = self.enter(ino);
        let mut state = self.state(&used.file)?;
        let is_its = |known: &KnownResidency| {
            let recorded = &known.recorded.version;
            let is_it = (recorded.object, recorded.location) == (version.object, version.location);
            // A catalogue from a backup may not list all copies, and an unlisted copy may be
            // intact.
            is_it && recorded.copies == version.copies && known.offline.is_empty()
        };
        let is_here = !state.is_archiving && state.known().is_some_and(is_its);
        if !is_here || self.check_open().is_err() {
            return Ok(false);
        }
        self.mark_changed(&mut state).map(|()| true)
    }

    /// Adds the copies of a row to a file's residency and records them in its xattr. These copies
    /// are missing in the xattr if the file had been renamed before they were made.
    pub(in crate::engine) fn with_recorded_copies(
        self: &Arc<Self>,
        ino: Ino,
        known: Residency,
        row: Option<&ObjectRow>,
    ) -> fslab_vfs::Result<Residency> {
        let row = row.filter(|row| row.version.location == known.version.location);
        let Some(row) = row else { return Ok(known) };
        let version = known.version.clone().with_copies(&row.version.copies);
        if version != known.version {
            self.record_copies_on(ino, &version)?;
        }
        Ok(Residency { version, ..known })
    }

    /// Returns the file at the path of a row, if the row is live.
    fn found_live(&self, row: &ObjectRow) -> Option<Found> {
        let is_live = row.state == ObjectState::Live;
        Found::at(&self.lower, &row.path).ok().filter(|_| is_live)
    }
}
