//! How requests come and replies go. The trait is what a second way (io_uring) must offer.

use std::io::IoSlice;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use fslab_vfs::Errno;
use rustix::event::{PollFd, PollFlags, poll};
use zerocopy::IntoBytes;

use crate::protocol::reply::OutHeader;

/// One thread's way to the kernel.
pub(crate) trait Channel: Send + Sync {
    /// Waits for the next request and answers its length; `None` when the mount is gone. Stays
    /// awake for `patience` before it sleeps.
    fn receive(&self, buffer: &mut [u8], patience: Duration) -> Result<Option<usize>, Errno>;

    /// Answers a request: with an error, or with a payload.
    fn reply(&self, unique: u64, answer: Result<&[u8], Errno>) -> Result<(), Errno>;

    /// Sends a notice.
    fn notify(&self, code: i32, parts: &[&[u8]]) -> Result<(), Errno>;
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

    /// One more descriptor of the same connection, so that threads do not share one.
    pub fn another(&self) -> Result<Self, Errno> {
        fslab_sys::fuse_device::clone(self.device.as_fd()).map(Self::new)
    }

    /// The descriptor, for what concerns the whole connection.
    pub fn device(&self) -> &OwnedFd {
        &self.device
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
}
