//! The interface through which a run uses a target.

use std::collections::BTreeMap;

use fslab_sys::block_counters::DeviceNumber;

use crate::error::Result;
use crate::tree::Tree;

/// A target that is ready to be measured.
pub(crate) trait Target: Sync {
    /// Returns the tree for workloads.
    fn tree(&self) -> Result<&dyn Tree>;

    /// Unmounts and mounts everything, so that nothing is cached. Returns `None` if this kind of
    /// target can't be remounted.
    fn remount(&mut self) -> Result<Option<Remounted>> {
        Ok(None)
    }

    /// Returns the block device under the target, if only this target uses it.
    fn device(&self) -> Option<DeviceNumber> {
        None
    }

    /// Returns the process ID of the daemon that serves a file system in user space.
    fn daemon(&self) -> Option<u32> {
        None
    }

    /// Makes the data of the lower file system durable, because a file system in user space
    /// receives no syncfs.
    fn sync_below(&self) -> Result<()> {
        Ok(())
    }

    /// Returns the space in use on the target's own file system, including metadata. Returns `None`
    /// if the target has no file system of its own.
    fn used_bytes(&self) -> Result<Option<u64>> {
        Ok(None)
    }

    /// Returns the requests that the kernel has sent to the daemon since the mount, by kind.
    /// Returns `None` if the target is not a file system in user space, or if requests can't be
    /// counted.
    fn fuse_requests(&self) -> Result<Option<BTreeMap<String, u64>>> {
        Ok(None)
    }

    /// Removes the target and returns notes about unexpected events.
    fn tear_down(self: Box<Self>) -> Result<Vec<String>>;
}

/// The evidence that a target was made cold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Remounted {
    /// Whether pages were dropped instead of unmounting.
    pub evicted: bool,
    /// Pages of the block device itself that remained cached; `None` if unknown.
    pub device_pages: Option<u64>,
}
