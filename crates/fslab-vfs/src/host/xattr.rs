//! Extended attributes and POSIX ACLs of a lower inode.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;

use rustix::fs::XattrFlags;
use rustix::thread::CapabilitySet;

use crate::error::{Errno, Result};
use crate::host::lower::proc_path;
use crate::types::{Request, XattrMode};

/// Size of the first buffer, in which nearly every value and list fits.
const FIRST_TRY_BYTES: usize = 512;

pub(super) fn get(path: &OwnedFd, name: &OsStr) -> Result<Vec<u8>> {
    let path = proc_path(path);
    fetch(
        |buffer| rustix::fs::getxattr(&path, name, buffer),
        || rustix::fs::getxattr_query(&path, name),
    )
}

/// Returns the names that a caller may see. Only callers with CAP_SYS_ADMIN see `trusted.` names.
pub(super) fn list(request: &Request, path: &OwnedFd) -> Result<Vec<u8>> {
    let path = proc_path(path);
    let names = fetch(
        |buffer| rustix::fs::listxattr(&path, buffer),
        || rustix::fs::listxattr_query(&path),
    )?;
    let is_trusted = |name: &[u8]| name.starts_with(b"trusted.");
    let mut each = names.split_inclusive(|byte| *byte == 0);
    if !each.any(is_trusted) || has_capability(request, CapabilitySet::SYS_ADMIN) {
        return Ok(names);
    }
    let shown = names.split_inclusive(|byte| *byte == 0).filter(|name| !is_trusted(name));
    Ok(shown.flatten().copied().collect())
}

/// Sets an xattr. [`XattrMode::KILL_SET_GROUP_ID`] is not handled here.
pub(super) fn set(path: &OwnedFd, name: &OsStr, value: &[u8], mode: XattrMode) -> Result<()> {
    let flags = XattrFlags::from_bits_retain((mode - XattrMode::KILL_SET_GROUP_ID).bits());
    let path = proc_path(path);
    Ok(rustix::fs::setxattr(path, name, value, flags)?)
}

/// Sets the security labels of a new inode.
pub(super) fn label(request: &Request, path: &OwnedFd) -> Result<()> {
    let mut labels = request.creation.labels.iter();
    labels.try_for_each(|(name, value)| {
        Ok(rustix::fs::setxattr(proc_path(path), name, value, XattrFlags::empty())?)
    })
}

/// Whether a caller has a capability. A request made by this process itself has no thread id. Such
/// a request has all capabilities if its user is root.
fn has_capability(request: &Request, capability: CapabilitySet) -> bool {
    match request.pid {
        0 => request.credentials.uid == 0,
        pid => fslab_sys::credentials::has_capability(pid, capability),
    }
}

/// Reads data whose size is unknown and may change between two calls.
fn fetch(
    read: impl Fn(&mut [u8]) -> rustix::io::Result<usize>,
    query: impl Fn() -> rustix::io::Result<usize>,
) -> Result<Vec<u8>> {
    let mut buffer = vec![0; FIRST_TRY_BYTES];
    loop {
        match read(&mut buffer) {
            Ok(length) => {
                buffer.truncate(length);
                return Ok(buffer);
            }
            Err(Errno::RANGE) => buffer.resize(query()?.max(buffer.len() * 2), 0),
            Err(error) => return Err(error.into()),
        }
    }
}
