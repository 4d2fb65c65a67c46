//! `XFS_IOC_BULKSTAT`: data about an XFS inode, given only its number. Only root may use it.

use std::os::fd::{AsFd, AsRawFd};

use rustix::io::Errno;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use crate::file_handle::check;

/// `_IOR('X', 127, struct xfs_bulkstat_req)`; the encoded size is that of the header only.
const BULKSTAT: libc::c_ulong = 0x8040_587f;

/// `XFS_BULK_IREQ_SPECIAL`: the number stands for a special inode.
const SPECIAL: u32 = 1 << 1;

/// `XFS_BULK_IREQ_SPECIAL_ROOT`: the root directory.
const SPECIAL_ROOT: u64 = 1;

/// The kernel's `struct xfs_bulkstat_req` with space for one inode; most fields of its `struct
/// xfs_bulkstat` are not named here.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct OneInode {
    start: u64,
    flags: u32,
    wanted_count: u32,
    found_count: u32,
    group: u32,
    reserved: [u64; 5],
    number: u64,
    sizes_and_times: [u64; 7],
    generation: u32,
    rest: [u32; 31],
}
const _: () = assert!(size_of::<OneInode>() == 64 + 192);

/// Returns the number of the root directory of the XFS file system that contains an open file.
///
/// # Errors
/// `ENOTTY` on other file systems, `EPERM` without CAP_SYS_ADMIN.
pub fn root(file: impl AsFd) -> Result<u64, Errno> {
    let root = ask(file, SPECIAL_ROOT, SPECIAL)?;
    root.map(|root| root.number).ok_or(Errno::STALE)
}

/// Returns the generation of the inode that currently has a number.
///
/// # Errors
/// `ESTALE` if no inode has the number; otherwise as for [`root`].
pub fn generation(file: impl AsFd, number: u64) -> Result<u32, Errno> {
    // If the number is free, the kernel returns the next inode.
    let found = ask(file, number, 0)?.filter(|found| found.number == number);
    found.map(|found| found.generation).ok_or(Errno::STALE)
}

fn ask(file: impl AsFd, start: u64, flags: u32) -> Result<Option<OneInode>, Errno> {
    let mut request = OneInode { start, flags, wanted_count: 1, ..OneInode::new_zeroed() };
    let descriptor = file.as_fd().as_raw_fd();
    let argument: *mut OneInode = &raw mut request;
    // SAFETY: the descriptor is open, and after the header there is room for the one requested
    // inode.
    let answer = unsafe { libc::ioctl(descriptor, BULKSTAT as _, argument) };
    check(answer.into())?;
    Ok((request.found_count == 1).then_some(request))
}
