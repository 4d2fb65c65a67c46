//! Descriptors that an earlier process serving the same tree left open.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use fslab_sys::supervise::Inherited;
use rustix::fs::OFlags;

use crate::error::Result;
use crate::types::Ino;

/// Descriptors of an earlier process.
#[derive(Debug)]
pub(super) struct TakenOver {
    inherited: Arc<Inherited>,
    /// Device number of the root.
    device: u64,
}

impl TakenOver {
    pub fn new(inherited: Arc<Inherited>, root: &OwnedFd, has_handles: bool) -> Result<Self> {
        let device = rustix::fs::fstat(root)?.st_dev;
        inherited.keep_for(device, !has_handles);
        Ok(Self { inherited, device })
    }

    /// Returns a descriptor of an inode on the root's device, regardless of the flags with which it
    /// was opened.
    pub fn descriptor_of(&self, ino: Ino) -> Option<OwnedFd> {
        self.inherited.descriptor_of(self.device, ino.0)
    }

    /// Returns a descriptor of an inode on the root's device that was opened with these flags.
    pub fn opened(&self, ino: Ino, flags: OFlags) -> Option<OwnedFd> {
        self.inherited.take_opened(self.device, ino.0, flags)
    }

    /// Returns an inherited descriptor of the same file, opened with the same flags. It may hold a
    /// lock.
    pub fn same(&self, file: impl AsFd) -> Option<OwnedFd> {
        let stat = rustix::fs::fstat(&file).ok()?;
        let flags = rustix::fs::fcntl_getfl(&file).ok()?;
        self.inherited.take_opened(stat.st_dev, stat.st_ino, flags)
    }
}
