//! `FS_IOC_FSGETXATTR` and `FS_IOC_FSSETXATTR`: inode flags, extent size hints and the project of a
//! file. (`FS_IOC_GETFLAGS` and `FS_IOC_SETFLAGS` are in rustix.)

use std::os::fd::{AsFd, AsRawFd};

use rustix::io::Errno;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::file_handle::check;

const GET: u32 = 0x801c_581f;
const SET: u32 = 0x401c_5820;

/// The kernel's `struct fsxattr`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Fsxattr {
    /// `FS_XFLAG_*` bits.
    pub xflags: u32,
    /// Extent size hint, in bytes.
    pub extent_size: u32,
    /// Number of extents; ignored when set.
    pub extents: u32,
    /// Project identifier.
    pub project: u32,
    /// Extent size hint for copy-on-write, in bytes.
    pub cow_extent_size: u32,
    /// Must be zero.
    pub padding: [u8; 8],
}
const _: () = assert!(size_of::<Fsxattr>() == 28);

/// Reads the attributes of an open file or directory.
///
/// # Errors
/// `ENOTTY` or `EOPNOTSUPP` if the file system does not support them.
pub fn get(file: impl AsFd) -> Result<Fsxattr, Errno> {
    let mut attributes = Fsxattr::default();
    call(file, GET, &mut attributes)?;
    Ok(attributes)
}

/// Sets the attributes of an open file or directory.
///
/// # Errors
/// `EPERM` for callers other than the owner and for flags that need a capability; `EOPNOTSUPP` or
/// `EINVAL` for unsupported attributes.
pub fn set(file: impl AsFd, mut attributes: Fsxattr) -> Result<(), Errno> {
    call(file, SET, &mut attributes)
}

fn call(file: impl AsFd, request: u32, attributes: &mut Fsxattr) -> Result<(), Errno> {
    let descriptor = file.as_fd().as_raw_fd();
    let argument: *mut Fsxattr = attributes;
    // SAFETY: the descriptor is open, and both requests read or write one `struct fsxattr`.
    let answer = unsafe { libc::ioctl(descriptor, libc::c_ulong::from(request) as _, argument) };
    check(answer.into()).map(|_| ())
}
