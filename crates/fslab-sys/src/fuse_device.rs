//! /dev/fuse: opening it, further descriptors of one connection, and backing files.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Result;

use crate::file_handle::check;

/// `_IOR(229, 0, uint32_t)`
const FUSE_DEV_IOC_CLONE: libc::c_ulong = 0x8004_e500;
/// `_IOW(229, 1, struct fuse_backing_map)`
const FUSE_DEV_IOC_BACKING_OPEN: libc::c_ulong = 0x4010_e501;
/// `_IOW(229, 2, uint32_t)`
const FUSE_DEV_IOC_BACKING_CLOSE: libc::c_ulong = 0x4004_e502;

/// The kernel's `struct fuse_backing_map`.
#[repr(C)]
struct BackingMap {
    descriptor: i32,
    flags: u32,
    padding: u64,
}

/// Opens the device; the descriptor is not yet part of a connection.
///
/// # Errors
/// `ENOENT` without FUSE in the kernel, `EACCES` without permission to use it.
pub fn open() -> Result<OwnedFd> {
    open_with(OFlags::empty())
}

fn open_with(flags: OFlags) -> Result<OwnedFd> {
    rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC | flags, Mode::empty())
}

/// Makes another descriptor of a connection, so that requests can be read in parallel. If `waits`,
/// reads block until a request arrives; otherwise they fail with `EAGAIN` if there is none.
///
/// # Errors
/// `EINVAL` before the first descriptor is mounted.
pub fn clone(connection: BorrowedFd<'_>, waits: bool) -> Result<OwnedFd> {
    let descriptor = open_with(if waits { OFlags::empty() } else { OFlags::NONBLOCK })?;
    let mut source = connection.as_raw_fd() as u32;
    // SAFETY: the request reads one 32-bit number through the pointer, to a live local variable.
    let answer =
        unsafe { libc::ioctl(descriptor.as_raw_fd(), FUSE_DEV_IOC_CLONE as _, &raw mut source) };
    check(libc::c_long::from(answer))?;
    Ok(descriptor)
}

/// Whether the file system of a connection is still mounted, or detached but still in use. An
/// aborted connection is treated as ended, although its mount still exists.
#[must_use]
pub fn is_connected(connection: impl AsFd) -> bool {
    let mut polled = [PollFd::new(&connection, PollFlags::empty())];
    match poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) {
        Ok(_) => !polled[0].revents().contains(PollFlags::ERR),
        // The state of the connection is unknown.
        Err(_) => false,
    }
}

/// Registers an open file with the kernel as a backing file. Returns the id to be used in replies
/// to opens.
///
/// # Errors
/// `EPERM` without CAP_SYS_ADMIN, `ELOOP` for a file of a stacked file system.
pub fn register_backing(connection: impl AsFd, file: impl AsFd) -> Result<i32> {
    let map = BackingMap { descriptor: file.as_fd().as_raw_fd(), flags: 0, padding: 0 };
    let connection = connection.as_fd().as_raw_fd();
    // SAFETY: the request reads a `struct fuse_backing_map` through the pointer, to a live local
    // variable of that layout.
    let answer = unsafe { libc::ioctl(connection, FUSE_DEV_IOC_BACKING_OPEN as _, &raw const map) };
    check(libc::c_long::from(answer)).map(|identifier| identifier as i32)
}

/// Releases the id of a backing file. Files that were opened with it continue to use the backing
/// file.
///
/// # Errors
/// `ENOENT` for an id that is not registered.
pub fn release_backing(connection: impl AsFd, identifier: i32) -> Result<()> {
    let identifier = identifier as u32;
    let connection = connection.as_fd().as_raw_fd();
    // SAFETY: the request reads one 32-bit number through the pointer, to a live local variable.
    let answer =
        unsafe { libc::ioctl(connection, FUSE_DEV_IOC_BACKING_CLOSE as _, &raw const identifier) };
    check(libc::c_long::from(answer)).map(|_| ())
}
