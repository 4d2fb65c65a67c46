//! Undeleting one version, or all removed files of a directory.

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

    /// Brings back the last version of each file that was removed below a path. Where something has
    /// its name by now, as where programs save files by renaming others over them, that stays.
    pub(super) fn undelete_all(&mut self, path: &[u8]) -> Result<()> {
        let mut undeleted = 0;
        for (path, (_, object)) in last_removed(self.tier, path)? {
            match Found::at(self.tier.lower(), &path) {
                Ok(_) => continue,
                Err(error) if matches!(error.errno(), Errno::NOENT | Errno::NOTDIR) => {}
                Err(error) => return Err(Error::below(&path)(error)),
            }
            match self.undelete(object, &path) {
                Ok(()) => undeleted += 1,
                Err(error) => report_problem(self.tell, &error)?,
            }
        }
        total(self.tell, &[("undeleted", undeleted)])
    }
}

/// Where files were that are removed, and the last version of each, with its sequence. All of them
/// are in memory: of a path, any row may be the last one.
fn last_removed(tier: &Tier, above: &[u8]) -> Result<BTreeMap<Vec<u8>, (u64, Id)>> {
    let mut last: BTreeMap<Vec<u8>, (u64, Id)> = BTreeMap::new();
    tier.catalogue().for_each(&mut |row| {
        if row.state == ObjectState::Removed && is_below(&row.path, above) {
            let found = (row.version.sequence, row.version.object);
            let known = last.entry(row.path).or_insert(found);
            *known = found.max(*known);
        }
        Ok(())
    })?;
    Ok(last)
}
