//! Attributes of one mount, and copies of mounts with other attributes.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::io::Result;
use rustix::mount::{OpenTreeFlags, open_tree};

use crate::file_handle::check;

/// The number of mount_setattr(2). It is the same on every architecture except alpha.
const SYS_MOUNT_SETATTR: libc::c_long = 442;
/// `AT_RECURSIVE`
const RECURSIVE: libc::c_int = 0x8000;
/// `MOUNT_ATTR__ATIME`: the bits that select one access time option.
const ACCESS_TIME_BITS: u64 = 0x70;
/// `MOUNT_ATTR_RELATIME`
const RELATIVE: u64 = 0;
/// `MOUNT_ATTR_NOATIME`
const NEVER: u64 = 0x10;
/// `MOUNT_ATTR_NODIRATIME`
const NOT_OF_DIRECTORIES: u64 = 0x80;

/// The kernel's `struct mount_attr`.
#[repr(C)]
#[derive(Default)]
pub struct MountAttributes {
    /// `MOUNT_ATTR_*` bits to set.
    pub set: u64,
    /// `MOUNT_ATTR_*` bits to clear first.
    pub clear: u64,
    /// Propagation of mounts and unmounts below the mount: one of `MS_*`, or 0 to leave it
    /// unchanged.
    pub propagation: u64,
    /// The descriptor of a user namespace that maps ids.
    pub user_namespace: u64,
}

impl MountAttributes {
    /// Sets the attributes on the mount with the root `tree`; with `recursive`, on all mounts below
    /// it, too.
    ///
    /// # Errors
    /// `EPERM` without CAP_SYS_ADMIN, `EINVAL` if the kernel or the file system does not allow it,
    /// `ENOSYS` before Linux 5.12.
    pub fn give_to(&self, tree: impl AsFd, recursive: bool) -> Result<()> {
        let recursive = if recursive { RECURSIVE } else { 0 };
        // SAFETY: the path is a live C string, and the structure has the layout and the size that
        // are passed; the kernel only reads both.
        let answer = unsafe {
            libc::syscall(
                SYS_MOUNT_SETATTR,
                tree.as_fd().as_raw_fd(),
                c"".as_ptr(),
                libc::AT_EMPTY_PATH | recursive,
                &raw const *self,
                size_of::<Self>(),
            )
        };
        check(answer).map(|_| ())
    }
}

/// Copies a directory's mount, and the mounts below it, with other access time options. `files` and
/// `directories` select whose access times are updated, as with `relatime`. The copy is not visible
/// to other processes, and ends when its last descriptor is closed.
///
/// File systems mounted later below the directory are not in the copy.
///
/// # Errors
/// `EPERM` without CAP_SYS_ADMIN, `ENOSYS` before Linux 5.12.
pub fn copy_with_access_times(
    directory: impl AsFd,
    files: bool,
    directories: bool,
) -> Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH
        | OpenTreeFlags::AT_RECURSIVE;
    let tree = open_tree(directory, "", flags)?;
    let set_of_files = if files { RELATIVE } else { NEVER };
    let (set, clear) = match directories {
        true => (set_of_files, ACCESS_TIME_BITS | NOT_OF_DIRECTORIES),
        false => (set_of_files | NOT_OF_DIRECTORIES, ACCESS_TIME_BITS),
    };
    MountAttributes { set, clear, ..MountAttributes::default() }.give_to(&tree, true)?;
    Ok(tree)
}
