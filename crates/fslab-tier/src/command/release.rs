//! Releasing files on a user's command, and the dry run of this command.

use std::sync::Arc;

use super::Execution;
use crate::engine::{Tier, WalkEntry};
use crate::error::{Error, Result, shown};
use crate::event::{EventSink, report_done};
use crate::stored::BLOCK_BYTES;

impl Execution<'_> {
    pub(super) fn release(&mut self, paths: &[Vec<u8>], keep_bytes: u64) -> Result<()> {
        self.release_each(paths, keep_bytes, "released", |tier, place, kept| {
            Ok(tier.release(place.found.ino(), place.path, kept)?.bytes)
        })
    }

    pub(super) fn would_release(&mut self, paths: &[Vec<u8>], keep_bytes: u64) -> Result<()> {
        self.release_each(paths, keep_bytes, "would release", |tier, place, kept| {
            tier.releasable_bytes(place.found.ino(), place.path, kept)
        })
    }

    /// Calls `release` for each file that is not pinned, and reports the number of bytes that it
    /// returns.
    fn release_each(
        &mut self,
        paths: &[Vec<u8>],
        keep_bytes: u64,
        what: &str,
        release: impl Fn(&Arc<Tier>, &WalkEntry<'_>, u64) -> Result<u64>,
    ) -> Result<()> {
        let tier = self.tier;
        tier.check_copy_targets()?;
        let kept = keep_bytes.div_ceil(BLOCK_BYTES);
        self.each_file(paths, &mut |place, tell| {
            if tier.is_pinned(&place.found.attr) {
                return report_pinned(paths, place, tell);
            }
            match release(tier, place, kept)? {
                0 => Ok(()),
                bytes => report_done(tell, what, place.path, bytes),
            }
        })
    }
}

/// Reports that a pinned file is not released. This is an error if the command names the file
/// itself.
fn report_pinned(paths: &[Vec<u8>], place: &WalkEntry<'_>, tell: &mut EventSink<'_>) -> Result<()> {
    if paths.iter().any(|path| path == place.path) {
        let path = shown(place.path);
        let what = format!("{path}: is pinned; run `fslab tier unpin` before you release it");
        return Err(Error::Refused { what });
    }
    report_done(tell, "kept (pinned)", place.path, place.found.attr.size)
}
