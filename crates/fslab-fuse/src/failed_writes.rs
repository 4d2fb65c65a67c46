//! Records inodes with a failed write-back, if the kernel caches writes (`-o writeback`).
//!
//! In this mode, the kernel accepts writes without sending a request. It reports a failed
//! write-back at the next fsync or close, but keeps accepting writes. Before a write, the kernel
//! sends only a request for the attributes through the writer's descriptor, and only if its cached
//! attributes have expired.
//!
//! Therefore the kernel is never allowed to cache the attributes of an inode with a failed
//! write-back. If the descriptor is write-only, the request for the attributes fails with the error
//! of the write-back, and so does the write. If the descriptor can also read, the request can't be
//! refused, because the kernel sends the same request before a read.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use fslab_vfs::{Errno, Handle, Ino, OpenMode};
use parking_lot::Mutex;

use crate::notifications;
use crate::transport::Transport;

/// Bytes that must be freed in the lower file system before writes to a failed inode are accepted
/// again. This is about the amount that the kernel writes back at once.
const FREED_BYTES_MIN: u64 = 1 << 20;

/// Inodes with a failed write-back, and the state needed to refuse writes to them.
#[derive(Debug)]
pub(crate) struct FailedWrites {
    transport: Arc<dyn Transport>,
    failures: Mutex<HashMap<Ino, Failure>>,
    only_writing: Mutex<HashSet<(Ino, Handle)>>,
}

#[derive(Clone, Copy, Debug)]
struct Failure {
    errno: Errno,
    /// Number of free bytes in the lower file system when the write-back failed; `None` if unknown.
    free_bytes: Option<u64>,
}

impl FailedWrites {
    pub fn new(transport: Arc<dyn Transport>) -> Self {
        Self { transport, failures: Mutex::default(), only_writing: Mutex::default() }
    }

    /// Records a descriptor if it is write-only.
    pub fn note_opened(&self, ino: Ino, handle: Handle, mode: OpenMode) {
        if mode.contains(OpenMode::WRITE_ONLY) {
            self.only_writing.lock().insert((ino, handle));
        }
    }

    /// Records that a descriptor was closed.
    pub fn note_closed(&self, ino: Ino, handle: Handle) {
        self.only_writing.lock().remove(&(ino, handle));
    }

    /// Whether a write-back of an inode failed and the inode has not recovered.
    pub fn has_failed(&self, ino: Ino) -> bool {
        self.failures.lock().contains_key(&ino)
    }

    /// Records a failed write-back, and makes the kernel send a request before the next write.
    pub fn note_failure(&self, ino: Ino, errno: Errno, free_bytes: Option<u64>) {
        let is_first = self.failures.lock().insert(ino, Failure { errno, free_bytes }).is_none();
        if is_first {
            tracing::warn!(
                inode = ino.0,
                error = %errno,
                "writes that the kernel had cached could not be written back; fsync or close \
                 reports the error. Writes through write-only descriptors fail until space is \
                 freed, an fsync succeeds, or the file is truncated"
            );
        }
        self.forget_attributes(ino);
    }

    /// If a write-back of the inode failed, invalidates the kernel's cached attributes, including
    /// those in replies that are being sent. Returns whether a write-back failed.
    pub fn is_asked_each_time(&self, ino: Ino) -> bool {
        let has_failed = self.has_failed(ino);
        if has_failed {
            self.forget_attributes(ino);
        }
        has_failed
    }

    fn forget_attributes(&self, ino: Ino) {
        if let Err(error) = notifications::invalidate_attributes(&*self.transport, ino) {
            tracing::warn!(
                %error,
                "can't invalidate the cached attributes of a file; more of its cached writes may \
                 be lost"
            );
        }
    }

    /// Records that an inode is writable again or was removed.
    pub fn note_recovery(&self, ino: Ino) {
        self.failures.lock().remove(&ino);
    }

    /// Checks whether a write through a descriptor can be accepted.
    ///
    /// # Errors
    /// The error of the failed write-back, if the descriptor is write-only and no space was freed.
    pub fn expect_writable(
        &self,
        ino: Ino,
        handle: Handle,
        free_bytes: impl FnOnce() -> Option<u64>,
    ) -> Result<(), Errno> {
        let failure = self.failures.lock().get(&ino).copied();
        let Some(failure) = failure.filter(|_| self.only_writing.lock().contains(&(ino, handle)))
        else {
            return Ok(());
        };
        let wanted = failure.free_bytes.map(|before| before.saturating_add(FREED_BYTES_MIN));
        if wanted.zip(free_bytes()).is_some_and(|(wanted, free)| free >= wanted) {
            self.note_recovery(ino);
            return Ok(());
        }
        Err(failure.errno)
    }
}
