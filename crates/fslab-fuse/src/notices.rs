//! Telling the kernel what changed behind its back, from a thread of its own.
//!
//! The kernel may hold locks for a notice that a request in flight holds too, so no request may
//! wait for one to be delivered.

use std::ffi::{OsStr, OsString};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use fslab_vfs::{Ino, KernelCache};
use fuser::{INodeNo, Notifier};

/// Notices that may wait. Beyond that, senders wait too: a lost invalidation is wrong bytes.
const QUEUE_LENGTH_MAX: usize = 4096;

#[derive(Debug)]
enum Notice {
    Inode(Ino),
    Entry(Ino, OsString),
}

/// The file systems' end of the queue.
#[derive(Debug)]
pub(crate) struct Notices {
    queue: SyncSender<Notice>,
}

/// The kernel's end of the queue.
#[derive(Debug)]
pub(crate) struct Pending(Receiver<Notice>);

/// A new queue.
pub(crate) fn queue() -> (Notices, Pending) {
    let (sender, receiver) = sync_channel(QUEUE_LENGTH_MAX);
    (Notices { queue: sender }, Pending(receiver))
}

impl Notices {
    fn send(&self, notice: Notice) {
        match self.queue.try_send(notice) {
            Ok(()) => {}
            Err(TrySendError::Full(notice)) => {
                if self.queue.send(notice).is_err() {
                    tracing::debug!("a notice came after the end of the mount");
                }
            }
            Err(TrySendError::Disconnected(_)) => {
                tracing::debug!("a notice came after the end of the mount");
            }
        }
    }
}

impl KernelCache for Notices {
    fn invalidate_inode(&self, ino: Ino) {
        self.send(Notice::Inode(ino));
    }

    fn invalidate_entry(&self, parent: Ino, name: &OsStr) {
        self.send(Notice::Entry(parent, name.to_owned()));
    }
}

impl Pending {
    /// Starts the thread that delivers; it ends when the file system is dropped.
    pub fn deliver_through(self, notifier: Notifier) -> std::io::Result<()> {
        std::thread::Builder::new().name("fslab-notices".to_owned()).spawn(move || {
            for notice in self.0 {
                if let Err(error) = deliver(&notifier, &notice) {
                    tracing::warn!(%error, ?notice, "the kernel refused a notice");
                }
            }
        })?;
        Ok(())
    }
}

fn deliver(notifier: &Notifier, notice: &Notice) -> std::io::Result<()> {
    match notice {
        Notice::Inode(ino) => notifier.inval_inode(INodeNo(ino.0), 0, 0),
        Notice::Entry(parent, name) => notifier.inval_entry(INodeNo(parent.0), name),
    }
}
