//! Opens lower inodes by number only, after all other data about them was dropped.
//!
//! This works if the root is the root directory of its file system, or of a Btrfs subvolume. Every
//! inode with a name is then below it. For any other root, it can't be verified that an inode is
//! below the root. An inode that was opened by its handle has no path, and a file does not record
//! its directories.
//!
//! The generation is read from the opened inode, and compared by the caller.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use fslab_sys::file_handle::FileHandle;
use fslab_sys::xfs_inodes;
use rustix::fs::OFlags;

use crate::error::{Errno, Result};
use crate::host::attr;

/// Opens inodes on the root's device by their number.
#[derive(Debug)]
pub(super) struct Numbers {
    /// A handle of the root, used as a template for those of other inodes.
    sample: FileHandle,
    /// A directory of the file system, open for reading.
    mount: Arc<OwnedFd>,
    /// Whether the file system accepts only handles with the right generation. The file system is
    /// then asked for the generation first (XFS).
    asks_generation: bool,
    /// Whether the root is the root directory of its file system or subvolume.
    pub covers_all: bool,
}

impl Numbers {
    /// Prepares to open inodes on the device of `root` by number. Returns `None` if the file system
    /// or the privileges of the process do not allow that.
    pub fn of(root: &OwnedFd, mount: Arc<OwnedFd>) -> Option<Self> {
        const EXT: u64 = 0xef53;
        const XFS: u64 = 0x5846_5342;
        const BTRFS: u64 = 0x9123_683e;
        /// `EXT4_ROOT_INO`
        const EXT_ROOT: u64 = 2;
        /// `BTRFS_FIRST_FREE_OBJECTID`, the root of every subvolume.
        const BTRFS_ROOT: u64 = 256;
        let number = attr::stat(root).ok()?.stx_ino;
        let (top, asks_generation) = match attr::file_system_kind(root).ok()? {
            EXT => (EXT_ROOT, false),
            BTRFS => (BTRFS_ROOT, false),
            XFS => (xfs_inodes::root(&mount).ok()?, true),
            _ => return None,
        };
        let sample = FileHandle::of(root).ok()?;
        let numbers = Self { sample, mount, asks_generation, covers_all: number == top };
        // This also tests that the process has the privilege and that the kernel accepts such
        // handles.
        let is_found = || Some(attr::stat(numbers.open(number).ok()?).ok()?.stx_ino == number);
        is_found()?.then_some(numbers)
    }

    /// Opens the inode that currently has a number, as `O_PATH`.
    pub fn open(&self, number: u64) -> Result<OwnedFd> {
        let generation =
            if self.asks_generation { xfs_inodes::generation(&self.mount, number)? } else { 0 };
        let handle = self.sample.with_number(number, generation).ok_or(Errno::STALE)?;
        Ok(handle.open(self.mount.as_fd(), OFlags::PATH | OFlags::NOFOLLOW)?)
    }
}
