//! A FUSE mount whose daemon died. Every access fails until the mount is removed, which would
//! expose the underlying directory. Here another mount replaces it without exposing that directory.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::CWD;
use rustix::io::Errno;
use rustix::mount::{
    MountPropagationFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags, mount_change, move_mount,
    open_tree,
};
use rustix::thread::UnshareFlags;

use crate::mounts;

/// A mount without a daemon.
#[derive(Clone, Debug)]
pub struct DeadMount {
    place: PathBuf,
}

/// Whether this is an error that the kernel returns for a dead daemon; `ECONNABORTED` is for
/// requests that were in flight when it died.
#[must_use]
pub fn tells_of_one(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    errno == Some(Errno::NOTCONN) || errno == Some(Errno::CONNABORTED)
}

impl DeadMount {
    /// Returns the mount that a path leads to, if it is of a given type ("fuse.bindfs") and dead.
    ///
    /// # Errors
    /// The path or /proc/self/mountinfo can't be read.
    pub fn on(path: &Path, kind: &str) -> io::Result<Option<Self>> {
        let place = mounts::place_of(path)?;
        let is_of_kind = mounts::mounted_on(&place)?.is_some_and(|on| on.file_system == kind);
        // `statfs` is used because attributes may still be cached.
        let asked = if is_of_kind { rustix::fs::statfs(&place).err() } else { None };
        let is_dead = asked.is_some_and(|errno| tells_of_one(&errno.into()));
        Ok(is_dead.then_some(Self { place }))
    }

    /// The mount point: an absolute path without links.
    #[must_use]
    pub fn place(&self) -> &Path {
        &self.place
    }

    /// Whether a path leads to it, as far as this can be determined without a request to it.
    #[must_use]
    pub fn is_at(&self, path: &Path) -> bool {
        mounts::place_of(path).is_ok_and(|place| place == self.place)
    }

    /// Opens the directory underneath, including mounts in it. Other processes can't see that
    /// directory: a thread unmounts the dead mount in a private mount namespace and copies the tree
    /// that is then visible.
    ///
    /// # Errors
    /// `EPERM` for a user who may not mount.
    pub fn beneath(&self) -> io::Result<OwnedFd> {
        let looking = std::thread::scope(|scope| scope.spawn(|| self.look_beneath()).join());
        looking.map_err(|_panicked| {
            io::Error::other("the thread that opens the directory under a mount panicked")
        })?
    }

    fn look_beneath(&self) -> io::Result<OwnedFd> {
        // SAFETY: it gives this thread mounts, root and working directory of its own; it affects
        // no memory and no descriptors.
        unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) }?;
        mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
        self.unmount()?;
        let whole = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::AT_RECURSIVE;
        Ok(open_tree(CWD, &self.place, whole | OpenTreeFlags::OPEN_TREE_CLOEXEC)?)
    }

    /// Removes the dead mount from underneath its successor. In between, the dead mount is visible.
    /// If the kernel can't insert a mount below another (before Linux 6.5), it stays hidden until
    /// the successor is unmounted.
    ///
    /// # Errors
    /// No mount lies over it any more.
    pub fn yield_to_its_successor(&self) -> io::Result<()> {
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        let successor = open_tree(CWD, &self.place, flags)?;
        self.unmount()?;
        let put = |flags| {
            let flags = flags | MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
            move_mount(&successor, "", CWD, &self.place, flags)
        };
        match put(MoveMountFlags::MOVE_MOUNT_BENEATH) {
            Ok(()) => self.unmount_if_dead(),
            Err(error) => {
                tracing::info!(%error, "the mount of a dead daemon remains under the new one");
                Ok(put(MoveMountFlags::empty())?)
            }
        }
    }

    /// Unmounts it only if it is still dead: another process may have removed it, and the visible
    /// mount may be alive.
    fn unmount_if_dead(&self) -> io::Result<()> {
        match rustix::fs::statfs(&self.place) {
            Err(errno) if tells_of_one(&errno.into()) => self.unmount(),
            _ => Ok(()),
        }
    }

    fn unmount(&self) -> io::Result<()> {
        let flags = UnmountFlags::DETACH | UnmountFlags::NOFOLLOW;
        Ok(rustix::mount::unmount(&self.place, flags)?)
    }
}
