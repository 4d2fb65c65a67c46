//! Notifies the kernel of changes that were not made through the mount, from a separate thread.
//!
//! To handle a notification, the kernel may need locks that an in-flight request holds. So no
//! request may wait until a notification is delivered.

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

/// A notification for the kernel.
enum Notice {
    Inode(Ino),
    Entry(Ino, OsString),
}

/// The sending end of the queue, for file systems.
///
/// The queue is unbounded, because no request may wait here for room: the kernel may wait for the
/// reply to that request before it accepts the next notification. Only changes that file systems
/// make without a request from the kernel add to the queue, so it remains short.
#[derive(Clone, Debug)]
pub(crate) struct Notices {
    queue: Sender<Notice>,
}

/// The receiving end of the queue, for the thread that notifies the kernel.
#[derive(Debug)]
pub(crate) struct Pending(Receiver<Notice>);

pub(crate) fn queue() -> (Notices, Pending) {
    let (sender, receiver) = channel();
    (Notices { queue: sender }, Pending(receiver))
}

impl Notices {
    fn send(&self, notice: Notice) {
        if self.queue.send(notice).is_err() {
            tracing::debug!("a cache invalidation was requested after the end of the mount");
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
    /// Starts the thread that delivers the notifications; it exits when the file system is dropped.
    /// With `expire_only`, names are looked up again at their next use. Otherwise they are removed
    /// from the cache together with mounts on them.
    pub fn deliver_through(
        self,
        transport: Arc<dyn Transport>,
        expire_only: bool,
    ) -> std::io::Result<()> {
        let entry_flags = if expire_only { EXPIRE_ONLY } else { 0 };
        std::thread::Builder::new().name("fslab-notices".to_owned()).spawn(move || {
            for notice in self.0 {
                if let Err(error) = deliver(&*transport, notice, entry_flags) {
                    tracing::warn!(
                        %error,
                        "the kernel refused to invalidate a cached inode or name"
                    );
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

/// Ignores `ENOENT`, because the kernel may have forgotten the inode or name.
fn unless_forgotten(sent: Result<(), Errno>) -> Result<(), Errno> {
    if sent == Err(Errno::NOENT) { Ok(()) } else { sent }
}

/// Makes the kernel write back the dirty pages of a range of an inode and drop all pages of the
/// range. The write-back arrives as ordinary requests. This function waits for readers of these
/// pages, so it must not be called by a thread that serves requests.
///
/// # Errors
/// Errors of the kernel; an inode unknown to it is not an error.
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

/// Invalidates cached attributes, and drops the cached pages of a range. A length of 0 selects all
/// pages to the end of the file, and a negative offset selects none.
fn invalidate_inode(transport: &dyn Transport, ino: Ino, off: i64, len: i64) -> Result<(), Errno> {
    let notice = NotifyInvalInode { ino: ino.0, off, len };
    transport.notify(NOTIFY_INVAL_INODE, &[notice.as_bytes()])
}

/// Makes the kernel request the attributes of an inode at their next use. This waits for no page
/// and no request, so it may be called while a request is served.
///
/// # Errors
/// Errors of the kernel; an inode unknown to it is not an error.
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
