//! Whether the catalogue and the tree are of the same day.
//!
//! Either may have been set back: the home from a backup, the tree to a snapshot. Then what the
//! catalogue says of files, and what its scans found, is of other files. So each opening is counted
//! in both places, and where they differ nothing goes before a scan has looked at every file.

use fslab_vfs::Errno;

use super::Tier;
use crate::error::{Error, Result};

impl Tier {
    /// Counts an opening, and distrusts the catalogue where it and the tree have another count.
    pub(super) fn compare_uses(&self) -> Result<()> {
        let (marks, request) = (self.around.marks, self.request());
        let known = self.catalogue.uses()?;
        let said = marks.read_uses(&*self.lower, &request).map_err(Error::below(b""))?;
        if known != said {
            tracing::warn!(
                "the tree or the tier's home was set back, or made again: nothing expires before \
                 a scan"
            );
            self.catalogue.distrust()?;
        }
        let uses = known.max(said).unwrap_or(0) + 1;
        match marks.write_uses(&*self.lower, &request, uses) {
            Ok(()) => self.catalogue.note_uses(uses),
            // Nothing of it changes in this use.
            Err(error) if error.errno() == Errno::ROFS => Ok(()),
            Err(error) => Err(Error::below(b"")(error)),
        }
    }
}
