//! Crash recovery: resolves the uploads that the last run did not record before it ended.

use crate::catalogue::{ObjectRow, ObjectState};
use crate::engine::Tier;
use crate::error::Result;
use crate::lower::Found;

impl Tier {
    /// Objects that were on their way when the last run ended: those that a file names are its
    /// version, those that the file does not name go, and the others wait for a scan.
    pub(super) fn recover_pending(&self) -> Result<()> {
        self.catalogue.pending()?.into_iter().try_for_each(|row| self.recover_one(row))
    }

    fn recover_one(&self, row: ObjectRow) -> Result<()> {
        match self.named_version(&row) {
            Ok(Some(residency)) if residency.version.object == row.version.object => {
                let version = residency.version;
                self.catalogue.put(&[ObjectRow { state: ObjectState::Live, version, ..row }])
            }
            // What it holds that is unavailable can't be removed, and nobody would find it.
            Ok(_) if self.is_partly_unavailable(&row.version) => Ok(()),
            Ok(Some(_)) => self.delete_rows(&[row]).map(drop),
            Ok(None) if !self.residency_names(&row) => self.delete_rows(&[row]).map(drop),
            // The file may say that it is its version.
            Ok(None) | Err(_) => Ok(()),
        }
    }

    /// Whether the file that a row is about names its object, or may: then it must stay.
    fn residency_names(&self, row: &ObjectRow) -> bool {
        let Ok(found) = Found::at(&self.lower, &row.path) else { return true };
        !self.around.is_of(row.inode, &found.attr) || self.may_name(found.ino(), row.version.object)
    }
}
