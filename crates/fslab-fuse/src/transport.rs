//! Receives requests and sends replies through /dev/fuse; a test double implements the same trait.
//! The alternative is `uring`.

use std::fmt::Debug;
use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use fslab_vfs::Errno;
use zerocopy::IntoBytes;

use crate::protocol::reply::OutHeader;

/// Result of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Received {
    /// A request of this many bytes.
    Request(usize),
    /// No request yet, on a non-blocking descriptor.
    Nothing,
    /// The file system was unmounted.
    Gone,
}

/// The behaviour of a read if no request is pending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadMode {
    /// The read sleeps until a request arrives.
    Blocking,
    /// The read returns [`Received::Nothing`] at once.
    NonBlocking,
}

/// A connection to the kernel, as used by one thread.
pub(crate) trait Transport: Debug + Send + Sync {
    /// Reads the next request.
    fn receive(&self, buffer: &mut [u8]) -> Result<Received, Errno>;

    /// Replies to a request received from this transport: with an error or a payload.
    fn reply(&self, unique: u64, answer: Result<&[u8], Errno>) -> Result<(), Errno>;

    /// Sends a notification.
    fn notify(&self, code: i32, parts: &[&[u8]]) -> Result<(), Errno>;

    /// Opens another descriptor of the same connection, so that threads need not share one.
    fn another(&self, reading: ReadMode) -> Result<Arc<dyn Transport>, Errno>;

    /// Registers an open file with the kernel as a backing file. Returns the id to be used in
    /// replies to opens.
    fn register_backing(&self, file: BorrowedFd<'_>) -> Result<i32, Errno>;

    /// Releases the id of a backing file. Files that were opened with it continue to use the
    /// backing file.
    fn release_backing(&self, identifier: i32) -> Result<(), Errno>;

    /// The descriptor of /dev/fuse, if there is one.
    fn device(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Whether the file system is still mounted anywhere. The kernel ends the connection before it
    /// reuses the device number of the file system.
    fn is_connected(&self) -> bool;
}

/// A descriptor of /dev/fuse.
#[derive(Debug)]
pub(crate) struct DeviceTransport {
    device: OwnedFd,
}

impl DeviceTransport {
    pub fn new(device: OwnedFd) -> Self {
        Self { device }
    }

    fn send(&self, error: i32, unique: u64, parts: &[&[u8]]) -> Result<(), Errno> {
        let length = size_of::<OutHeader>() + parts.iter().map(|part| part.len()).sum::<usize>();
        let length = u32::try_from(length).map_err(|_long| Errno::TOOBIG)?;
        let header = OutHeader { len: length, error, unique };
        let mut slices = [IoSlice::new(&[]); 4];
        slices[0] = IoSlice::new(header.as_bytes());
        for (slice, part) in slices[1..].iter_mut().zip(parts) {
            *slice = IoSlice::new(part);
        }
        // The kernel accepts a whole reply or nothing.
        rustix::io::writev(&self.device, &slices[..=parts.len()]).map(|_all| ())
    }
}

impl Transport for DeviceTransport {
    fn receive(&self, buffer: &mut [u8]) -> Result<Received, Errno> {
        loop {
            match rustix::io::read(&self.device, &mut *buffer) {
                Ok(length) => return Ok(Received::Request(length)),
                Err(Errno::AGAIN) => return Ok(Received::Nothing),
                // ENOENT: the request was interrupted while the kernel was delivering it.
                Err(Errno::INTR | Errno::NOENT) => {}
                // The file system was unmounted, or the connection was aborted.
                Err(Errno::NODEV | Errno::CONNABORTED) => return Ok(Received::Gone),
                Err(error) => return Err(error),
            }
        }
    }

    fn reply(&self, unique: u64, answer: Result<&[u8], Errno>) -> Result<(), Errno> {
        match answer {
            Ok(payload) => self.send(0, unique, &[payload]),
            Err(errno) => self.send(-errno.raw_os_error(), unique, &[]),
        }
    }

    fn notify(&self, code: i32, parts: &[&[u8]]) -> Result<(), Errno> {
        self.send(code, 0, parts)
    }

    fn another(&self, reading: ReadMode) -> Result<Arc<dyn Transport>, Errno> {
        let waits = reading == ReadMode::Blocking;
        let device = fslab_sys::fuse_device::clone(self.device.as_fd(), waits)?;
        Ok(Arc::new(Self::new(device)))
    }

    fn register_backing(&self, file: BorrowedFd<'_>) -> Result<i32, Errno> {
        fslab_sys::fuse_device::register_backing(&self.device, file)
    }

    fn release_backing(&self, identifier: i32) -> Result<(), Errno> {
        fslab_sys::fuse_device::release_backing(&self.device, identifier)
    }

    fn device(&self) -> Option<BorrowedFd<'_>> {
        Some(self.device.as_fd())
    }

    fn is_connected(&self) -> bool {
        fslab_sys::fuse_device::is_connected(&self.device)
    }
}
