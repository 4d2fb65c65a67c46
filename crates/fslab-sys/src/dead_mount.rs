//! A FUSE mount whose daemon died. Every access fails until the mount is removed, but removing it
//! would expose the underlying directory. This module lets another mount replace it without
//! exposing that directory.

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

/// A mount whose daemon died.
#[derive(Clone, Debug)]
pub struct DeadMount {
    place: PathBuf,
}

/// Whether an error means that the daemon of a mount died. The kernel returns `ECONNABORTED` to
/// requests that were in flight when it died.
#[must_use]
pub fn is_dead_mount_error(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    errno == Some(Errno::NOTCONN) || errno == Some(Errno::CONNABORTED)
}

impl DeadMount {
    /// Returns the mount at a path, if the mount is dead and has the given type, such as
    /// "fuse.bindfs".
    ///
    /// # Errors
    /// The path or /proc/self/mountinfo can't be read.
    pub fn on(path: &Path, kind: &str) -> io::Result<Option<Self>> {
        let place = mounts::place_of(path)?;
        let is_of_kind = mounts::mounted_on(&place)?.is_some_and(|on| on.file_system == kind);
        // Uses `statfs`, because the kernel may still have the attributes in its cache.
        let asked = if is_of_kind { rustix::fs::statfs(&place).err() } else { None };
        let is_dead = asked.is_some_and(|errno| is_dead_mount_error(&errno.into()));
        Ok(is_dead.then_some(Self { place }))
    }

    /// The mount point: an absolute path without symbolic links.
    #[must_use]
    pub fn place(&self) -> &Path {
        &self.place
    }

    /// Whether a path refers to the mount point. This sends no request to the dead mount.
    #[must_use]
    pub fn is_at(&self, path: &Path) -> bool {
        mounts::place_of(path).is_ok_and(|place| place == self.place)
    }

    /// Opens the directory underneath the dead mount, including mounts in it. A separate thread
    /// unmounts the dead mount in a private mount namespace, and copies the tree that becomes
    /// visible there. So the directory remains hidden from other processes.
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
        // SAFETY: the call gives this thread mounts, root and working directory of its own; it
        // affects no memory and no descriptors.
        unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) }?;
        mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
        self.unmount()?;
        let whole = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::AT_RECURSIVE;
        Ok(open_tree(CWD, &self.place, whole | OpenTreeFlags::OPEN_TREE_CLOEXEC)?)
    }

    /// Removes the dead mount from under its successor. To do so, it unmounts the successor and
    /// inserts it again below the dead mount, which is visible in between. Before Linux 6.5, the
    /// kernel can't insert a mount below another one. The dead mount then remains under the
    /// successor until the successor is unmounted.
    ///
    /// # Errors
    /// Errors of the kernel, for example if no mount lies over the dead mount any more.
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
                tracing::info!(
                    %error,
                    "the mount of a dead daemon remains underneath the new mount"
                );
                Ok(put(MoveMountFlags::empty())?)
            }
        }
    }

    /// Unmounts the visible mount only if it is dead. Another process may already have removed the
    /// dead mount, so that the visible one is alive.
    fn unmount_if_dead(&self) -> io::Result<()> {
        match rustix::fs::statfs(&self.place) {
            Err(errno) if is_dead_mount_error(&errno.into()) => self.unmount(),
            _ => Ok(()),
        }
    }

    fn unmount(&self) -> io::Result<()> {
        let flags = UnmountFlags::DETACH | UnmountFlags::NOFOLLOW;
        Ok(rustix::mount::unmount(&self.place, flags)?)
    }
}
