//! The open epoch: a counter in the catalogue and in the tree that shows whether both belong
//! together.
//!
//! Either may have been restored: the home from a backup, or the tree from a snapshot. Then the
//! catalogue describes other files. So each opening is counted in both places. Where the counters
//! differ, nothing expires before a scan has visited every file.

use crate::engine::Tier;
use crate::error::{Error, Result};

impl Tier {
    /// Counts an opening, and distrusts the catalogue where it and the tree have another count.
    pub(in crate::engine) fn check_open_epoch(&self) -> Result<()> {
        let marks = self.around.marks;
        let known = self.catalogue.open_epoch()?;
        let said = marks.read_open_epoch(&*self.lower).map_err(Error::below(b""))?;
        if known != said {
            tracing::warn!(
                "the tree or the tier's home was set back, or made again: nothing expires before \
                 a scan"
            );
            self.catalogue.distrust()?;
        }
        let uses = known.max(said).unwrap_or(0) + 1;
        match marks.write_open_epoch(&*self.lower, uses) {
            Ok(()) => self.catalogue.set_open_epoch(uses),
            // Whoever has no room or may not write there needs his files all the same.
            Err(error) => {
                tracing::warn!(
                    "the tree's root takes no xattr ({error}): nothing expires before a scan"
                );
                self.catalogue.distrust()
            }
        }
    }

    /// Counts a scan as an opening: what it found is of the tree as it is from then on, and not as
    /// an earlier snapshot has it.
    pub(super) fn advance_open_epoch(&self) -> Result<()> {
        let Some(uses) = self.catalogue.open_epoch()? else { return Ok(()) };
        let written = self.around.marks.write_open_epoch(&*self.lower, uses + 1);
        if let Err(error) = written {
            // The next opening finds another number there, and distrusts what is said here.
            tracing::warn!("the tree's root takes no xattr ({error}): the next use scans anew");
        }
        self.catalogue.set_open_epoch(uses + 1)
    }
}
