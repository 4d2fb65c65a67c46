//! Which inodes the kernel reads and writes without asking, and through which lower file.
//!
//! The kernel allows one backing file an inode at a time, and no mixture: while one opening of an
//! inode goes through a backing file, a second must name the same one, else it fails with EIO.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use fslab_vfs::Ino;
use fuser::BackingId;
use parking_lot::Mutex;

/// How the openings of each open inode read and write.
#[derive(Debug, Default)]
pub(crate) struct BackingFiles {
    open: Mutex<HashMap<Ino, OpenInode>>,
}

#[derive(Debug)]
struct OpenInode {
    openings: u64,
    /// `None`: through the daemon.
    backing: Option<Arc<BackingId>>,
}

impl BackingFiles {
    /// Counts an opening and answers the backing file it must use, `None` for the daemon.
    ///
    /// `register` makes a lower file known to the kernel; it is called for the first opening of
    /// an inode only. Where there is nothing to register or the kernel refuses, this and all
    /// further openings go through the daemon until the inode is closed.
    pub fn open(
        &self,
        ino: Ino,
        lower: Option<&OwnedFd>,
        register: impl FnOnce(&OwnedFd) -> std::io::Result<BackingId>,
    ) -> Option<Arc<BackingId>> {
        let mut open = self.open.lock();
        let inode = open.entry(ino).or_insert_with(|| OpenInode {
            openings: 0,
            backing: lower
                .and_then(|lower| register(lower).map_err(say_refusal).ok())
                .map(Arc::new),
        });
        inode.openings += 1;
        inode.backing.clone()
    }

    /// Counts a close; the last one releases the backing file.
    pub fn close(&self, ino: Ino) {
        let mut open = self.open.lock();
        let Some(inode) = open.get_mut(&ino) else { return };
        inode.openings -= 1;
        if inode.openings == 0 {
            open.remove(&ino);
        }
    }
}

fn say_refusal(error: std::io::Error) -> std::io::Error {
    tracing::warn!(
        %error,
        "the kernel refuses passthrough for a file; its reads and writes go through the daemon"
    );
    error
}
