//! What a run needs of a target, whatever it is made of.

use fslab_sys::block_counters::DeviceNumber;

use crate::error::Result;
use crate::tree::Tree;

/// A target that is there, ready to be measured.
pub(crate) trait Target: Sync {
    /// What workloads act on.
    fn tree(&self) -> Result<&dyn Tree>;

    /// Unmounts and mounts everything, so that nothing of it is cached. `None` where this kind of
    /// target can't be remounted.
    fn remount(&mut self) -> Result<Option<Remounted>> {
        Ok(None)
    }

    /// The block device below, whose counters belong to this target alone.
    fn device(&self) -> Option<DeviceNumber> {
        None
    }

    /// The process that serves it, for a file system in user space.
    fn daemon(&self) -> Option<u32> {
        None
    }

    /// Makes durable what lies below a file system in user space, which is not told of syncfs.
    fn sync_below(&self) -> Result<()> {
        Ok(())
    }

    /// Space in use on the target's own file system, its own structures included. `None` where
    /// it has none of its own.
    fn used_bytes(&self) -> Result<Option<u64>> {
        Ok(None)
    }

    /// Requests the kernel has sent to it since it was mounted, where it is a file system in user
    /// space and they can be counted.
    fn fuse_requests(&self) -> Result<Option<u64>> {
        Ok(None)
    }

    /// Ends it; answers what did not go as it should.
    fn tear_down(self: Box<Self>) -> Result<Vec<String>>;
}

/// What was seen between an unmount and the mount that followed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Remounted {
    /// Pages were dropped instead of unmounting.
    pub evicted: bool,
    /// Pages of the block device itself that were still cached.
    pub device_pages: Option<u64>,
}
