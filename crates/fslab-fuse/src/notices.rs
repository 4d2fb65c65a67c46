//! Telling the kernel what changed behind its back, from a thread of its own.
//!
//! The kernel may hold locks for a notice that a request in flight holds too, so no request may
//! wait for one to be delivered.

use std::ffi::{OsStr, OsString};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use fslab_vfs::{Errno, Ino, KernelCache};
use zerocopy::IntoBytes;

use crate::channel::Channel;
use crate::protocol::flags::EXPIRE_ONLY;
use crate::protocol::reply::{
    NOTIFY_INVAL_ENTRY, NOTIFY_INVAL_INODE, NotifyInvalEntry, NotifyInvalInode,
};

/// What to tell the kernel.
enum Notice {
    Inode(Ino),
    Entry(Ino, OsString),
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
    /// Starts the thread that delivers; it ends when the file system is dropped. With
    /// `expire_only`, names are asked for again at their next use instead of being cut off with
    /// whatever is mounted on them.
    pub fn deliver_through(
        self,
        channel: Arc<dyn Channel>,
        expire_only: bool,
    ) -> std::io::Result<()> {
        let entry_flags = if expire_only { EXPIRE_ONLY } else { 0 };
        std::thread::Builder::new().name("fslab-notices".to_owned()).spawn(move || {
            for notice in self.0 {
                if let Err(error) = deliver(&*channel, notice, entry_flags) {
                    tracing::warn!(%error, "the kernel refused a notice");
                }
            }
        })?;
        Ok(())
    }
}

fn deliver(channel: &dyn Channel, notice: Notice, entry_flags: u32) -> Result<(), Errno> {
    let sent = match notice {
        Notice::Inode(ino) => invalidate_inode(channel, ino, 0),
        Notice::Entry(parent, name) => invalidate_entry(channel, parent, &name, entry_flags),
    };
    unless_forgotten(sent)
}

/// The kernel may have forgotten what a notice is about.
fn unless_forgotten(sent: Result<(), Errno>) -> Result<(), Errno> {
    if sent == Err(Errno::NOENT) { Ok(()) } else { sent }
}

/// Has the kernel write an inode's dirty pages back from an offset on, which arrives as ordinary
/// requests, and then runs `next`. By a thread of its own: it waits for whoever reads one of these
/// pages, and nobody else shall.
///
/// # Errors
/// There are no more threads to be had; `next` is not run.
pub(crate) fn write_back_then(
    channel: Arc<dyn Channel>,
    ino: Ino,
    offset: u64,
    next: impl FnOnce() + Send + 'static,
) -> std::io::Result<()> {
    let work = move || {
        // Dropping the pages of an inode makes the kernel write the dirty ones first.
        if let Err(error) = unless_forgotten(invalidate_inode(&*channel, ino, offset)) {
            tracing::warn!(%error, "the kernel did not write back");
        }
        next();
    };
    std::thread::Builder::new().name("fslab-back".to_owned()).spawn(work).map(drop)
}

/// Drops the pages from an offset on.
fn invalidate_inode(channel: &dyn Channel, ino: Ino, offset: u64) -> Result<(), Errno> {
    let off = i64::try_from(offset).unwrap_or(i64::MAX);
    let notice = NotifyInvalInode { ino: ino.0, off, len: 0 };
    channel.notify(NOTIFY_INVAL_INODE, &[notice.as_bytes()])
}

fn invalidate_entry(
    channel: &dyn Channel,
    parent: Ino,
    name: &OsStr,
    flags: u32,
) -> Result<(), Errno> {
    let namelen = u32::try_from(name.len()).map_err(|_long| Errno::NAMETOOLONG)?;
    let notice = NotifyInvalEntry { parent: parent.0, namelen, flags };
    channel.notify(NOTIFY_INVAL_ENTRY, &[notice.as_bytes(), name.as_encoded_bytes(), &[0]])
}
