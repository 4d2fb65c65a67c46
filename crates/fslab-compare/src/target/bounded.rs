//! A target whose run is bounded in memory: this process and every daemon it starts, and the page
//! cache of what they read and write.

use fslab_sys::block_counters::DeviceNumber;
use fslab_sys::memory_bound::MemoryBound;

use super::{Remounted, Target};
use crate::error::Result;
use crate::tree::Tree;

/// Fields are dropped in this order: daemons of the target are in the group.
pub(super) struct Bounded {
    pub target: Box<dyn Target>,
    pub bound: MemoryBound,
}

impl Target for Bounded {
    fn tree(&self) -> Result<&dyn Tree> {
        self.target.tree()
    }

    fn remount(&mut self) -> Result<Option<Remounted>> {
        self.target.remount()
    }

    fn is_evicted(&self) -> bool {
        self.target.is_evicted()
    }

    fn device(&self) -> Option<DeviceNumber> {
        self.target.device()
    }

    fn daemon(&self) -> Option<u32> {
        self.target.daemon()
    }

    fn used_bytes(&self) -> Result<Option<u64>> {
        self.target.used_bytes()
    }

    fn fuse_requests(&self) -> Result<Option<u64>> {
        self.target.fuse_requests()
    }

    fn sync_below(&self) -> Result<()> {
        self.target.sync_below()
    }

    fn tear_down(self: Box<Self>) -> Result<Vec<String>> {
        let Self { target, bound } = *self;
        let notes = target.tear_down()?;
        bound.leave()?;
        Ok(notes)
    }
}
