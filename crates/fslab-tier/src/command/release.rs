//! Releasing files on a user's command, and the dry run of this command.

use std::sync::Arc;

use fslab_vfs::Attr;
use parking_lot::Mutex;

use super::Execution;
use crate::engine::{FileUse, ReleaseBatch, Tier, WalkEntry};
use crate::error::{Error, Result, shown};
use crate::event::{Bound, EventSink, report_done, report_problem};
use crate::object::prefetch::{PlannedReads, Prefetched};
use crate::stored::BLOCK_BYTES;

/// A file that will be released.
struct Waiting {
    used: FileUse,
    path: Vec<u8>,
    attr: Attr,
}

impl Execution<'_> {
    pub(super) fn release(&mut self, paths: &[Vec<u8>], keep_bytes: u64) -> Result<()> {
        self.release_each(
            paths,
            keep_bytes,
            "released",
            |_| {},
            |tier, file, kept, prefetched| {
                let ino = file.used.file.ino();
                Ok(tier.release_prefetched(ino, &file.path, kept, prefetched)?.bytes)
            },
        )
    }

    pub(super) fn would_release(&mut self, paths: &[Vec<u8>], keep_bytes: u64) -> Result<()> {
        let planner = Mutex::new(self.tier.planner("release", Bound::AtMost)?);
        let planned = |reads: &PlannedReads| planner.lock().open_together(reads);
        self.release_each(
            paths,
            keep_bytes,
            "would release",
            planned,
            |tier, file, kept, read| {
                let part = tier.releasable_part(file.used.file.ino(), &file.path, kept, read)?;
                let (version, blocks, bytes) = part;
                planner.lock().release(&version, &blocks, bytes, read)?;
                Ok(bytes)
            },
        )?;
        self.tell_plan(planner.into_inner().finish()?)
    }

    /// Calls `release` for each file that is not pinned, in parallel for several files. Reports the
    /// number of bytes that each call returns.
    fn release_each(
        &mut self,
        paths: &[Vec<u8>],
        keep_bytes: u64,
        what: &str,
        planned: impl Fn(&PlannedReads),
        release: impl Fn(&Arc<Tier>, &Waiting, u64, &Prefetched) -> Result<u64> + Sync,
    ) -> Result<()> {
        let tier = self.tier;
        tier.check_copy_targets()?;
        let kept = keep_bytes.div_ceil(BLOCK_BYTES);
        let request = self.request;
        let release_one = |file: &Waiting, prefetched: &Prefetched| {
            request.cancellation.check().or(Err(Error::Interrupted))?;
            // The file may have been pinned after the walk found it.
            if tier.is_pinned(&file.attr) { Ok(0) } else { release(tier, file, kept, prefetched) }
        };
        let version = |file: &Waiting| tier.releasable_version(&file.attr);
        let release_all = |waiting: &mut Vec<Waiting>, tell: &mut EventSink<'_>| {
            let released = tier.release_several(waiting, request, version, &planned, release_one);
            waiting.drain(..).zip(released).try_for_each(|(file, released)| match released {
                Ok(0) => Ok(()),
                Ok(bytes) => report_done(tell, what, &file.path, bytes),
                Err(error) => report_problem(tell, &error),
            })
        };
        let (mut waiting, mut batch) = (Vec::new(), ReleaseBatch::default());
        let walked = self.each_file(paths, &mut |place, tell| {
            if tier.is_pinned(&place.found.attr) {
                return report_pinned(paths, place, tell);
            }
            let (ino, path) = (place.found.ino(), place.path.to_vec());
            let used = tier.enter_and_hold(ino).map_err(Error::below(&path))?;
            let attr = place.found.attr.clone();
            let is_complete = batch.add(attr.size);
            waiting.push(Waiting { used, path, attr });
            if is_complete { release_all(&mut waiting, tell) } else { Ok(()) }
        });
        if !matches!(walked, Err(Error::Interrupted)) {
            release_all(&mut waiting, self.tell)?;
        }
        walked
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
