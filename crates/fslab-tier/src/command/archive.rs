//! Archiving files because a user asks for it.

use std::sync::Arc;

use fslab_vfs::Request;

use super::each_file::each_file;
use crate::engine::{Archived, Tier};
use crate::error::{Error, Result};
use crate::event::{EventSink, report_done, report_problem};
use crate::rate_limit::RateLimit;

/// Small files go out together; they are told of once they are there.
pub(super) fn archive(
    tier: &Arc<Tier>,
    paths: &[Vec<u8>],
    (limit, bundled): (Option<&RateLimit>, Option<u64>),
    request: &Request,
    tell: &mut EventSink<'_>,
) -> Result<()> {
    tier.check_copy_targets()?;
    let mut archiver = tier.archiver(request, limit, bundled);
    let walked = each_file(tier, paths, request, tell, &mut |place, tell| {
        archiver.archive(place, &mut |path, outcome| tell_archived(tell, path, outcome))
    });
    if !matches!(walked, Err(Error::Interrupted)) {
        archiver.finish(&mut |path, outcome| tell_archived(tell, path, outcome))?;
    }
    walked
}

fn tell_archived(tell: &mut EventSink<'_>, path: &[u8], outcome: Result<Archived>) -> Result<()> {
    match outcome {
        Ok(Archived::Now { bytes }) => report_done(tell, "archived", path, bytes),
        Ok(Archived::Before) => Ok(()),
        Err(error) => report_problem(tell, &error),
    }
}
