//! Which inodes the kernel reads and writes without asking, and through which lower file.
//!
//! The kernel allows one backing file an inode at a time, and no mixture: while one opening of an
//! inode goes through a backing file, a second must name the same one, else it fails with EIO.
//! What goes through the daemon may wait in the kernel's cache to be written.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fslab_sys::credentials::lay_down_fsetid;
use fslab_vfs::{Errno, Handle, Ino, OpenMode};
use parking_lot::Mutex;
use rustix::fs::MemfdFlags;

use crate::backing_id_pin::BackingIdPin;
use crate::notifications;
use crate::transport::Transport;

/// How the openings of each open inode read and write.
#[derive(Debug)]
pub(crate) struct BackingFiles {
    transport: Arc<dyn Transport>,
    open: Mutex<HashMap<Ino, OpenInode>>,
    pin: Mutex<BackingIdPin>,
    /// Whether a file was refused, which is said once: above a deep stack, all are.
    was_refused: AtomicBool,
}

#[derive(Debug)]
struct OpenInode {
    openings: u64,
    /// `None`: through the daemon.
    backing: Option<i32>,
    /// Those through which the kernel writes pages back, for they may read what they write: others
    /// can't be mapped for writing, and with write-back there are no others.
    writers: Vec<Handle>,
}

/// Tries whether the kernel lets this process name backing files: it may offer passthrough and
/// yet lack the privilege for it.
pub(crate) fn try_passthrough(transport: &dyn Transport) -> rustix::io::Result<()> {
    let file = rustix::fs::memfd_create("fslab-passthrough", MemfdFlags::CLOEXEC)?;
    let id = transport.register_backing(file.as_fd())?;
    transport.release_backing(id)
}

impl BackingFiles {
    pub fn new(transport: Arc<dyn Transport>) -> Self {
        let pin = Mutex::new(BackingIdPin::new());
        Self { transport, open: Mutex::default(), pin, was_refused: AtomicBool::default() }
    }

    /// Counts an opening and answers the number of the backing file it must use, `None` for the
    /// daemon.
    ///
    /// Where there is no lower file to register or the kernel refuses it, this and all further
    /// openings go through the daemon until the inode is closed.
    pub fn open(
        &self,
        ino: Ino,
        handle: Handle,
        mode: OpenMode,
        lower: Option<&OwnedFd>,
    ) -> Option<i32> {
        let mut open = self.open.lock();
        let inode = open.entry(ino).or_insert_with(|| OpenInode {
            openings: 0,
            backing: lower.and_then(|lower| self.register(lower)),
            writers: Vec::new(),
        });
        inode.openings += 1;
        if mode.contains(OpenMode::READ_WRITE) {
            inode.writers.push(handle);
            if inode.writers.len() == 1 && inode.backing.is_some() {
                self.forget_attributes(ino);
            }
        }
        inode.backing
    }

    /// Counts an opening that an earlier daemon answered, with the backing file it named.
    pub fn restore(&self, ino: Ino, handle: Handle, mode: OpenMode, backing: Option<i32>) {
        let mut open = self.open.lock();
        let inode =
            open.entry(ino).or_insert(OpenInode { openings: 0, backing, writers: Vec::new() });
        inode.openings += 1;
        if mode.contains(OpenMode::READ_WRITE) {
            inode.writers.push(handle);
        }
    }

    /// Gives back the backing files of openings that were not answered, unless others use them.
    pub fn release_unused(&self, ids: &[i32]) {
        let open = self.open.lock();
        for id in ids.iter().filter(|id| !open.values().any(|inode| inode.backing == Some(**id))) {
            if let Err(error) = self.transport.release_backing(*id) {
                tracing::warn!(%error, id, "the kernel keeps a backing file");
            }
        }
    }

    /// From now on, stores through shared maps may change the times of a file, and the kernel does
    /// not notice: it must not believe what it knows of them.
    fn forget_attributes(&self, ino: Ino) {
        if let Err(error) = notifications::invalidate_attributes(&*self.transport, ino) {
            tracing::warn!(%error, "times of a file may be shown late");
        }
    }

    /// Whether the lower file of an inode may change without the kernel's or the daemon's notice:
    /// it is mapped for writing by passthrough, or may be.
    pub fn may_change_unseen(&self, ino: Ino) -> bool {
        let is_written_below =
            |inode: &OpenInode| inode.backing.is_some() && !inode.writers.is_empty();
        self.open.lock().get(&ino).is_some_and(is_written_below)
    }

    /// Whether the kernel may hold bytes of an inode that the file system has not seen. With
    /// and without write-back, for maps that are shared are always written later.
    pub fn may_be_dirty(&self, ino: Ino) -> bool {
        let is_written_later =
            |inode: &OpenInode| inode.backing.is_none() && !inode.writers.is_empty();
        self.open.lock().get(&ino).is_some_and(is_written_later)
    }

    fn register(&self, lower: &OwnedFd) -> Option<i32> {
        // The kernel writes with the privileges of who registers. Without CAP_FSETID the lower
        // file system clears set-id bits at every write, as FUSE leaves to this side.
        let registered =
            lay_down_fsetid().and_then(|()| self.transport.register_backing(lower.as_fd()));
        let number = registered.inspect_err(|errno| self.say_refused(*errno)).ok()?;
        self.pin.lock().follow(number, &*self.transport);
        Some(number)
    }

    fn say_refused(&self, error: Errno) {
        if self.was_refused.swap(true, Ordering::Relaxed) {
            tracing::debug!(%error, "no passthrough for one more file");
            return;
        }
        tracing::warn!(
            %error,
            "the kernel refuses passthrough for a file (ELOOP: too many mounts above each other); \
             such files are read and written through the daemon"
        );
    }

    /// Counts a close; the last one releases the backing file.
    pub fn close(&self, ino: Ino, handle: Handle) {
        let mut open = self.open.lock();
        let Some(inode) = open.get_mut(&ino) else { return };
        inode.openings -= 1;
        inode.writers.retain(|writer| *writer != handle);
        if inode.openings > 0 {
            return;
        }
        let backing = open.remove(&ino).and_then(|inode| inode.backing);
        let released = backing.map(|id| self.transport.release_backing(id));
        if let Some(Err(error)) = released {
            tracing::error!(%error, "the kernel keeps a backing file");
        }
    }
}
