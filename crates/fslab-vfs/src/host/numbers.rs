//! Finding lower inodes by their number alone, after everything else about them was forgotten.
//!
//! That is possible where the root is the root directory of its whole file system, or of a whole
//! subvolume of Btrfs: every inode with a name then lies below it. Of a root that is a directory
//! further down it can't be proved: the kernel opens a file by its handle without a name, and a
//! file does not know its directories.
//!
//! The generation of a number is asked of what was opened, and compared by who has kept it.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use fslab_sys::file_handle::FileHandle;
use fslab_sys::xfs_inodes;
use rustix::fs::{Mode, OFlags, Statx};

use crate::error::{Errno, Result};
use crate::host::attr;
use crate::host::inodes::{Identity, Reference, is_own_number};
use crate::host::lower::Lower;
use crate::types::{Entry, FileKind, Ino};

/// Directories above one that are walked at most: a path has no more.
const DEPTH_MAX: usize = 4096;

/// How inodes of the root's device are opened by their number.
#[derive(Debug)]
pub(super) struct Numbers {
    /// A handle of the root; those of other inodes are made after it.
    sample: FileHandle,
    /// A directory of the file system, open for reading.
    mount: Arc<OwnedFd>,
    /// Whether a handle must have the right generation, and the file system tells it.
    asks_generation: bool,
}

impl Numbers {
    /// `None` where inodes can't be found by their number, or not be proved to lie below the root.
    pub fn below(root: &OwnedFd, mount: Arc<OwnedFd>) -> Option<Self> {
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
        let numbers = Self { sample, mount, asks_generation };
        // Also that the process may do it, and that this kernel takes such handles.
        let is_found = || Some(attr::stat(numbers.open(number).ok()?).ok()?.stx_ino == number);
        (number == top && is_found()?).then_some(numbers)
    }

    /// Opens the inode that has a number now, as `O_PATH`.
    fn open(&self, number: u64) -> Result<OwnedFd> {
        let generation =
            if self.asks_generation { xfs_inodes::generation(&self.mount, number)? } else { 0 };
        let handle = self.sample.with_number(number, generation).ok_or(Errno::STALE)?;
        Ok(handle.open(self.mount.as_fd(), OFlags::PATH | OFlags::NOFOLLOW)?)
    }
}

impl Lower {
    /// Whether inodes that were forgotten are found again.
    pub fn can_resolve(&self) -> bool {
        self.numbers.is_some()
    }

    /// Finds an inode by its number and counts a lookup.
    pub fn resolve(&self, ino: Ino) -> Result<Entry> {
        if ino == Ino::ROOT {
            return self.root_entry(&attr::stat(self.path(ino)?)?);
        }
        if self.inodes.hold(ino).is_ok() {
            return self.held_entry(ino).inspect_err(|_| self.forget(ino, 1));
        }
        let (identity, reference, stat) = self.find_number(ino)?;
        let entry = self.remember(identity, reference, &stat)?;
        if entry.attr.ino != ino {
            // An earlier inode of this number was looked up meanwhile.
            self.forget(entry.attr.ino, 1);
            return Err(Errno::STALE.into());
        }
        Ok(entry)
    }

    /// Makes an inode known by its number, for requests about inodes that were looked up before
    /// this process served them. Counts no lookup.
    pub(super) fn adopt(&self, ino: Ino) -> Result<()> {
        let (identity, reference, stat) = self.find_number(ino)?;
        self.inodes.adopt(ino, identity, to_kind(&stat)?, reference);
        Ok(())
    }

    /// Finds the directory above a directory and counts a lookup.
    pub fn parent_of(&self, ino: Ino) -> Result<Entry> {
        if ino == Ino::ROOT {
            return Err(Errno::STALE.into());
        }
        let parent = Arc::new(open_above(&*self.path(ino)?)?);
        self.walk_up(Arc::clone(&parent), |_| Ok(()))?;
        let stat = attr::stat(&parent)?;
        if self.is_root(&stat) { self.root_entry(&stat) } else { self.enter(parent, &stat) }
    }

    /// Shows a directory, and those above it, up to the root and without it.
    ///
    /// # Errors
    /// `ESTALE` where it does not lie below the root.
    pub fn walk_up(
        &self,
        directory: Arc<OwnedFd>,
        mut meet: impl FnMut(&OwnedFd) -> Result<()>,
    ) -> Result<()> {
        let mut at = directory;
        let mut stat = attr::stat(&at)?;
        for _ in 0..DEPTH_MAX {
            if self.is_root(&stat) {
                return Ok(());
            }
            meet(&at)?;
            let above = open_above(&at)?;
            let above_stat = attr::stat(&above)?;
            if is_same(&stat, &above_stat) {
                break;
            }
            (at, stat) = (Arc::new(above), above_stat);
        }
        Err(Errno::STALE.into())
    }

    /// What has a number of the root's device now, and has a name.
    fn find_number(&self, ino: Ino) -> Result<(Identity, Reference, Statx)> {
        let numbers = self.numbers.as_ref().filter(|_| is_own_number(ino)).ok_or(Errno::STALE)?;
        let file = numbers.open(ino.0)?;
        let stat = attr::stat(&file)?;
        let identity = self.identity(&file, &stat)?;
        // The root has a number of its own here. What has no name any more lies nowhere.
        let is_meant = identity == Identity { device: 0, number: ino.0 };
        if !is_meant || self.is_root(&stat) || stat.stx_nlink == 0 {
            return Err(Errno::STALE.into());
        }
        Ok((identity, Reference::Handle(FileHandle::of(&file)?), stat))
    }

    /// The entry of an inode that is remembered.
    fn held_entry(&self, ino: Ino) -> Result<Entry> {
        let stat = attr::stat(self.path(ino)?)?;
        if stat.stx_nlink == 0 {
            return Err(Errno::STALE.into());
        }
        let (identity, reference) = self.inodes.handle_of(ino)?;
        let generation = self.generation(ino, identity, &reference);
        Ok(Entry { attr: self.to_attr(ino, &stat)?, generation })
    }

    /// The kernel wants no generation of the root.
    fn root_entry(&self, stat: &Statx) -> Result<Entry> {
        Ok(Entry { attr: self.to_attr(Ino::ROOT, stat)?, generation: 0 })
    }
}

fn open_above(directory: impl AsFd) -> Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(directory, "..", flags, Mode::empty())?)
}

fn is_same(one: &Statx, other: &Statx) -> bool {
    attr::device_of(one) == attr::device_of(other) && one.stx_ino == other.stx_ino
}

/// What an inode is, as `statx` tells.
pub(super) fn to_kind(stat: &Statx) -> Result<FileKind> {
    Ok(FileKind::from_mode(u32::from(stat.stx_mode)).ok_or(Errno::IO)?)
}
