//! Crash recovery: resolves the uploads that the last run did not record before it ended.

use crate::catalogue::{ObjectRow, ObjectState};
use crate::engine::Tier;
use crate::error::Result;
use crate::lower::Found;

impl Tier {
    /// Resolves objects whose upload had not been recorded when the last run ended. An object to
    /// which its file's residency refers becomes the live version; other objects are deleted. If
    /// the file can't be examined, the row is left for a scan.
    pub(super) fn recover_pending(&self) -> Result<()> {
        self.catalogue.pending()?.into_iter().try_for_each(|row| self.recover_one(row))
    }

    fn recover_one(&self, row: ObjectRow) -> Result<()> {
        match self.named_version(&row) {
            Ok(Some(residency)) if residency.version.object == row.version.object => {
                let version = residency.version;
                // The object may not need all of the sources in a pending row.
                let sources = row.sources.filter(Vec::is_empty);
                let state = ObjectState::Live;
                self.catalogue.put(&[ObjectRow { state, version, sources, ..row }])
            }
            // An unavailable archive may contain a copy of the object, which can't be deleted now.
            // The row is kept until that copy can be deleted.
            Ok(_) if self.is_partly_unavailable(&row.version) => Ok(()),
            Ok(Some(_)) => self.delete_pending(row),
            Ok(None) if !self.residency_names(&row) => self.delete_pending(row),
            // The object is kept, because the file may refer to it.
            Ok(None) | Err(_) => Ok(()),
        }
    }

    /// Deletes a pending object that no file needs. If a part of the catalogue was lost, another
    /// object may need blocks of it. Then only its row is deleted, and a scan finds the object.
    fn delete_pending(&self, row: ObjectRow) -> Result<()> {
        if row.may_be_source() && !self.catalogue.is_listed()? {
            return self.catalogue.remove(&[row]).map(drop);
        }
        self.delete_rows(&[row]).map(drop)
    }

    /// Returns whether the file of a row refers to the row's object, or may do so because it can't
    /// be examined. The object must then be kept.
    fn residency_names(&self, row: &ObjectRow) -> bool {
        let Ok(found) = Found::at(&self.lower, &row.path) else { return true };
        !self.around.is_of(row.inode, &found.attr) || self.may_name(found.ino(), row.version.object)
    }
}
