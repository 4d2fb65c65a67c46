//! The open epoch: a counter in the catalogue and in the tree that shows whether they belong
//! together.
//!
//! Either may have been restored: the home from a backup, or the tree from a snapshot. The
//! catalogue then describes other files. So each opening is counted in both the catalogue and the
//! tree. If the counters differ, nothing expires before a scan has visited every file.

use crate::engine::Tier;
use crate::error::{Error, Result};

impl Tier {
    /// Counts an opening. If the catalogue and the tree have different counts, the catalogue is in
    /// doubt from then on.
    pub(in crate::engine) fn check_open_epoch(&self) -> Result<()> {
        let marks = self.around.marks;
        let known = self.catalogue.open_epoch()?;
        let said = marks.read_open_epoch(&*self.lower).map_err(Error::below(b""))?;
        if known != said {
            tracing::warn!(
                "the tree or the tier's home was restored or made again: nothing expires before a \
                 scan"
            );
            self.catalogue.distrust()?;
        }
        let uses = known.max(said).unwrap_or(0) + 1;
        match marks.write_open_epoch(&*self.lower, uses) {
            Ok(()) => self.catalogue.set_open_epoch(uses),
            // A user without space or permission to write the xattr still needs the files.
            Err(error) => {
                tracing::warn!(
                    "the tree's root does not accept xattrs ({error}): nothing expires before a \
                     scan"
                );
                self.catalogue.distrust()
            }
        }
    }

    /// Counts a scan as an opening, because its results apply to the tree from now on, and not to
    /// an earlier snapshot.
    pub(super) fn advance_open_epoch(&self) -> Result<()> {
        let Some(uses) = self.catalogue.open_epoch()? else { return Ok(()) };
        let written = self.around.marks.write_open_epoch(&*self.lower, uses + 1);
        if let Err(error) = written {
            // The next opening finds a different count in the tree, and then distrusts the
            // catalogue.
            tracing::warn!(
                "the tree's root does not accept xattrs ({error}): the next use starts with a scan"
            );
        }
        self.catalogue.set_open_epoch(uses + 1)
    }
}
