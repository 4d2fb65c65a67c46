//! Unmounts the file system of a session, directly or through the setuid helper.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fslab_sys::mounts::{self, MountEntry};
use fslab_vfs::Errno;
use rustix::mount::UnmountFlags;

use crate::error::{Error, Result};
use crate::read_ahead::device_at;
use crate::transport::Transport;

/// A handle to unmount the file system of a session from any thread.
///
/// The kernel reuses the device number of an unmounted file system. So the number is only valid
/// while the session's own connection exists.
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

    /// Whether the file system is mounted, or detached but still in use.
    #[must_use]
    pub fn is_mounted(&self) -> bool {
        self.transport.is_connected()
    }

    /// Unmounts the file system unless it is in use. Returns `true` if it is no longer mounted, and
    /// `false` if it is in use.
    ///
    /// # Errors
    /// Other errors of the kernel.
    pub fn unmount_if_unused(&self) -> Result<bool> {
        match self.unmount(UnmountFlags::empty()) {
            Ok(()) => Ok(true),
            Err(Error::Unmount { source: Errno::BUSY, .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Detaches the mount at once. Programs that use it are served until they close their files.
    ///
    /// # Errors
    /// Errors of the kernel.
    pub fn detach(&self) -> Result<()> {
        self.unmount(UnmountFlags::DETACH)
    }

    /// Unmounts the file system at all its current mount points, because it may have been moved, or
    /// mounted again elsewhere.
    fn unmount(&self, flags: UnmountFlags) -> Result<()> {
        loop {
            let places = self.places().map_err(|source| Error::Mounts { source })?;
            let answers: Vec<_> =
                places.iter().map(|place| self.unmount_place(place, flags)).collect();
            let is_progress = answers.iter().any(Result::is_ok);
            match answers.into_iter().find_map(Result::err) {
                None => return Ok(()),
                // Tries again, because another mount may have covered this mount point until now.
                Some(_) if is_progress => {}
                Some(error) => return Err(error),
            }
        }
    }

    /// The mount points of the file system, the innermost first.
    fn places(&self) -> io::Result<Vec<MountEntry>> {
        let mut places = mounts::of_device(self.device)?;
        places.retain(|mount| mount.file_system == "fuse.fslab");
        // The connection is checked after the mounts were listed. If it still exists now, the
        // device number was still valid when they were listed.
        Ok(if self.transport.is_connected() { places } else { Vec::new() })
    }

    fn unmount_place(&self, place: &MountEntry, flags: UnmountFlags) -> Result<()> {
        let failed = |source| unmount_error(&place.target, source);
        match mounts::unmount_entry(place, flags) {
            Ok(()) => Ok(()),
            Err(error) => match Errno::from_io_error(&error).unwrap_or(Errno::IO) {
                Errno::PERM => unmount_by_helper(&place.target, flags),
                // This mount was already removed, together with another one or by another process.
                _ if !self.places().is_ok_and(|places| places.contains(place)) => Ok(()),
                // Another file system may be mounted over it, which must not be unmounted here.
                errno => Err(failed(errno)),
            },
        }
    }
}

/// Unmounts through the setuid helper, which also mounted for the ordinary user.
fn unmount_by_helper(place: &Path, flags: UnmountFlags) -> Result<()> {
    let lazy = flags.contains(UnmountFlags::DETACH).then_some("-z");
    let mut helper = std::process::Command::new("fusermount3");
    helper.env("LC_ALL", "C").arg("-u").args(lazy).arg("--").arg(place);
    let output = match helper.output() {
        Ok(output) if output.status.success() => return Ok(()),
        Ok(output) => output,
        Err(error) => {
            tracing::warn!(%error, "can't run fusermount3 (Debian: fuse3)");
            return Err(unmount_error(place, Errno::PERM));
        }
    };
    let reason = String::from_utf8_lossy(&output.stderr);
    tracing::debug!(reason = reason.trim(), "not unmounted");
    Err(unmount_error(place, helper_errno(&reason)))
}

/// Determines the errno from the helper's message: "Device or resource busy", or "Resource busy"
/// with another C library.
fn helper_errno(reason: &str) -> Errno {
    if reason.trim_end().ends_with("busy") { Errno::BUSY } else { Errno::PERM }
}

fn unmount_error(place: &Path, source: Errno) -> Error {
    Error::Unmount { mount_point: place.to_owned(), source }
}
