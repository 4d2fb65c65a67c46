//! Does something to every regular file of some paths.

use std::sync::Arc;

use fslab_vfs::{FileKind, Request};

use crate::engine::{Tier, Visit, WalkEntry};
use crate::error::Result;
use crate::event::{EventSink, report_problem};

type Work<'a> = dyn FnMut(&WalkEntry<'_>, &mut EventSink<'_>) -> Result<()> + 'a;

/// Does something to every regular file of some paths. What goes wrong with one is told.
pub(super) fn each_file(
    tier: &Arc<Tier>,
    paths: &[Vec<u8>],
    request: &Request,
    tell: &mut EventSink<'_>,
    work: &mut Work<'_>,
) -> Result<()> {
    for path in paths {
        tier.walk_on(path, request, &mut |place| {
            let done = place.and_then(|place| match place.found.attr.kind {
                FileKind::Regular => work(&place, tell),
                _ => Ok(()),
            });
            done.or_else(|error| report_problem(tell, &error))?;
            Ok(Visit::Descend)
        })?;
    }
    Ok(())
}
