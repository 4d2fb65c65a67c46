//! How requests come and replies go. The trait is what a second way (io_uring) must offer.

use std::fmt::Debug;
use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fslab_vfs::Errno;
use rustix::event::{PollFd, PollFlags, poll};
use zerocopy::IntoBytes;

use crate::protocol::reply::OutHeader;

/// One thread's way to the kernel.
pub(crate) trait Channel: Debug + Send + Sync {
    /// Waits for the next request and answers its length; `None` when the mount is gone. Stays
    /// awake for `patience` before it sleeps.
    fn receive(&self, buffer: &mut [u8], patience: Duration) -> Result<Option<usize>, Errno>;

    /// Answers a request: with an error, or with a payload.
    fn reply(&self, unique: u64, answer: Result<&[u8], Errno>) -> Result<(), Errno>;

    /// Sends a notice.
    fn notify(&self, code: i32, parts: &[&[u8]]) -> Result<(), Errno>;

    /// One more way of the same connection, so that threads do not share one.
    fn another(&self) -> Result<Arc<dyn Channel>, Errno>;

    /// Makes an open file known to the kernel, to be named in replies to openings.
    fn register_backing(&self, file: BorrowedFd<'_>) -> Result<i32, Errno>;

    /// Takes a registered file back; openings that use it keep it.
    fn release_backing(&self, identifier: i32) -> Result<(), Errno>;
}

/// A descriptor of /dev/fuse.
#[derive(Debug)]
pub(crate) struct DeviceChannel {
    device: OwnedFd,
}

impl DeviceChannel {
    pub fn new(device: OwnedFd) -> Self {
        Self { device }
    }

    fn sleep_until_readable(&self) -> Result<(), Errno> {
        match poll(&mut [PollFd::new(&self.device, PollFlags::IN)], None) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error),
        }
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
        // The kernel takes all of a reply or none of it.
        rustix::io::writev(&self.device, &slices[..=parts.len()]).map(|_all| ())
    }
}

impl Channel for DeviceChannel {
    fn receive(&self, buffer: &mut [u8], patience: Duration) -> Result<Option<usize>, Errno> {
        let start = Instant::now();
        loop {
            match rustix::io::read(&self.device, &mut *buffer) {
                Ok(length) => return Ok(Some(length)),
                Err(Errno::AGAIN) if start.elapsed() < patience => rustix::thread::sched_yield(),
                Err(Errno::AGAIN) => self.sleep_until_readable()?,
                // ENOENT: the request was interrupted between being chosen and being read.
                Err(Errno::INTR | Errno::NOENT) => {}
                // Unmounted, or the connection was aborted.
                Err(Errno::NODEV | Errno::CONNABORTED) => return Ok(None),
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

    fn another(&self) -> Result<Arc<dyn Channel>, Errno> {
        let device = fslab_sys::fuse_device::clone(self.device.as_fd())?;
        Ok(Arc::new(Self::new(device)))
    }

    fn register_backing(&self, file: BorrowedFd<'_>) -> Result<i32, Errno> {
        fslab_sys::fuse_device::register_backing(&self.device, file)
    }

    fn release_backing(&self, identifier: i32) -> Result<(), Errno> {
        fslab_sys::fuse_device::release_backing(&self.device, identifier)
    }
}
