//! What users have done to single files: copies, recalls, and that files stay.

use std::sync::Arc;

use fslab_vfs::{Errno, Request, XattrMode};

use super::{Event, PIN_NAME, Tell, each_file, go_on, tell_done};
use crate::engine::{Archived, Place, Tier};
use crate::error::{Error, Result};
use crate::limit::Limit;
use crate::lower::Found;
use crate::queue::Class;
use crate::stored::BLOCK_BYTES;
use crate::stored::format::{blocks_met, blocks_of};

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

pub(super) fn recall(
    tier: &Arc<Tier>,
    place: &Place<'_>,
    range: Option<(u64, u64)>,
    limit: Option<&Limit>,
    request: &Request,
    tell: &mut Tell<'_>,
) -> Result<()> {
    let blocks = range.map_or(0..u64::MAX, |(offset, length)| blocks_met(offset, length));
    let used = tier.enter(place.found.ino());
    let below = || Error::below(place.path);
    let before = tier.resident_bytes(&used.file, place.found.attr.size).map_err(below())?;
    let bring = |blocks| {
        tier.recall(&used.file, blocks, request, Class::Bulk).map_err(|error| match error.errno() {
            Errno::INTR => Error::Interrupted,
            _ => Error::below(place.path)(error),
        })
    };
    match limit {
        Some(limit) => {
            // One after the other: what is in the queue comes as fast as the tier lets it.
            let end = blocks.end.min(blocks_of(place.found.attr.size));
            for block in blocks.start..end {
                if !tier.is_here(&used.file, block).map_err(below())? {
                    limit.pass(BLOCK_BYTES, request)?;
                    bring(block..block + 1)?;
                }
            }
        }
        None => bring(blocks)?,
    }
    let after = tier.resident_bytes(&used.file, place.found.attr.size).map_err(below())?;
    // Somebody may have released other blocks meanwhile.
    match after.saturating_sub(before) {
        0 => Ok(()),
        bytes => tell_done(tell, "recalled", place.path, bytes),
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
