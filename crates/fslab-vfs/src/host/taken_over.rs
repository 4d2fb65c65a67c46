//! What an earlier process left open that served the same tree.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use fslab_sys::supervise::Inherited;
use rustix::fs::OFlags;

use crate::error::Result;
use crate::types::Ino;

/// What is left of an earlier process.
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

    /// What leads to an inode of the root's device, in whatever way it is open.
    pub fn lead_to(&self, ino: Ino) -> Option<OwnedFd> {
        self.inherited.lead_to(self.device, ino.0)
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
