//! Undeleting one version, or all removed files in a directory.

use std::collections::BTreeMap;

use fslab_vfs::Errno;

use super::Execution;
use super::inspect::is_below;
use crate::catalogue::ObjectState;
use crate::engine::Tier;
use crate::error::{Error, Result};
use crate::event::{report_done, report_problem, report_problems, total};
use crate::id::Id;
use crate::lower::Found;

impl Execution<'_> {
    pub(super) fn undelete(&mut self, object: Id, path: &[u8]) -> Result<()> {
        let (bytes, problems) = self.tier.undelete(object, path, self.request)?;
        report_problems(self.tell, problems)?;
        report_done(self.tell, "undeleted", path, bytes)
    }

    /// Undeletes the last version of each file that was removed under a path. If another file now
    /// has that name, that file is kept and the removed one is skipped. This is common, because
    /// many programs save a file by renaming a new one over it.
    pub(super) fn undelete_all(&mut self, path: &[u8]) -> Result<()> {
        let mut undeleted = 0;
        for (path, Removed { object, .. }) in missing(self.tier, path)? {
            match self.undelete(object, &path) {
                Ok(()) => undeleted += 1,
                Err(error) => report_problem(self.tell, &error)?,
            }
        }
        total(self.tell, &[("undeleted", undeleted)])
    }

    /// Reports the files that [`Self::undelete_all`] would restore.
    pub(super) fn would_undelete_all(&mut self, path: &[u8]) -> Result<()> {
        for (path, Removed { bytes, .. }) in missing(self.tier, path)? {
            report_done(self.tell, "would undelete", &path, bytes)?;
        }
        Ok(())
    }
}

/// The last version of a removed file. Versions are ordered by their sequence.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Removed {
    sequence: u64,
    object: Id,
    bytes: u64,
}

/// Returns the files that were removed under a path, except those whose name is in use again.
fn missing(tier: &Tier, above: &[u8]) -> Result<BTreeMap<Vec<u8>, Removed>> {
    let mut missing = BTreeMap::new();
    for (path, removed) in last_removed(tier, above)? {
        match Found::at(tier.lower(), &path) {
            Ok(_) => {}
            Err(error) if matches!(error.errno(), Errno::NOENT | Errno::NOTDIR) => {
                missing.insert(path, removed);
            }
            Err(error) => return Err(Error::below(&path)(error)),
        }
    }
    Ok(missing)
}

/// Returns the paths of removed files, with the last version of each. All are kept in memory,
/// because any later row may be a newer version of a file.
fn last_removed(tier: &Tier, above: &[u8]) -> Result<BTreeMap<Vec<u8>, Removed>> {
    let mut last: BTreeMap<Vec<u8>, Removed> = BTreeMap::new();
    tier.catalogue().for_each(&mut |row| {
        if row.state == ObjectState::Removed && is_below(&row.path, above) {
            let (sequence, object) = (row.version.sequence, row.version.object);
            let found = Removed { sequence, object, bytes: row.version.size };
            let known = last.entry(row.path).or_insert(found);
            *known = found.max(*known);
        }
        Ok(())
    })?;
    Ok(last)
}
