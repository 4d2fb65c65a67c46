//! What users have done to single files: copies, and that files stay.

use std::sync::Arc;

use fslab_vfs::{Errno, Request, XattrMode};

use super::{EventSink, PIN_NAME, each_file, report_done, report_problem};
use crate::engine::{Archived, Tier, WalkEntry};
use crate::error::{Error, Result};
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

pub(super) fn pin(
    tier: &Arc<Tier>,
    place: &WalkEntry<'_>,
    stays: bool,
    tell: &mut EventSink<'_>,
) -> Result<()> {
    let (lower, request, ino) = (tier.lower(), tier.request(), place.found.ino());
    let name = std::ffi::OsStr::new(PIN_NAME);
    let done = if stays {
        lower.setxattr(&request, ino, name, b"1", XattrMode::empty())
    } else {
        match lower.removexattr(&request, ino, name) {
            Err(error) if error.errno() == Errno::NODATA => Ok(()),
            done => done,
        }
    };
    done.map_err(Error::below(place.path))?;
    report_done(tell, if stays { "pinned" } else { "unpinned" }, place.path, place.found.attr.size)
}
