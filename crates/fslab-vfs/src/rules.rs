//! Rules that Linux imposes on any file system that stores files; shared by the leaves.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use crate::error::Errno;
use crate::types::{FallocateMode, FileKind};

pub mod acl;
pub mod inherit;
pub mod namespace;
mod protection;
pub mod set_id;

/// Maximum number of names of a file, as in ext4.
pub const LINKS_MAX: u32 = 65_000;

/// Maximum length of a symbolic link's target, in bytes: a path without its NUL byte.
pub const TARGET_BYTES_MAX: usize = 4095;

/// The xattr of file capabilities, which a change of contents or owner removes.
pub const CAPABILITY: &str = "security.capability";

/// Returns the kind of file that `mknod(2)` creates for a mode: a regular file if the mode has no
/// file type bits.
///
/// # Errors
/// `EPERM` for a directory, `EINVAL` for a symbolic link and for unknown kinds.
pub fn special_kind(mode: u32) -> Result<FileKind, Errno> {
    const FORMAT_BITS: u32 = 0o170_000;
    if mode & FORMAT_BITS == 0 {
        return Ok(FileKind::Regular);
    }
    match FileKind::from_mode(mode) {
        Some(FileKind::Directory) => Err(Errno::PERM),
        None | Some(FileKind::Symlink) => Err(Errno::INVAL),
        Some(kind) => Ok(kind),
    }
}

/// Checks the target of a symbolic link.
///
/// # Errors
/// `ENOENT` for an empty target, `ENAMETOOLONG` for one longer than a path.
pub fn check_target(target: &OsStr) -> Result<(), Errno> {
    match target.as_bytes().len() {
        0 => Err(Errno::NOENT),
        length if length > TARGET_BYTES_MAX => Err(Errno::NAMETOOLONG),
        _ => Ok(()),
    }
}

/// Returns the end of a range given to `fallocate`.
///
/// # Errors
/// `EINVAL` for an empty range, `EFBIG` for one that ends past the largest size.
pub fn check_range(offset: u64, length: u64, size_max: u64) -> Result<u64, Errno> {
    if length == 0 {
        return Err(Errno::INVAL);
    }
    offset.checked_add(length).filter(|end| *end <= size_max).ok_or(Errno::FBIG)
}

/// Checks that a mode of `fallocate` reserves, zeroes or punches. Moving ranges is not supported.
///
/// # Errors
/// `EOPNOTSUPP` for other modes.
pub fn check_fallocate(mode: FallocateMode) -> Result<(), Errno> {
    let reserve_or_zero = FallocateMode::KEEP_SIZE | FallocateMode::ZERO_RANGE;
    let punch = FallocateMode::KEEP_SIZE | FallocateMode::PUNCH_HOLE;
    if reserve_or_zero.contains(mode) || mode == punch { Ok(()) } else { Err(Errno::OPNOTSUPP) }
}
