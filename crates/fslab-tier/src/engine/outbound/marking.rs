//! Marking: records in the xattrs of files that they are archived.
//!
//! The bytes of a file are durable before its xattr refers to their archived version. The xattr is
//! durable before the catalogue treats the previous version as replaced. This order needs two syncs
//! of each file. For a bundle of many files, two syncs of the whole lower tree are faster.

use std::sync::atomic::Ordering;

use fslab_vfs::{Errno, FileSystem};
use parking_lot::MutexGuard;

use super::archiving::{Job, changed_meanwhile, removed_meanwhile};
use super::bundling::SHARED_MIN;
use crate::catalogue::ObjectRow;
use crate::engine::Tier;
use crate::engine::files::residency_xattr::PIECES_MAX;
use crate::engine::files::{FileState, KnownResidency};
use crate::error::{Error, Result};
use crate::lower::is_missing;
use crate::parallel::in_shares;
use crate::stored::Residency;

impl Tier {
    /// Durably records in files' xattrs that they are archived. Returns the result of each file.
    pub(super) fn mark_all(&self, archived: &[(&Job, &ObjectRow)]) -> Vec<Result<()>> {
        let are_together =
            archived.len() >= self.settings.synced_together && self.lower.syncs_whole_tree();
        // If a sync of the tree fails, a sync of each file shows which files are affected.
        if !are_together || !self.syncs_together() {
            return archived.iter().map(|(job, row)| self.mark(job, row)).collect();
        }
        let write = |(job, row): &(&Job, &ObjectRow)| self.write_mark_unsynced(job, row);
        let written = in_shares(&mut archived.to_vec(), SHARED_MIN, |share| {
            share.iter().map(write).collect::<Vec<Result<()>>>()
        });
        let written: Vec<Result<()>> = written.into_iter().flatten().collect();
        if self.syncs_together() {
            return written;
        }
        let sync = |((job, _), written): (&(&Job, &ObjectRow), Result<()>)| {
            written.and_then(|()| self.sync_mark(job))
        };
        archived.iter().zip(written).map(sync).collect()
    }

    /// Syncs the tree. Returns whether this succeeded, and no sync of the tree has failed before.
    fn syncs_together(&self) -> bool {
        let has_failed = || self.outbound.syncs_one_by_one.load(Ordering::SeqCst);
        // A sync for another bundle may fail during this one.
        !has_failed() && self.sync_tree().is_ok() && !has_failed()
    }

    /// Durably records in a file's xattr that it is archived.
    pub(super) fn mark(&self, job: &Job, row: &ObjectRow) -> Result<()> {
        let mut state = self.unchanged(job)?;
        self.check_open()?;
        self.sync_below(&mut state).map_err(Error::below(&job.path))?;
        self.write_archived(&mut state, job, row)?;
        let synced = self.sync_below(&mut state);
        state.close_unused();
        synced.map_err(Error::below(&job.path))
    }

    /// Writes the xattr of a file after a sync of the tree. The caller makes the xattr durable. The
    /// bytes of an unchanged file are durable since that sync, except blocks that were recalled
    /// later.
    fn write_mark_unsynced(&self, job: &Job, row: &ObjectRow) -> Result<()> {
        let below = || Error::below(&job.path);
        let mut state = self.unchanged(job)?;
        self.check_open()?;
        if state.sync_failed {
            return Err(below()(Errno::IO.into()));
        }
        if !state.is_resident() {
            self.sync_below(&mut state).map_err(below())?;
            state.close_unused();
        }
        self.write_archived(&mut state, job, row)
    }

    fn sync_mark(&self, job: &Job) -> Result<()> {
        let below = || Error::below(&job.path);
        let mut state = self.state(job.file()).map_err(below())?;
        let synced = self.sync_below(&mut state);
        state.close_unused();
        synced.map_err(below())
    }

    /// Writes the xattr of an archived file. The caller makes it durable.
    fn write_archived(&self, state: &mut FileState, job: &Job, row: &ObjectRow) -> Result<()> {
        // The new version contains all bytes. So resident blocks between two runs may be recorded
        // as offline, which joins the runs until they fit into the xattr.
        let offline = state.known().map(|known| known.offline.joined(PIECES_MAX));
        let recorded = state.recorded();
        let residency = Residency {
            tier: self.settings.tier,
            file: row.file,
            inode: row.inode,
            changed: false,
            moving: false,
            poisoned: recorded.is_some_and(|recorded| recorded.poisoned),
            touched_seconds: recorded.map_or(0, |recorded| recorded.touched_seconds),
            version: row.version.clone(),
            offline: offline.unwrap_or_default(),
        };
        self.write_residency(state.ino, &residency).map_err(Error::below(&job.path))?;
        let (offline, recorded) = (residency.offline.clone(), residency);
        state.set_known(KnownResidency { recorded, offline, unsynced: true, is_rewritten: false });
        Ok(())
    }

    /// Locks the state of a file; fails if it was changed or removed since the job began. While the
    /// state is locked, the file's last name can't be removed through the mount.
    pub(in crate::engine) fn unchanged<'a>(
        &self,
        job: &'a Job,
    ) -> Result<MutexGuard<'a, FileState>> {
        let below = || Error::below(&job.path);
        let state = self.state(job.file()).map_err(below())?;
        let attr = match self.attr_below(job.file().ino(), None) {
            Err(error) if is_missing(&error) => return Err(removed_meanwhile(&job.path)),
            attr => attr.map_err(below())?,
        };
        if attr.links == 0 {
            return Err(removed_meanwhile(&job.path));
        }
        let is_same = (attr.size, attr.modified) == (job.attr.size, job.attr.modified);
        if state.changes != job.changes || state.writers > 0 || !is_same {
            return Err(changed_meanwhile(&job.path));
        }
        Ok(state)
    }
}
