//! Finds inodes by their numbers. The kernel may request an inode that it has forgotten, or one
//! that was looked up before this process served the tree.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use fslab_sys::file_handle::FileHandle;
use rustix::fs::{Dir, Mode, OFlags, ResolveFlags, Statx, StatxAttributes};

use crate::error::{Errno, Result};
use crate::host::attr;
use crate::host::inodes::{Identity, Reference, is_own_number};
use crate::host::lower::{Lower, reopen_as_path};
use crate::types::{Entry, Ino};

/// Maximum number of parent directories to walk: the maximum length of a path in bytes.
const DEPTH_MAX: usize = 4096;

impl Lower {
    /// Whether forgotten inodes can be found again.
    pub fn can_resolve(&self) -> bool {
        self.numbers.as_ref().is_some_and(|numbers| numbers.covers_all)
    }

    /// Finds an inode by its number and counts a lookup.
    pub fn resolve(&self, ino: Ino) -> Result<Entry> {
        if ino == Ino::ROOT {
            return self.root_entry(&attr::stat(self.path(ino)?)?);
        }
        if self.inodes.hold(ino).is_ok() {
            return self.held_entry(ino).inspect_err(|_| self.forget(ino, 1));
        }
        if !self.can_resolve() {
            return Err(Errno::STALE.into());
        }
        let (identity, reference, stat) = self.find_number(ino)?;
        let entry = self.remember(identity, reference, &stat)?;
        if entry.attr.ino != ino {
            // Since `find_number`, another request has added an earlier generation of this number.
            self.forget(entry.attr.ino, 1);
            return Err(Errno::STALE.into());
        }
        Ok(entry)
    }

    /// Adds an inode by its number, for requests about inodes that were looked up through an
    /// earlier process. Counts no lookup.
    pub(super) fn adopt(&self, ino: Ino) -> Result<()> {
        let left = self.taken_over.as_ref().and_then(|left| left.descriptor_of(ino));
        if let Some(left) = left {
            return self.adopt_inherited(ino, left);
        }
        let (identity, reference, stat) = self.find_number(ino)?;
        self.inodes.adopt(ino, identity, attr::to_kind(&stat)?, reference);
        Ok(())
    }

    /// Adds an inode that the kernel may have looked up through an earlier process. Called while
    /// the inode still has a name.
    pub(super) fn expect_remembered(
        &self,
        identity: Identity,
        descriptor: &OwnedFd,
        stat: &Statx,
    ) -> Result<()> {
        match identity.shown() {
            Some(ino) if self.taken_over.is_some() && !self.inodes.knows(ino) => {
                self.adopt_by(ino, identity, descriptor, stat)
            }
            _ => Ok(()),
        }
    }

    fn adopt_by(
        &self,
        ino: Ino,
        identity: Identity,
        descriptor: &OwnedFd,
        stat: &Statx,
    ) -> Result<()> {
        let reference = match self.devices.handle_of(identity.device, descriptor)? {
            Some(handle) => handle,
            None => Reference::Descriptor(Arc::new(reopen_as_path(descriptor)?)),
        };
        self.inodes.adopt(ino, identity, attr::to_kind(stat)?, reference);
        Ok(())
    }

    /// Adds the inode of a descriptor that the earlier process left open.
    fn adopt_inherited(&self, ino: Ino, left: OwnedFd) -> Result<()> {
        let stat = attr::stat(&left)?;
        let identity = self.identity(&left, &stat)?;
        self.adopt_by(ino, identity, &left, &stat)?;
        if stat.stx_nlink == 0 {
            self.pin_if_nameless(left);
        }
        Ok(())
    }

    /// Finds the parent of a directory and counts a lookup.
    pub fn parent_of(&self, ino: Ino) -> Result<Entry> {
        if ino == Ino::ROOT {
            return Err(Errno::STALE.into());
        }
        let path = self.path(ino)?;
        let Some(parent) = self.open_above(&path, &attr::stat(&path)?)? else {
            return self.resolve(Ino::ROOT);
        };
        let parent = Arc::new(parent);
        self.walk_up(Arc::clone(&parent), |_| Ok(()))?;
        let stat = attr::stat(&parent)?;
        if self.is_root(&stat) { self.root_entry(&stat) } else { self.enter(parent, &stat) }
    }

