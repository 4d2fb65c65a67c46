//! Inodes and files that an earlier process on the same tree gave numbers to, and that this one has
//! to find again: by the descriptors that were left open, else by their numbers.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use fslab_sys::file_handle::FileHandle;
use fslab_sys::supervise::Inherited;
use rustix::fs::OFlags;

use crate::error::{Error, Result};
use crate::host::attr;
use crate::host::inodes::OTHER_DEVICE;
use crate::host::lower::{Lower, reopen_as_path};
use crate::types::Ino;

/// What is left of an earlier process.
#[derive(Debug)]
pub(super) struct TakenOver {
    inherited: Arc<Inherited>,
    /// Device number of the root.
    device: u64,
}

impl TakenOver {
    pub fn new(inherited: Arc<Inherited>, root: &OwnedFd) -> Result<Self> {
        Ok(Self { inherited, device: rustix::fs::fstat(root)?.st_dev })
    }

    /// What was open of an inode of the root's device in the same way.
    pub fn opened(&self, ino: Ino, flags: OFlags) -> Option<OwnedFd> {
        self.inherited.take_opened(self.device, ino.0, flags)
    }

    /// What is open of the same file in the same way, with the locks that it has.
    pub fn same(&self, file: impl AsFd) -> Option<OwnedFd> {
        let stat = rustix::fs::fstat(&file).ok()?;
        let flags = rustix::fs::fcntl_getfl(&file).ok()?;
        self.inherited.take_opened(stat.st_dev, stat.st_ino, flags)
    }
}

impl Lower {
    /// Makes an inode known again that an earlier process gave its number to.
    pub(super) fn find_again(&self, ino: Ino) -> Result<()> {
        let stale = || Error::Stale { ino };
        let taken_over = self.taken_over.as_ref().filter(|_| ino.0 < OTHER_DEVICE);
        let taken_over = taken_over.ok_or_else(stale)?;
        let left = taken_over.inherited.lead_to(taken_over.device, ino.0);
        let descriptor = match &left {
            Some(left) => reopen_as_path(left)?,
            None => self.open_by_number(ino.0)?.ok_or_else(stale)?,
        };
        let stat = attr::stat(&descriptor)?;
        let entry = self.enter(Arc::new(descriptor), &stat)?;
        if let Some(left) = left.filter(|_| stat.stx_nlink == 0) {
            self.pin_if_nameless(left);
        }
        if entry.attr.ino == ino { Ok(()) } else { Err(stale()) }
    }

    fn open_by_number(&self, number: u64) -> Result<Option<OwnedFd>> {
        let root = self.path(Ino::ROOT)?;
        let handle = FileHandle::of(&*root)?.with_number(number);
        let flags = OFlags::PATH | OFlags::NOFOLLOW;
        handle.map(|handle| self.devices.open(0, &handle, flags)).transpose()
    }
}
