//! Telling the kernel what changed behind its back, from a thread of its own.
//!
//! The kernel may hold locks for a notice that a request in flight holds too, so no request may
//! wait for one to be delivered.

use std::ffi::{OsStr, OsString};
use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use fslab_vfs::{Errno, Ino, KernelCache};
use zerocopy::IntoBytes;

use crate::protocol::flags::EXPIRE_ONLY;
use crate::protocol::reply::{
    NOTIFY_INVAL_ENTRY, NOTIFY_INVAL_INODE, NotifyInvalEntry, NotifyInvalInode,
};
use crate::transport::Transport;

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
        transport: Arc<dyn Transport>,
        expire_only: bool,
    ) -> std::io::Result<()> {
        let entry_flags = if expire_only { EXPIRE_ONLY } else { 0 };
        std::thread::Builder::new().name("fslab-notices".to_owned()).spawn(move || {
            for notice in self.0 {
                if let Err(error) = deliver(&*transport, notice, entry_flags) {
                    tracing::warn!(%error, "the kernel refused a notice");
                }
            }
        })?;
        Ok(())
    }
}

fn deliver(transport: &dyn Transport, notice: Notice, entry_flags: u32) -> Result<(), Errno> {
    let sent = match notice {
        Notice::Inode(ino) => invalidate_inode(transport, ino, 0, 0),
        Notice::Entry(parent, name) => invalidate_entry(transport, parent, &name, entry_flags),
    };
    unless_forgotten(sent)
}

/// The kernel may have forgotten what a notice is about.
fn unless_forgotten(sent: Result<(), Errno>) -> Result<(), Errno> {
    if sent == Err(Errno::NOENT) { Ok(()) } else { sent }
}

/// Has the kernel write the dirty pages of a range of an inode back, which arrives as ordinary
/// requests, and drop all pages of the range. Waits for whoever reads one of these pages: for a
/// thread that serves no request.
///
/// # Errors
/// What the kernel answers; an inode that it does not know is none.
pub(crate) fn write_back(
    transport: &dyn Transport,
    ino: Ino,
    range: Range<u64>,
) -> Result<(), Errno> {
    let whole = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let Some(len) = range.end.checked_sub(range.start).filter(|len| *len > 0) else {
        return Ok(());
    };
    unless_forgotten(invalidate_inode(transport, ino, whole(range.start), whole(len)))
}

/// Drops pages; those of a length of 0 reach to the end, and those behind -1 are none.
fn invalidate_inode(transport: &dyn Transport, ino: Ino, off: i64, len: i64) -> Result<(), Errno> {
    let notice = NotifyInvalInode { ino: ino.0, off, len };
    transport.notify(NOTIFY_INVAL_INODE, &[notice.as_bytes()])
}

/// Has the kernel ask for the attributes of an inode when they are wanted next. Waits for no page
/// and no request, so that a request may wait for it.
///
/// # Errors
/// What the kernel answers; an inode that it does not know is none.
pub(crate) fn invalidate_attributes(transport: &dyn Transport, ino: Ino) -> Result<(), Errno> {
    unless_forgotten(invalidate_inode(transport, ino, -1, 0))
}

fn invalidate_entry(
    transport: &dyn Transport,
    parent: Ino,
    name: &OsStr,
    flags: u32,
) -> Result<(), Errno> {
    let namelen = u32::try_from(name.len()).map_err(|_long| Errno::NAMETOOLONG)?;
    let notice = NotifyInvalEntry { parent: parent.0, namelen, flags };
    transport.notify(NOTIFY_INVAL_ENTRY, &[notice.as_bytes(), name.as_encoded_bytes(), &[0]])
}