    /// Calls `meet` for a directory and its parents, up to but not including the root.
    ///
    /// # Errors
    /// `ESTALE` if the directory is not below the root.
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
            let Some(above) = self.open_above(&at, &stat)? else { return Ok(()) };
            let above_stat = attr::stat(&above)?;
            if is_same(&stat, &above_stat) {
                break;
            }
            (at, stat) = (Arc::new(above), above_stat);
        }
        Err(Errno::STALE.into())
    }

    /// Opens the parent of a directory. Returns `None` if the parent is the root, and another file
    /// system, such as the mount of this tree, is mounted over the root. `..` would lead into that
    /// file system.
    fn open_above(&self, directory: impl AsFd, stat: &Statx) -> Result<Option<OwnedFd>> {
        let directory = directory.as_fd();
        let open = |resolve| {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            rustix::fs::openat2(directory, "..", flags, Mode::empty(), resolve)
        };
        match open(ResolveFlags::NO_XDEV) {
            Ok(above) => Ok(Some(above)),
            Err(Errno::XDEV) if is_mount_root(stat) => Ok(Some(open(ResolveFlags::empty())?)),
            Err(Errno::XDEV) if self.is_below_root(directory, stat)? => Ok(None),
            // Another directory of the tree is hidden by a mount.
            Err(Errno::XDEV) => Err(Errno::STALE.into()),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether the parent of a directory is the root, according to its entry `..`.
    fn is_below_root(&self, directory: BorrowedFd<'_>, stat: &Statx) -> Result<bool> {
        if attr::device_of(stat) != self.root_device {
            return Ok(false);
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let names = Dir::new(rustix::fs::openat(directory, ".", flags, Mode::empty())?)?;
        for name in names {
            let name = name?;
            if name.file_name() == c".." {
                return Ok(name.ino() == self.root_number);
            }
        }
        Ok(false)
    }

    /// Finds the inode that currently has a number on the root's device and a name.
    fn find_number(&self, ino: Ino) -> Result<(Identity, Reference, Statx)> {
        let numbers = self.numbers.as_ref().filter(|_| is_own_number(ino)).ok_or(Errno::STALE)?;
        let file = numbers.open(ino.0)?;
        let stat = attr::stat(&file)?;
        let identity = self.identity(&file, &stat)?;
        // The root is shown under another number. An inode without a name is not in the tree.
        let is_meant = identity == Identity { device: 0, number: ino.0 };
        if !is_meant || self.is_root(&stat) || stat.stx_nlink == 0 {
            return Err(Errno::STALE.into());
        }
        Ok((identity, Reference::Handle(FileHandle::of(&file)?), stat))
    }

    /// Returns the entry of an inode in use.
    fn held_entry(&self, ino: Ino) -> Result<Entry> {
        let stat = attr::stat(self.path(ino)?)?;
        if stat.stx_nlink == 0 {
            return Err(Errno::STALE.into());
        }
        let (identity, reference) = self.inodes.handle_of(ino)?;
        let generation = self.generation(ino, identity, &reference);
        Ok(Entry { attr: self.to_attr(ino, &stat)?, generation })
    }

    /// Returns the entry of the root, for which the kernel uses no generation.
    fn root_entry(&self, stat: &Statx) -> Result<Entry> {
        Ok(Entry { attr: self.to_attr(Ino::ROOT, stat)?, generation: 0 })
    }
}

/// Whether a directory is the root of a mount. Kernels before Linux 5.8 do not report this; the
/// result is then `true`.
fn is_mount_root(stat: &Statx) -> bool {
    let told = stat.stx_attributes_mask.contains(StatxAttributes::MOUNT_ROOT);
    !told || stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT)
}

fn is_same(one: &Statx, other: &Statx) -> bool {
    attr::device_of(one) == attr::device_of(other) && one.stx_ino == other.stx_ino
}
