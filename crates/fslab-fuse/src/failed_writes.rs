//! Inodes for which a write-back failed, where the kernel collects writes (`-o writeback`).
//!
//! The kernel takes writes without asking, reports a failed write-back at the next fsync or close,
//! and goes on taking writes. It asks for one thing before a write: the attributes, through the
//! descriptor of the writer, if it may not believe the ones it has. So an inode that failed has no
//! attributes to believe, and a descriptor that can only write is answered with the error. A
//! descriptor that can also read asks the same when it reads, so it can't be refused.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use fslab_vfs::{Errno, Handle, Ino, OpenMode};
use parking_lot::Mutex;

use crate::notifications;
use crate::transport::Transport;

/// Bytes that must have become free below before writes to a failed inode are taken again: about
/// what the kernel writes back at once.
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
    /// Bytes that were free below; `None` if that is not known.
    free_bytes: Option<u64>,
}

impl FailedWrites {
    pub fn new(transport: Arc<dyn Transport>) -> Self {
        Self { transport, failures: Mutex::default(), only_writing: Mutex::default() }
    }

    /// Notes a descriptor, if it can only write.
    pub fn note_opened(&self, ino: Ino, handle: Handle, mode: OpenMode) {
        if mode.contains(OpenMode::WRITE_ONLY) {
            self.only_writing.lock().insert((ino, handle));
        }
    }

    /// Notes that a descriptor was closed.
    pub fn note_closed(&self, ino: Ino, handle: Handle) {
        self.only_writing.lock().remove(&(ino, handle));
    }

    /// Whether a write-back of an inode failed and the inode has not recovered.
    pub fn has_failed(&self, ino: Ino) -> bool {
        self.failures.lock().contains_key(&ino)
    }

    /// Notes a failed write-back, and has the kernel ask before the next write.
    pub fn note_failure(&self, ino: Ino, errno: Errno, free_bytes: Option<u64>) {
        let is_first = self.failures.lock().insert(ino, Failure { errno, free_bytes }).is_none();
        if is_first {
            tracing::warn!(
                inode = ino.0,
                error = %errno,
                "bytes that write(2) took could not be written: fsync or close reports it, and \
                 write-only descriptors are refused until space is freed, an fsync succeeds, or \
                 the file is truncated"
            );
        }
        self.forget_attributes(ino);
    }

    /// Drops what the kernel knows of an inode that failed, and the attributes of answers that are
    /// on their way to it; whether the inode has failed.
    pub fn is_asked_each_time(&self, ino: Ino) -> bool {
        let has_failed = self.has_failed(ino);
        if has_failed {
            self.forget_attributes(ino);
        }
        has_failed
    }

    fn forget_attributes(&self, ino: Ino) {
        if let Err(error) = notifications::invalidate_attributes(&*self.transport, ino) {
            tracing::warn!(%error, "the kernel may take writes that can't be written");
        }
    }

    /// Notes that an inode can be written again, or is gone.
    pub fn note_recovery(&self, ino: Ino) {
        self.failures.lock().remove(&ino);
    }

    /// Decides about what may be a write through a descriptor.
    ///
    /// # Errors
    /// The error of the failed write-back, if the descriptor can only write and no space was freed.
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
