//! Unmounting a session, by its own connection or by the setuid helper.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fslab_sys::mounts::{self, MountEntry};
use fslab_vfs::Errno;
use rustix::mount::UnmountFlags;

use crate::error::{Error, Result};
use crate::read_ahead::device_at;
use crate::transport::Transport;

/// Unmounts a session, from any thread, and nothing else.
///
/// The kernel gives the device number of an unmounted file system to the next one. So the number
/// counts only as long as the session's own connection has not ended.
#[derive(Clone, Debug)]
pub struct Unmounter {
    pub(crate) mount_point: PathBuf,
    pub(crate) device: (u32, u32),
    transport: Arc<dyn Transport>,
}

impl Unmounter {
    pub(crate) fn of(
        mount_point: &Path,
        transport: Arc<dyn Transport>,
    ) -> rustix::io::Result<Self> {
        Ok(Self::of_device(mount_point, device_at(mount_point)?, transport))
    }

    pub(crate) fn of_device(
        mount_point: &Path,
        device: (u32, u32),
        transport: Arc<dyn Transport>,
    ) -> Self {
        Self { mount_point: mount_point.to_owned(), device, transport }
    }

    /// Whether the file system is mounted, be it only for those who use it.
    #[must_use]
    pub fn is_mounted(&self) -> bool {
        self.transport.is_connected()
    }

    /// Unmounts if nothing is in use; `false` when something is. A file system that is mounted no
    /// longer counts as unmounted.
    ///
    /// # Errors
    /// What the kernel answered otherwise.
    pub fn unmount_if_unused(&self) -> Result<bool> {
        match self.unmount(UnmountFlags::empty()) {
            Ok(()) => Ok(true),
            Err(Error::Unmount { source: Errno::BUSY, .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Detaches the mount at once. Programs that still use it are served until they close it.
    ///
    /// # Errors
    /// What the kernel answered.
    pub fn detach(&self) -> Result<()> {
        self.unmount(UnmountFlags::DETACH)
    }

    /// Unmounts wherever the file system is mounted by now: it may have been moved, or mounted
    /// once more elsewhere.
    fn unmount(&self, flags: UnmountFlags) -> Result<()> {
        loop {
            let places = self.places().map_err(|source| Error::Mounts { source })?;
            let answers: Vec<_> =
                places.iter().map(|place| self.unmount_place(place, flags)).collect();
            let is_progress = answers.iter().any(Result::is_ok);
            match answers.into_iter().find_map(Result::err) {
                None => return Ok(()),
                // One place may have covered another.
                Some(_) if is_progress => {}
                Some(error) => return Err(error),
            }
        }
    }

    /// Where the file system is mounted, the innermost place first.
    fn places(&self) -> io::Result<Vec<MountEntry>> {
        let mut places = mounts::of_device(self.device)?;
        places.retain(|mount| mount.file_system == "fuse.fslab");
        // Asked afterwards: then the number was this file system's when they were listed.
        Ok(if self.transport.is_connected() { places } else { Vec::new() })
    }

    fn unmount_place(&self, place: &MountEntry, flags: UnmountFlags) -> Result<()> {
        let failed = |source| unmount_error(&place.target, source);
        match mounts::unmount_entry(place, flags) {
            Ok(()) => Ok(()),
            Err(error) => match Errno::from_io_error(&error).unwrap_or(Errno::IO) {
                Errno::PERM => unmount_by_helper(&place.target, flags),
                // It went with another place, or somebody else took it away.
                _ if !self.places().is_ok_and(|places| places.contains(place)) => Ok(()),
                // Perhaps something else is mounted over it, which is not ours to take away.
                errno => Err(failed(errno)),
            },
        }
    }
}

/// Ordinary users unmount through the setuid helper that mounted for them.
fn unmount_by_helper(place: &Path, flags: UnmountFlags) -> Result<()> {
    let lazy = flags.contains(UnmountFlags::DETACH).then_some("-z");
    let mut helper = std::process::Command::new("fusermount3");
    helper.env("LC_ALL", "C").arg("-u").args(lazy).arg("--").arg(place);
    let output = match helper.output() {
        Ok(output) if output.status.success() => return Ok(()),
        Ok(output) => output,
        Err(error) => {
            tracing::warn!(%error, "fusermount3 (Debian: fuse3)");
            return Err(unmount_error(place, Errno::PERM));
        }
    };
    let reason = String::from_utf8_lossy(&output.stderr);
    tracing::debug!(reason = reason.trim(), "not unmounted");
    Err(unmount_error(place, helper_errno(&reason)))
}

/// The helper reports the error as text only: "Device or resource busy", or "Resource busy" with
/// another C library.
fn helper_errno(reason: &str) -> Errno {
    if reason.trim_end().ends_with("busy") { Errno::BUSY } else { Errno::PERM }
}

fn unmount_error(place: &Path, source: Errno) -> Error {
    Error::Unmount { mount_point: place.to_owned(), source }
}
