//! Syncing the file below, and what a failed sync leaves.
//!
//! The kernel reports lost writes once, forgets them, and then reports success. Blocks that the
//! xattr names as offline are in archives, so nothing of them is lost while they are not recorded
//! as resident. So after a failed sync no further block of the file becomes resident until its last
//! user is gone: then the file is examined anew. The lost bytes that the kernel still shows are
//! dropped, or a recall would take them for edits.

use fslab_vfs::{Errno, Error, FileSystem, Handle, Request, Result};

use crate::engine::Tier;
use crate::engine::files::{FileState, TieredFile};
use crate::stored::format::blocks_of;

impl Tier {
    /// Makes bytes and xattrs of the file below durable.
    ///
    /// # Errors
    /// Errors of the file below; `EIO` behind a sync that failed.
    pub(in crate::engine) fn sync_below(&self, state: &mut FileState) -> Result<()> {
        if state.sync_failed {
            return Err(Errno::IO.into());
        }
        let synced = state.own(self)?.sync();
        self.believe(state, synced)
    }

    /// What was answered to a sync; one that was interrupted says nothing.
    fn believe(&self, state: &mut FileState, synced: Result<()>) -> Result<()> {
        synced.inspect_err(|error| {
            if error.errno() != Errno::INTR {
                self.forget_unsynced(state, error);
            }
        })
    }

    /// Notes that a sync failed. Blocks that were recalled since the xattr was written are recalled
    /// again for whoever reads them: the kernel may have dropped them.
    fn forget_unsynced(&self, state: &mut FileState, error: &Error) {
        let name = self.name(state.ino);
        tracing::error!(%error, "{name}: could not be made durable: close it and look at it again");
        state.sync_failed = true;
        if let Err(error) = state.own(self).and_then(|own| own.drop_pages()) {
            tracing::error!(%error, "{name}: may show bytes that are lost, until it is closed");
        }
        // If that is unknown, nothing can be read either.
        let size = self.attr_below(state.ino, None).map_or(u64::MAX, |attr| attr.size);
        let Some(known) = state.known_mut() else { return };
        let mut recalled = known.recorded.offline.clone();
        // A last block that was cut comes back before the file grows, as far as it goes now.
        recalled.cut(blocks_of(size));
        recalled.iter().for_each(|run| known.offline.insert(run));
    }

    /// What is done when a program closes a file.
    ///
    /// # Errors
    /// Errors of the file below.
    pub fn flush(&self, file: &TieredFile, request: &Request, handle: Handle) -> Result<()> {
        let flushed = self.lower.flush(request, file.ino(), handle);
        flushed.inspect_err(|error| {
            // Others say nothing of bytes.
            if matches!(error.errno(), Errno::IO | Errno::NOSPC | Errno::DQUOT) {
                let mut state = file.lock();
                if state.known().is_some() {
                    self.forget_unsynced(&mut state, error);
                }
            }
        })
    }

    /// Makes a file durable, and what is known of it.
    ///
    /// # Errors
    /// Errors of the file below.
    pub fn fsync(
        &self,
        file: &TieredFile,
        request: &Request,
        handle: Handle,
        data_only: bool,
    ) -> Result<()> {
        let mut state = self.state(file)?;
        if state.known().is_none() {
            // There is nothing to wait for the disk with: others go on with the file.
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
