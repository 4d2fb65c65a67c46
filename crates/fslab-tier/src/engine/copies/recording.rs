//! Recording further copies, which are made from archive to archive: no file is recalled.
//!
//! 1. The container goes to the other archive as it is, with everything in it, and the object is
//!    read back there.
//! 2. The file's xattr names the archive, if the file is where its row says.
//! 3. The catalogue names it. A scan has renamed files name it, too.
//!
//! An interrupted run leaves a copy that the next run finds. It is deleted with the others when the
//! object is no longer needed.

use std::sync::Arc;

use fslab_vfs::Ino;

use crate::catalogue::{ObjectRow, ObjectState};
use crate::engine::Tier;
use crate::engine::files::KnownResidency;
use crate::engine::files::residency_xattr::Durable;
use crate::error::{Error, Result};
use crate::lower::Found;
use crate::stored::{Residency, Version};

impl Tier {
    /// Says on the file of a row that further archives have its version. A file that has another
    /// name by now is left to a scan.
    pub(super) fn record_copies(self: &Arc<Self>, row: &ObjectRow) -> Result<()> {
        let Some(found) = self.found_live(row) else { return Ok(()) };
        self.record_copies_on(found.ino(), &row.version).map_err(Error::below(&row.path))
    }

    /// The same of a file, if that is its version and nobody archives it anew.
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
        self.change_mark(&mut state, Durable::Later, |known| known.version = named)
    }

    /// Has a file whose bytes are all here count as changed, as no copy of its version is whole: it
    /// is archived anew, and does not go before. Returns whether that was said, or was so before.
    /// A file that has another name by now is left to a scan.
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
            // A catalogue of another day may not know of all copies.
            is_it && recorded.copies == version.copies && known.offline.is_empty()
        };
        let is_here = !state.is_archiving && state.known().is_some_and(is_its);
        if !is_here || self.check_open().is_err() {
            return Ok(false);
        }
        self.mark_changed(&mut state).map(|()| true)
    }

    /// What a file says, with the copies that were made when nobody knew where it was: from now on
    /// it names them itself.
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

    /// The file of a live row, where it has its name still.
    fn found_live(&self, row: &ObjectRow) -> Option<Found> {
        let is_live = row.state == ObjectState::Live;
        Found::at(&self.lower, &row.path).ok().filter(|_| is_live)
    }
}
