//! Creates files as the caller, and undoes creations.

use std::os::fd::OwnedFd;

use fslab_sys::credentials::{ActingAs, Groups, ThreadUmask};
use rustix::fs::AtFlags;

use crate::error::Result;
use crate::types::{FileKind, Name, Request};

/// Runs a creating system call with the caller's ids, groups and umask.
pub(super) fn as_caller<T>(
    request: &Request,
    create: impl FnOnce() -> rustix::io::Result<T>,
) -> Result<T> {
    let _umask = ThreadUmask::set(request.umask)?;
    let _acting = acting_as_caller(request)?;
    Ok(create()?)
}

pub(super) fn acting_as_caller(request: &Request) -> rustix::io::Result<ActingAs> {
    let told = request.creation.groups.as_deref();
    let groups = told.map_or(Groups::OfThread(request.pid), Groups::These);
    ActingAs::caller(request.credentials.uid, request.credentials.gid, groups)
}

/// Removes a new file whose security labels could not be set.
pub(super) fn unlink_or_say(directory: &OwnedFd, name: Name<'_>, kind: FileKind) {
    let is_directory = kind == FileKind::Directory;
    let flags = if is_directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
    if let Err(error) = rustix::fs::unlinkat(directory, name.as_os_str(), flags) {
        tracing::error!(
            %error,
            name = ?name.as_os_str(),
            "can't remove a new file whose security labels could not be set"
        );
    }
}
