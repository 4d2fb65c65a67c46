//! Syncs lower files, and handles failed syncs.
//!
//! The kernel reports lost writes only once; later syncs report success. Blocks that the xattr
//! records as offline are safe, because archives still contain them. So after a failed sync, no
//! further blocks are recorded as resident until the file's last user has left and the file is
//! examined again. The kernel's cached pages are dropped, because a recall would treat lost bytes
//! in them as edits.

use std::sync::atomic::Ordering;

use fslab_vfs::{Errno, Error, FileSystem, Handle, Ino, Request, Result};

use crate::engine::Tier;
use crate::engine::files::{FileState, TieredFile};
use crate::stored::format::blocks_of;

impl Tier {
    /// Makes bytes and xattrs of the lower file durable.
    ///
    /// # Errors
    /// Errors of the lower file; `EIO` if an earlier sync failed.
    pub(in crate::engine) fn sync_below(&self, state: &mut FileState) -> Result<()> {
        if state.sync_failed {
            return Err(Errno::IO.into());
        }
        let synced = state.own(self)?.sync();
        self.believe(state, synced)
    }

    /// Makes everything in the lower tree durable. After a failure, the files of a bundle are
    /// synced one by one until the next start. The kernel reports a failed write to only one
    /// `syncfs`, but reports it again when the file itself is synced.
    ///
    /// # Errors
    /// Errors of the lower file system.
    pub(crate) fn sync_tree(&self) -> Result<()> {
        // The kernel reports a failure to one of several callers. Each later caller sees the flag.
        let _turn = self.outbound.tree_sync.lock();
        let synced = self.lower.syncfs(&self.request(), Ino::ROOT);
        synced.inspect_err(|error| {
            if error.errno() != Errno::INTR {
                tracing::warn!(%error, "can't sync the lower file system");
                self.outbound.syncs_one_by_one.store(true, Ordering::SeqCst);
            }
        })
    }

    /// Handles the result of a sync. An interrupted sync is not treated as failed.
    fn believe(&self, state: &mut FileState, synced: Result<()>) -> Result<()> {
        synced.inspect_err(|error| {
            if error.errno() != Errno::INTR {
                self.forget_unsynced(state, error);
            }
        })
    }

    /// Records that a sync failed. Blocks that were recalled since the xattr was written are
    /// recalled again when they are read, because the kernel may have dropped them.
    fn forget_unsynced(&self, state: &mut FileState, error: &Error) {
        let name = self.name(state.ino);
        tracing::error!(%error, "{name}: could not be made durable: close the file and check its \
            content");
        state.sync_failed = true;
        if let Err(error) = state.own(self).and_then(|own| own.drop_pages()) {
            tracing::error!(
                %error,
                "{name}: reads may return data that is not on the disk, until the file is closed"
            );
        }
        // If the size is unknown, all recorded blocks are treated as offline; such a file can't be
        // read anyway.
        let size = self.attr_below(state.ino, None).map_or(u64::MAX, |attr| attr.size);
        let Some(known) = state.known_mut() else { return };
        let mut recalled = known.recorded.offline.clone();
        // The incomplete last block is not cut off, because it is recalled before the file grows.
        recalled.cut(blocks_of(size));
        recalled.iter().for_each(|run| known.offline.insert(run));
    }

    /// Flushes a file when a program closes a descriptor.
    ///
    /// # Errors
    /// Errors of the lower file.
    pub fn flush(&self, file: &TieredFile, request: &Request, handle: Handle) -> Result<()> {
        let flushed = self.lower.flush(request, file.ino(), handle);
        flushed.inspect_err(|error| {
            // Other errors do not concern written bytes.
            if matches!(error.errno(), Errno::IO | Errno::NOSPC | Errno::DQUOT) {
                let mut state = file.lock();
                if state.known().is_some() {
                    self.forget_unsynced(&mut state, error);
                }
            }
        })
    }

    /// Makes a file and its residency durable.
    ///
    /// # Errors
    /// Errors of the lower file.
    pub fn fsync(
        &self,
        file: &TieredFile,
        request: &Request,
        handle: Handle,
        data_only: bool,
    ) -> Result<()> {
        let mut state = self.state(file)?;
        if state.known().is_none() {
            // The lock is released, because a file without residency has no state to protect.
            // Others can use the file during the sync.
            drop(state);
            return self.lower.fsync(request, file.ino(), handle, data_only);
        }
        if state.sync_failed {
            return Err(Errno::IO.into());
        }
        let unsynced = state.known().is_some_and(|known| known.unsynced);
        let synced = self.lower.fsync(request, file.ino(), handle, data_only && !unsynced);
        self.believe(&mut state, synced)?;
        if let Some(known) = state.known_mut() {
            known.unsynced = false;
        }
        Ok(())
    }
}
