//! Tracks the inodes that use passthrough: the kernel reads and writes a lower file, the backing
//! file, without requests to the daemon.
//!
//! The kernel allows one backing file per inode at a time. While one open of an inode uses a
//! backing file, every other open must use the same one, or it fails with EIO. Without passthrough,
//! data passes through the daemon, and written data may be dirty in the kernel's cache.

use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fslab_sys::credentials::drop_fsetid;
use fslab_vfs::{Errno, Handle, Ino, OpenMode};
use parking_lot::Mutex;
use rustix::fs::MemfdFlags;

use crate::backing_id_pin::BackingIdPin;
use crate::notifications;
use crate::transport::Transport;

/// The backing files of all open inodes.
#[derive(Debug)]
pub(crate) struct BackingFiles {
    transport: Arc<dyn Transport>,
    open: Mutex<HashMap<Ino, OpenInode>>,
    /// Closed inodes that may still be mapped for writing through passthrough. A mapping refers to
    /// the lower file, so it does not keep the file open here. The kernel forgets no mapped inode.
    mapped: Mutex<HashSet<Ino>>,
    pin: Mutex<BackingIdPin>,
    /// Whether the kernel has refused a backing file. This is logged only once, because the kernel
    /// refuses every file if too many file systems are stacked.
    was_refused: AtomicBool,
}

#[derive(Debug, Default)]
struct OpenInode {
    openings: u64,
    /// `None` if I/O passes through the daemon.
    backing: Option<i32>,
    /// Handles that are open for reading and writing. The kernel may write back pages through them,
    /// because only they allow writable mappings. In writeback mode, all writers have this mode.
    writers: Vec<Handle>,
    /// Whether the file was opened for reading and writing, so that it may be mapped for writing.
    is_mappable: bool,
    /// Handles opened with O_DIRECT, which bypass the kernel's cache.
    direct: Vec<Handle>,
    /// Number of opens so far without O_DIRECT, which may use the kernel's cache.
    cached_opens: u64,
    /// The value of `cached_opens` when all cached pages were last dropped. A drop is recorded here
    /// only if all open handles have O_DIRECT.
    cached_opens_at_drop: u64,
}

/// Whether the kernel's cache may contain pages of a file that were read from the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CachedPages {
    None,
    /// The file is open without O_DIRECT.
    OfOpen,
    /// The file was open without O_DIRECT, but no longer is. Contains the number of opens without
    /// O_DIRECT so far.
    OfClosed(u64),
}

impl OpenInode {
    fn count(&mut self, handle: Handle, mode: OpenMode) {
        self.openings += 1;
        if mode.contains(OpenMode::READ_WRITE) {
            self.writers.push(handle);
            self.is_mappable = true;
        }
        if mode.contains(OpenMode::DIRECT) {
            self.direct.push(handle);
        } else {
            self.cached_opens += 1;
        }
    }
}

/// Tests whether this process may register backing files, because the kernel may offer passthrough
/// although the privilege is missing.
pub(crate) fn try_passthrough(transport: &dyn Transport) -> rustix::io::Result<()> {
    let file = rustix::fs::memfd_create("fslab-passthrough", MemfdFlags::CLOEXEC)?;
    let id = transport.register_backing(file.as_fd())?;
    transport.release_backing(id)
}

impl BackingFiles {
    pub fn new(transport: Arc<dyn Transport>) -> Self {
        let pin = Mutex::new(BackingIdPin::new());
        let (open, mapped) = (Mutex::default(), Mutex::default());
        Self { transport, open, mapped, pin, was_refused: AtomicBool::default() }
    }

    /// Counts an open and returns the id of its backing file, or `None` for I/O through the daemon.
    ///
    /// If there is no lower file, or the kernel refuses it, this and all further opens use the
    /// daemon until the inode is closed.
    pub fn open(
        &self,
        ino: Ino,
        handle: Handle,
        mode: OpenMode,
        lower: Option<&OwnedFd>,
    ) -> Option<i32> {
        let mut open = self.open.lock();
        let inode = open.entry(ino).or_insert_with(|| OpenInode {
            backing: lower.and_then(|lower| self.register(lower)),
            ..OpenInode::default()
        });
        let had_writers = !inode.writers.is_empty();
        inode.count(handle, mode);
        if !had_writers && !inode.writers.is_empty() && inode.backing.is_some() {
            self.forget_attributes(ino);
        }
        inode.backing
    }

    /// Counts an open that an earlier daemon answered, with its backing file. If the earlier daemon
    /// died while closing a file, this open has no backing file, but other opens of the inode may
    /// have one.
    pub fn restore(&self, ino: Ino, handle: Handle, mode: OpenMode, backing: Option<i32>) {
        let mut open = self.open.lock();
        let inode = open.entry(ino).or_default();
        inode.backing = inode.backing.or(backing);
        inode.count(handle, mode);
    }

