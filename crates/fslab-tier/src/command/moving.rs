//! What users have done to single files: copies, and that files stay.

use std::sync::Arc;

use fslab_vfs::{Errno, Request, XattrMode};

use super::{Event, PIN_NAME, Tell, each_file, go_on, tell_done};
use crate::engine::{Archived, Place, Tier};
use crate::error::{Error, Result};
use crate::limit::Limit;
use crate::lower::Found;

/// Small files go out together; they are told of once they are there.
pub(super) fn archive(
    tier: &Arc<Tier>,
    paths: &[Vec<u8>],
    (limit, bundled): (Option<&Limit>, Option<u64>),
    request: &Request,
    tell: &mut Tell<'_>,
) -> Result<()> {
    let mut archiver = tier.archiver(request, limit, bundled);
    let walked = each_file(tier, paths, request, tell, &mut |place, tell| {
        archiver.archive(place, &mut |path, outcome| tell_archived(tell, path, outcome))
    });
    if !matches!(walked, Err(Error::Interrupted)) {
        archiver.finish(&mut |path, outcome| tell_archived(tell, path, outcome))?;
    }
    walked
}

fn tell_archived(tell: &mut Tell<'_>, path: &[u8], outcome: Result<Archived>) -> Result<()> {
    match outcome {
        Ok(Archived::Now { bytes }) => tell_done(tell, "archived", path, bytes),
        Ok(Archived::Before) => Ok(()),
        Err(Error::Interrupted) => Err(Error::Interrupted),
        Err(error) => go_on(tell(Event::Problem { what: error.to_string() })),
    }
}

pub(super) fn pin(
    tier: &Arc<Tier>,
    place: &Place<'_>,
    stays: bool,
    tell: &mut Tell<'_>,
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
    tell_done(tell, if stays { "pinned" } else { "unpinned" }, place.path, place.found.attr.size)
}

/// Whether a file stays here, whatever the policy.
pub(crate) fn is_pinned(tier: &Tier, found: &Found) -> bool {
    let name = std::ffi::OsStr::new(PIN_NAME);
    tier.lower().getxattr(&tier.request(), found.ino(), name).is_ok()
}
