//! Undeleting one version, or all removed files of a directory.

use std::collections::BTreeMap;
use std::sync::Arc;

use fslab_vfs::{Errno, Request};

use super::inspect::is_below;
use crate::catalogue::ObjectState;
use crate::engine::Tier;
use crate::error::{Error, Result};
use crate::event::{Event, EventSink, go_on, report_done, total};
use crate::id::Id;
use crate::lower::Found;

pub(super) fn undelete(
    tier: &Arc<Tier>,
    (object, path): (Id, &[u8]),
    request: &Request,
    tell: &mut EventSink<'_>,
) -> Result<()> {
    let (bytes, problems) = tier.undelete(object, path, request)?;
    problems.into_iter().try_for_each(|what| go_on(tell(Event::Problem { what })))?;
    report_done(tell, "undeleted", path, bytes)
}

/// Brings back the last version of each file that was removed below a path. Where something has its
/// name by now, as where programs save files by renaming others over them, that stays.
pub(super) fn undelete_all(
    tier: &Arc<Tier>,
    path: &[u8],
    request: &Request,
    tell: &mut EventSink<'_>,
) -> Result<()> {
    let mut undeleted = 0;
    for (path, (_, object)) in last_removed(tier, path)? {
        match Found::at(tier.lower(), &path) {
            Ok(_) => continue,
            Err(error) if matches!(error.errno(), Errno::NOENT | Errno::NOTDIR) => {}
            Err(error) => return Err(Error::below(&path)(error)),
        }
        match undelete(tier, (object, &path), request, tell) {
            Ok(()) => undeleted += 1,
            Err(Error::Interrupted) => return Err(Error::Interrupted),
            Err(error) => go_on(tell(Event::Problem { what: error.to_string() }))?,
        }
    }
    total(tell, &[("undeleted", undeleted)])
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
