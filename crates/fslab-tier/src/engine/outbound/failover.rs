//! Fail-over between archives. Copies are written to the first archives in the order of attachment.
//! A full, read-only or broken archive is skipped for a while, and the next one is used instead.
//!
//! Archives that another tree writes to are treated as read-only: nothing is written to them or
//! deleted from them. Their copies are not counted, since the other tree decides how long they are
//! kept.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::archive::Archive;
use crate::engine::Tier;
use crate::error::{Error, Result};
use crate::id::Id;
use crate::stored::Version;

/// Back-off time of a failed archive. Meanwhile, the archive is used only if there are too few
/// others.
const REST: Duration = Duration::from_secs(10 * 60);

/// Failed archives, each with the end of its back-off in nanoseconds of the engine's clock.
#[derive(Default)]
pub(super) struct FailedArchives(Mutex<HashMap<Id, u64>>);

impl Tier {
    /// Returns the archives that this tree may write to.
    pub(in crate::engine) fn writable_archives(&self) -> Vec<Arc<dyn Archive>> {
        let mut archives = self.archives();
        archives.retain(|archive| archive.refusal().is_none());
        archives
    }

    /// Returns the writable archives that accept copies.
    pub(in crate::engine) fn active_archives(&self) -> Vec<Arc<dyn Archive>> {
        let mut archives = self.writable_archives();
        archives.retain(|archive| self.usage_of(archive.id()).is_active());
        archives
    }

    /// Returns the writable archives that contain a version.
    pub(in crate::engine) fn writable_holders(&self, version: &Version) -> Vec<Arc<dyn Archive>> {
        let mut holders = self.holders(version);
        holders.retain(|archive| archive.refusal().is_none());
        holders
    }

    /// Fails if copies can't be made because another tree writes to archives.
    pub(crate) fn check_copy_targets(&self) -> Result<()> {
        let are_enough = self.active_archives().len() >= self.settings.copies;
        // An unavailable archive may turn out to be writable once it is available again.
        if are_enough || !self.unavailable_archives().is_empty() {
            Ok(())
        } else {
            self.check_all_writable()
        }
    }

    /// Fails if another tree writes to one of the available archives.
    pub(in crate::engine) fn check_all_writable(&self) -> Result<()> {
        self.archives().iter().try_for_each(check_writable)
    }

    /// Calls `copy` with the archives that are to receive copies. If an archive fails, calls `copy`
    /// again with other archives, as long as enough are left. Before `copy` returns an error, it
    /// must delete the partial copies.
    pub(in crate::engine) fn with_copy_targets<T>(
        &self,
        mut copy: impl FnMut(&[Arc<dyn Archive>]) -> Result<T>,
    ) -> Result<T> {
        // All archives that failed during this call are recorded here, because a slow failure may
        // take longer than the back-off of an earlier one.
        let mut failed = HashSet::new();
        loop {
            let copy_targets = self.copy_targets(&failed)?;
            let Some(_uploads) = self.begin_uploads(&copy_targets) else { continue };
            let error = match copy(&copy_targets) {
                Err(error) => error,
                done => return done,
            };
            let Some(one) = failed_target(&error, &copy_targets) else { return Err(error) };
            // An unavailable archive needs no back-off, because it is not used before it is
            // available again.
            if !error.is_unavailable() {
                self.back_off(one);
            }
            failed.insert(one);
            if !self.are_enough_left(&failed) {
                return Err(error);
            }
            tracing::warn!("an archive failed; the copy is written to another archive: {error}");
        }
    }

    /// Registers uploads; `None` if an archive was retired or detached meanwhile.
    fn begin_uploads(&self, copy_targets: &[Arc<dyn Archive>]) -> Option<Uploads<'_>> {
        let archives: Vec<Id> = copy_targets.iter().map(|archive| archive.id()).collect();
        self.outbound.uploads.lock().extend(&archives);
        let begun = Uploads { tier: self, archives };
        begun.archives.iter().all(|archive| self.usage_of(*archive).is_active()).then_some(begun)
    }

    pub(in crate::engine) fn copy_targets(
        &self,
        failed: &HashSet<Id>,
    ) -> Result<Vec<Arc<dyn Archive>>> {
        self.check_copy_targets()?;
        let (mut archives, wanted) = (self.active_archives(), self.settings.copies);
        if archives.len() < wanted {
            let unavailable = self.unavailable_archives();
            return Err(Error::TooFewArchives { wanted, found: archives.len(), unavailable });
        }
        // The sort is stable, so archives of equal rank keep their order.
        archives.sort_by_key(|archive| {
            (failed.contains(&archive.id()), self.is_backing_off(&**archive))
        });
        archives.truncate(wanted);
        Ok(archives)
    }

    fn back_off(&self, archive: Id) {
        let until_ns = self.around.clock.now_ns().saturating_add(REST.as_nanos() as u64);
        self.outbound.failed.0.lock().insert(archive, until_ns);
    }

    fn are_enough_left(&self, failed: &HashSet<Id>) -> bool {
        let archives = self.active_archives();
        let is_awake = |archive: &&Arc<dyn Archive>| {
            !failed.contains(&archive.id()) && !self.is_backing_off(&***archive)
        };
        archives.iter().filter(is_awake).count() >= self.settings.copies
    }

    fn is_backing_off(&self, archive: &dyn Archive) -> bool {
        let now_ns = self.around.clock.now_ns();
        self.outbound.failed.0.lock().get(&archive.id()).is_some_and(|until_ns| now_ns < *until_ns)
    }
}

/// Uploads in progress; they end when this is dropped.
struct Uploads<'a> {
    tier: &'a Tier,
    archives: Vec<Id>,
}

impl Drop for Uploads<'_> {
    fn drop(&mut self) {
        let mut uploads = self.tier.outbound.uploads.lock();
        for ended in &self.archives {
            if let Some(index) = uploads.iter().position(|archive| archive == ended) {
                uploads.swap_remove(index);
            }
        }
    }
}

/// Fails if another tree writes to an archive.
pub(in crate::engine) fn check_writable(archive: &Arc<dyn Archive>) -> Result<()> {
    let Some(why) = archive.refusal() else { return Ok(()) };
    Err(Error::OthersArchive { archive: archive.label().to_owned(), why })
}

/// Returns the target archive whose write or read-back failed with this error.
fn failed_target(error: &Error, copy_targets: &[Arc<dyn Archive>]) -> Option<Id> {
    let (Error::Archive { archive, .. } | Error::Damaged { archive, .. }) = error else {
        return None;
    };
    copy_targets.iter().find(|taker| taker.label() == archive).map(|taker| taker.id())
}
