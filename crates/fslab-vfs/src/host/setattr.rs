//! Changes attributes: one request becomes up to four system calls. Times are set last, because
//! each of the other calls changes times too.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags, Timestamps, Uid};

use crate::error::{Errno, Result};
use crate::host::creation::acting_as_caller;
use crate::host::{HostFs, ITSELF, attr, proc_path};
use crate::rules::set_id;
use crate::types::{Ino, Permissions, Request, SetAttr};

impl HostFs {
    pub(super) fn set_attributes(
        &self,
        request: &Request,
        ino: Ino,
        file: Option<&Arc<OwnedFd>>,
        changes: &SetAttr,
    ) -> Result<()> {
        if let Some(size) = changes.size {
            match file {
                Some(file) => rustix::fs::ftruncate(file, size)?,
                None => rustix::fs::ftruncate(self.lower.open_file(ino, OFlags::WRONLY)?, size)?,
            }
            if changes.kill_set_id {
                self.clear_set_id(request, ino)?;
            }
        }
        let path = self.lower.path(ino)?;
        set_owner(request, &path, changes)?;
        if let Some(permissions) = changes.permissions {
            set_permissions_as(request, &path, permissions)?;
        }
        if changes.accessed.is_some() || changes.modified.is_some() {
            let times = attr::to_timestamps(changes.accessed, changes.modified);
            set_times(&path, &times)?;
        }
        Ok(())
    }

    /// Clears the set-id bits unless the caller may keep them. Used for changes of data whose
    /// requests do not state whether the caller may.
    pub(super) fn clear_set_id_for(&self, request: &Request, ino: Ino) -> Result<()> {
        self.change_permissions(ino, |before, gid| match before.has_set_id() {
            true if !set_id::may_keep(request) => set_id::after_change(before, gid, request),
            _ => before,
        })
    }

    /// Clears the set-group-id bit, as the kernel does if a user outside the group sets an access
    /// ACL.
    pub(super) fn clear_set_group_id(&self, ino: Ino) -> Result<()> {
        self.change_permissions(ino, |before, _| {
            Permissions::new(before.bits() & !Permissions::SET_GID)
        })
    }

    /// Clears the set-id bits, as a write by a caller without CAP_FSETID does.
    pub(super) fn clear_set_id(&self, request: &Request, ino: Ino) -> Result<()> {
        self.change_permissions(ino, |before, gid| set_id::after_change(before, gid, request))
    }

    fn change_permissions(
        &self,
        ino: Ino,
        change: impl FnOnce(Permissions, u32) -> Permissions,
    ) -> Result<()> {
        let path = self.lower.path(ino)?;
        let stat = attr::stat(&path)?;
        let before = attr::permissions(&stat);
        let after = change(before, stat.stx_gid);
        if after == before { Ok(()) } else { set_permissions(&path, after) }
    }
}

/// Changes the owner, and then clears set-id bits if needed. The lower file system sees the daemon
/// as the caller, and the daemon may keep more bits than the real caller. So it does not clear all
/// of them.
fn set_owner(request: &Request, path: &OwnedFd, changes: &SetAttr) -> Result<()> {
    if changes.uid.is_none() && changes.gid.is_none() {
        return Ok(());
    }
    let stat = attr::stat(path)?;
    let (uid, gid) = (changes.uid.map(Uid::from_raw), changes.gid.map(Gid::from_raw));
    rustix::fs::chownat(path, "", uid, gid, ITSELF)?;
    let before = attr::permissions(&stat);
    if !before.has_set_id() || FileType::from_raw_mode(stat.stx_mode.into()).is_dir() {
        return Ok(());
    }
    let after = set_id::after_change_of_owner(before, stat.stx_gid, request);
    if attr::permissions(&attr::stat(path)?) == after {
        Ok(())
    } else {
        set_permissions(path, after)
    }
}

/// Sets permissions as the caller. Only members of the file's group, or a process with CAP_FSETID,
/// may set the set-group-id bit, so the kernel must see the caller. A sender that does not report
/// the caller has checked this itself.
fn set_permissions_as(request: &Request, path: &OwnedFd, permissions: Permissions) -> Result<()> {
    let depends = permissions.bits() & Permissions::SET_GID != 0;
    let _acting = if depends && request.credentials.are_known() {
        Some(acting_as_caller(request)?)
    } else {
        None
    };
    set_permissions(path, permissions)
}

/// Sets times. Kernels before Linux 5.8 can set them only by path.
fn set_times(path: &OwnedFd, times: &Timestamps) -> Result<()> {
    match rustix::fs::utimensat(path, "", times, ITSELF) {
        Err(Errno::INVAL) => set_times_by_path(path, times),
        answer => Ok(answer?),
    }
}

fn set_times_by_path(path: &OwnedFd, times: &Timestamps) -> Result<()> {
    Ok(rustix::fs::utimensat(CWD, proc_path(path), times, AtFlags::empty())?)
}

fn set_permissions(path: &OwnedFd, permissions: Permissions) -> Result<()> {
    let mode = Mode::from_raw_mode(permissions.bits());
    match rustix::fs::chmod(proc_path(path), mode) {
        // For a symbolic link, the kernel returns `ELOOP` here instead of the usual `EOPNOTSUPP`.
        Err(Errno::LOOP) => Err(Errno::OPNOTSUPP.into()),
        answer => Ok(answer?),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;
    use crate::types::{SetTime, Timestamp};

    /// Kernels before Linux 5.8 need the path of a descriptor, also for symbolic links.
    #[test]
    fn times_are_set_by_paths_of_descriptors() {
        let scratch = tempfile::tempdir().unwrap();
        let [file, link] = ["file", "link"].map(|name| scratch.path().join(name));
        std::fs::write(&file, b"").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        for (path, seconds) in [(&link, 1_000_000_000), (&file, 1_100_000_000)] {
            let flags = OFlags::PATH | OFlags::NOFOLLOW;
            let descriptor = rustix::fs::open(path, flags, Mode::empty()).unwrap();
            let modified = SetTime::To(Timestamp { seconds, nanoseconds: 7 });
            let times = attr::to_timestamps(None, Some(modified));
            set_times_by_path(&descriptor, &times).unwrap();
        }
        let modified = |path| std::fs::symlink_metadata(path).unwrap().mtime();
        assert_eq!((modified(&link), modified(&file)), (1_000_000_000, 1_100_000_000));
    }
}