    /// Releases the backing files of unanswered opens, unless other opens use them.
    pub fn release_unused(&self, ids: &[i32]) {
        let open = self.open.lock();
        for id in ids.iter().filter(|id| !open.values().any(|inode| inode.backing == Some(**id))) {
            if let Err(error) = self.transport.release_backing(*id) {
                tracing::warn!(%error, id, "can't release a backing file");
            }
        }
    }

    /// Invalidates the cached attributes of a file. From now on, writes through shared mappings may
    /// change its times without a request.
    fn forget_attributes(&self, ino: Ino) {
        if let Err(error) = notifications::invalidate_attributes(&*self.transport, ino) {
            tracing::warn!(%error, "can't drop cached attributes; a file may show old times");
        }
    }

    /// Whether the lower file of an inode may change without a request, because it is or may be
    /// mapped for writing through passthrough.
    pub fn may_change_unseen(&self, ino: Ino) -> bool {
        let is_written_below = |inode: &OpenInode| inode.backing.is_some() && inode.is_mappable;
        self.open.lock().get(&ino).is_some_and(is_written_below)
            || self.mapped.lock().contains(&ino)
    }

    /// Whether the kernel may have dirty bytes of an inode. This does not depend on writeback mode,
    /// because changes through shared mappings are always written back later.
    pub fn may_be_dirty(&self, ino: Ino) -> bool {
        let is_written_later =
            |inode: &OpenInode| inode.backing.is_none() && !inode.writers.is_empty();
        self.open.lock().get(&ino).is_some_and(is_written_later)
    }

    /// Returns which pages of an open file may be in the kernel's cache.
    pub fn cached_pages(&self, ino: Ino) -> CachedPages {
        let open = self.open.lock();
        match open.get(&ino).filter(|inode| inode.backing.is_none()) {
            None => CachedPages::None,
            Some(inode) if inode.openings > inode.direct.len() as u64 => CachedPages::OfOpen,
            Some(inode) if inode.cached_opens > inode.cached_opens_at_drop => {
                CachedPages::OfClosed(inode.cached_opens)
            }
            Some(_) => CachedPages::None,
        }
    }

    /// Records that the kernel has dropped the pages reported by [`Self::cached_pages`].
    pub fn note_dropped(&self, ino: Ino, pages: CachedPages) {
        let CachedPages::OfClosed(opens) = pages else { return };
        if let Some(inode) = self.open.lock().get_mut(&ino) {
            inode.cached_opens_at_drop = opens;
        }
    }

    fn register(&self, lower: &OwnedFd) -> Option<i32> {
        // The kernel writes to a backing file with the privileges of the thread that registered it.
        // FUSE in the kernel leaves it to the server to clear set-id bits. If the thread has
        // dropped CAP_FSETID, the lower file system clears them at every write.
        let registered =
            drop_fsetid().and_then(|()| self.transport.register_backing(lower.as_fd()));
        let number = registered.inspect_err(|errno| self.say_refused(*errno)).ok()?;
        self.pin.lock().follow(number, &*self.transport);
        Some(number)
    }

    fn say_refused(&self, error: Errno) {
        if self.was_refused.swap(true, Ordering::Relaxed) {
            tracing::debug!(%error, "another file can't use passthrough");
            return;
        }
        tracing::warn!(
            %error,
            "the kernel refuses passthrough for a file (ELOOP: too many stacked file systems); \
             such files are read and written through the daemon"
        );
    }

    /// Counts a close; the last one releases the backing file.
    pub fn close(&self, ino: Ino, handle: Handle) {
        let mut open = self.open.lock();
        let Some(inode) = open.get_mut(&ino) else { return };
        inode.openings -= 1;
        inode.writers.retain(|writer| *writer != handle);
        inode.direct.retain(|direct| *direct != handle);
        if inode.openings > 0 {
            return;
        }
        let Some(OpenInode { backing: Some(id), is_mappable, .. }) = open.remove(&ino) else {
            return;
        };
        if is_mappable {
            self.mapped.lock().insert(ino);
        }
        let released = self.transport.release_backing(id);
        if let Err(error) = released {
            tracing::error!(%error, "can't release a backing file");
        }
    }

    /// Records that the kernel has forgotten an inode, so no mapping of it is left.
    pub fn forget(&self, ino: Ino) {
        self.mapped.lock().remove(&ino);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::ScriptedChannel;

    /// The daemon died while it closed the first of two handles, so only the second one has the
    /// backing file. A third must get the same one, or the kernel fails its open with EIO.
    #[test]
    fn inode_with_a_half_closed_handle_keeps_its_backing_file() {
        let mode = OpenMode::READ_WRITE;
        for backings in [[None, Some(5)], [Some(5), None]] {
            let files = BackingFiles::new(Arc::new(ScriptedChannel::default()));
            for (backing, handle) in backings.into_iter().zip(0..) {
                files.restore(Ino(7), Handle(handle), mode, backing);
            }
            assert_eq!(files.open(Ino(7), Handle(2), mode, None), Some(5), "{backings:?}");
        }
    }
}
