//! A mount of FUSE whose daemon died. Whoever asks it is refused, until it is taken away: then what
//! lies below is seen. Here another mount takes its place, and nobody sees that.

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

/// A mount that nobody serves.
#[derive(Clone, Debug)]
pub struct DeadMount {
    place: PathBuf,
}

/// Whether this is what the kernel answers in the place of a daemon that is dead; the second to
/// requests that were on their way when it died.
#[must_use]
pub fn tells_of_one(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    errno == Some(Errno::NOTCONN) || errno == Some(Errno::CONNABORTED)
}

impl DeadMount {
    /// The one that a path leads to, where what is mounted there is of a kind ("fuse.bindfs") and
    /// dead.
    ///
    /// # Errors
    /// Where the path or /proc/self/mountinfo can't be read.
    pub fn on(path: &Path, kind: &str) -> io::Result<Option<Self>> {
        let place = mounts::place_of(path)?;
        let is_of_kind = mounts::mounted_on(&place)?.is_some_and(|on| on.file_system == kind);
        // Attributes may still be remembered from before.
        let asked = if is_of_kind { rustix::fs::statfs(&place).err() } else { None };
        let is_dead = asked.is_some_and(|errno| tells_of_one(&errno.into()));
        Ok(is_dead.then_some(Self { place }))
    }

    /// Where it is mounted: an absolute path without links.
    #[must_use]
    pub fn place(&self) -> &Path {
        &self.place
    }

    /// Whether a path leads to it, as far as that can be told without asking it.
    #[must_use]
    pub fn is_at(&self, path: &Path) -> bool {
        mounts::place_of(path).is_ok_and(|place| place == self.place)
    }

    /// The directory that it lies over, with what is mounted within. To others it stays hidden: a
    /// thread takes the mount away for itself alone, and takes what it then sees along.
    ///
    /// # Errors
    /// `EPERM` for whoever may not mount.
    pub fn beneath(&self) -> io::Result<OwnedFd> {
        let looking = std::thread::scope(|scope| scope.spawn(|| self.look_beneath()).join());
        looking.map_err(|_panicked| io::Error::other("looking beneath a mount"))?
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

    /// Takes it away from beneath what was mounted over it. In between it is what is seen. Where
    /// the kernel puts nothing beneath a mount (before Linux 6.5) it stays, unseen until the other
    /// goes.
    ///
    /// # Errors
    /// Where nothing is mounted over it any more.
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
                tracing::info!(%error, "the mount of a dead daemon stays below the new one");
                Ok(put(MoveMountFlags::empty())?)
            }
        }
    }

    /// Somebody else may have taken it away meanwhile, and what is seen now be alive.
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
