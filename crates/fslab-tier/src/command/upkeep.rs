//! Looking at everything there is: files and objects, and every copy.

use std::sync::Arc;

use fslab_vfs::Request;

use super::{Event, Tell, go_on, total};
use crate::engine::Tier;
use crate::error::Result;

pub(super) fn scan(tier: &Arc<Tier>, request: &Request, tell: &mut Tell<'_>) -> Result<()> {
    let scanned = tier.scan(request)?;
    for what in scanned.damaged {
        go_on(tell(Event::Problem { what }))?;
    }
    if scanned.unknown > 0 {
        let files = scanned.unknown;
        let what = format!("{files} damaged files may name any object: none is taken for unneeded");
        go_on(tell(Event::Problem { what }))?;
    }
    total(
        tell,
        &[
            ("files", scanned.files),
            ("archived", scanned.archived),
            ("offline", scanned.offline),
            ("mended", scanned.mended),
            ("unneeded", scanned.unneeded),
        ],
    )
}

pub(super) fn scrub(tier: &Arc<Tier>, request: &Request, tell: &mut Tell<'_>) -> Result<()> {
    let scrubbed = tier.scrub(request)?;
    let damaged = scrubbed.damaged.len() as u64;
    for what in scrubbed.damaged {
        go_on(tell(Event::Problem { what }))?;
    }
    total(tell, &[("copies", scrubbed.copies), ("mended", scrubbed.mended), ("damaged", damaged)])
}
