//! The open epoch: a counter in the catalogue and in the tree that shows whether they belong
//! together.
//!
//! One of them may have been restored: the home with the catalogue from a backup, or the tree from
//! a snapshot. The catalogue then does not match the tree. So each opening is counted in both the
//! catalogue and the tree. If the counters differ, nothing expires before a scan has visited every
//! file.

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
                "the tree or the tier's home was restored or created again, so the next expiry \
                 will scan the tree first"
            );
            self.catalogue.distrust()?;
        }
        let uses = known.max(said).unwrap_or(0) + 1;
        match marks.write_open_epoch(&*self.lower, uses) {
            Ok(()) => self.catalogue.set_open_epoch(uses),
            // The error is only logged, because users need their files even if the xattr can't be
            // written, for example for lack of space.
            Err(error) => {
                tracing::warn!(
                    "can't store an xattr on the tree's root directory ({error}), so the next \
                     expiry will scan the tree first"
                );
                self.catalogue.distrust()
            }
        }
    }

    /// Counts a scan or a detached archive as an opening. So a snapshot of the tree or of the home
    /// from before it has a different count, and its catalogue is not trusted.
    pub(in crate::engine) fn advance_open_epoch(&self) -> Result<()> {
        let Some(uses) = self.catalogue.open_epoch()? else { return Ok(()) };
        let written = self.around.marks.write_open_epoch(&*self.lower, uses + 1);
        if let Err(error) = written {
            // The next opening finds different counts, and then distrusts the catalogue.
            tracing::warn!(
                "can't store an xattr on the tree's root directory ({error}), so an expiry by the \
                 next mount or command will scan the tree first"
            );
        }
        self.catalogue.set_open_epoch(uses + 1)
    }
}
