//! Telling the kernel what changed behind its back, from a thread of its own.
//!
//! The kernel may hold locks for a notice that a request in flight holds too, so no request may
//! wait for one to be delivered.

use std::ffi::{OsStr, OsString};
use std::sync::mpsc::{Receiver, Sender, channel};

use fslab_vfs::{Ino, KernelCache};
use fuser::{INodeNo, Notifier};

/// What to tell the kernel.
enum Notice {
    Inode(Ino),
    Entry(Ino, OsString),
    /// Have the inode's dirty pages written back, then go on.
    WriteBack(Ino, Box<dyn FnOnce() + Send>),
}

/// The file systems' end of the queue.
///
/// It has no bound of its own: a request that waited here for room could be the one that the
/// kernel needs answered before it takes the next notice. What it can hold is bounded by the
/// changes that file systems make behind the mount.
#[derive(Clone, Debug)]
pub(crate) struct Notices {
    queue: Sender<Notice>,
}

/// The kernel's end of the queue.
#[derive(Debug)]
pub(crate) struct Pending(Receiver<Notice>);

/// A new queue.
pub(crate) fn queue() -> (Notices, Pending) {
    let (sender, receiver) = channel();
    (Notices { queue: sender }, Pending(receiver))
}

impl Notices {
    /// Has the kernel write an inode's dirty pages back, which arrives as ordinary requests, and
    /// then runs `next`, on the thread of the notices.
    pub fn write_back_then(&self, ino: Ino, next: impl FnOnce() + Send + 'static) {
        self.send(Notice::WriteBack(ino, Box::new(next)));
    }

    fn send(&self, notice: Notice) {
        if self.queue.send(notice).is_err() {
            tracing::debug!("a notice came after the end of the mount");
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
                if let Err(error) = deliver(&notifier, notice) {
                    tracing::warn!(%error, "the kernel refused a notice");
                }
            }
        })?;
        Ok(())
    }
}

fn deliver(notifier: &Notifier, notice: Notice) -> std::io::Result<()> {
    match notice {
        Notice::Inode(ino) => notifier.inval_inode(INodeNo(ino.0), 0, 0),
        Notice::Entry(parent, name) => notifier.inval_entry(INodeNo(parent.0), &name),
        Notice::WriteBack(ino, next) => {
            // Dropping the pages of an inode makes the kernel write the dirty ones first.
            let written = notifier.inval_inode(INodeNo(ino.0), 0, 0);
            next();
            written
        }
    }
}
