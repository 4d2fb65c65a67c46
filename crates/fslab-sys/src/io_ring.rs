//! Reads and writes files through io_uring, with several requests in flight from one thread.
//!
//! The ring owns the memory that requests read into and write from. The memory of an in-flight
//! request is not accessible, and is released only when the kernel has finished with it.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, opcode};

/// The largest address alignment that direct I/O may require, in bytes.
const ALIGNMENT: usize = 4096;

#[derive(Clone, Copy)]
#[repr(C, align(4096))]
struct Page([u8; ALIGNMENT]);

/// Memory that is aligned for direct I/O.
pub struct AlignedBuffer {
    pages: Vec<Page>,
    length: usize,
}

impl AlignedBuffer {
    /// Creates a buffer of `length` zero bytes.
    #[must_use]
    pub fn new(length: usize) -> Self {
        Self { pages: vec![Page([0; ALIGNMENT]); length.div_ceil(ALIGNMENT)], length }
    }

    /// Returns the bytes.
    pub fn bytes(&mut self) -> &mut [u8] {
        let pages = self.pages.as_mut_ptr().cast();
        // SAFETY: a page is an array of bytes without padding, pages are contiguous, and together
        // they have at least this length.
        unsafe { std::slice::from_raw_parts_mut(pages, self.length) }
    }
}

/// The direction of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the file.
    Read,
    /// To the file.
    Write,
}

/// A completed request.
#[derive(Debug)]
pub struct Completion {
    /// The slot, which is free again.
    pub slot: usize,
    /// The number of bytes read or written, or the error of the kernel.
    pub result: io::Result<usize>,
}

struct Slot {
    buffer: AlignedBuffer,
    in_flight: bool,
}

/// A ring with one slot per in-flight request.
pub struct Ring {
    ring: IoUring,
    slots: Vec<Slot>,
    in_flight: usize,
    /// Whether a submission failed. Its entry may still be queued with a descriptor number that now
    /// belongs to another file, so nothing is submitted any more.
    is_broken: bool,
}

impl Ring {
    /// Creates a ring for `depth` requests in flight, each of at most `bytes` bytes.
    ///
    /// # Errors
    /// Fails with the error of the kernel: `ENOSYS` without io_uring, `EPERM` if it is forbidden.
    pub fn new(depth: u32, bytes: usize) -> io::Result<Self> {
        let ring = IoUring::new(depth.max(1))?;
        let slot = |_| Slot { buffer: AlignedBuffer::new(bytes), in_flight: false };
        let slots = (0..depth.max(1)).map(slot).collect();
        Ok(Self { ring, slots, in_flight: 0, is_broken: false })
    }

    /// Returns the number of requests in flight.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Returns a free slot.
    #[must_use]
    pub fn free_slot(&self) -> Option<usize> {
        self.slots.iter().position(|slot| !slot.in_flight)
    }

    /// Returns the memory of a slot, or `None` if the slot is in flight.
    pub fn buffer(&mut self, slot: usize) -> Option<&mut [u8]> {
        let slot = self.slots.get_mut(slot).filter(|slot| !slot.in_flight)?;
        Some(slot.buffer.bytes())
    }

    /// Starts a read or write of the whole memory of a free slot.
    ///
    /// # Errors
    /// Fails with `EBUSY` if the slot is in flight, with the error of the kernel if the submission
    /// fails, and with `EIO` after such a failure. The ring is then unusable.
    pub fn submit(
        &mut self,
        slot: usize,
        file: BorrowedFd<'_>,
        direction: Direction,
        offset: u64,
    ) -> io::Result<()> {
        self.check()?;
        let found = self.slots.get_mut(slot).filter(|slot| !slot.in_flight);
        let found = found.ok_or(rustix::io::Errno::BUSY)?;
        let bytes = found.buffer.bytes();
        let length = u32::try_from(bytes.len()).or(Err(rustix::io::Errno::INVAL))?;
        let file = Fd(file.as_raw_fd());
        let entry = match direction {
            Direction::Read => {
                opcode::Read::new(file, bytes.as_mut_ptr(), length).offset(offset).build()
            }
            Direction::Write => {
                opcode::Write::new(file, bytes.as_ptr(), length).offset(offset).build()
            }
        };
        let entry = entry.user_data(slot as u64);
        // SAFETY: the memory belongs to the slot and is not accessible until the completion is
        // taken. If the completion never arrives, the memory is leaked rather than released. The
        // kernel keeps a reference to the file from the following submission on.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        pushed.or(Err(rustix::io::Errno::BUSY))?;
        found.in_flight = true;
        self.in_flight += 1;
        let submitted = retry(|| self.ring.submit());
        self.is_broken = !matches!(submitted, Ok(1));
        if submitted? == 1 { Ok(()) } else { Err(rustix::io::Errno::BUSY.into()) }
    }

    fn check(&self) -> io::Result<()> {
        if self.is_broken { Err(rustix::io::Errno::IO.into()) } else { Ok(()) }
    }

    /// Waits until a request completes, for at most the given time. Returns immediately if no
    /// request is in flight or a completion is ready.
    ///
    /// # Errors
    /// Fails with the error of the kernel, or with `EIO` after a failed submission.
    pub fn wait(&mut self, most: Option<Duration>) -> io::Result<()> {
        self.check()?;
        if self.in_flight == 0 {
            return Ok(());
        }
        let Some(most) = most else {
            return retry(|| self.ring.submit_and_wait(1)).map(drop);
        };
        let time = Timespec::new().sec(most.as_secs()).nsec(most.subsec_nanos());
        let arguments = SubmitArgs::new().timespec(&time);
        match self.ring.submitter().submit_with_args(1, &arguments) {
            Ok(_) => Ok(()),
            Err(error)
                if [Some(libc::ETIME), Some(libc::EINTR)].contains(&error.raw_os_error()) =>
            {
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Takes a completed request.
    pub fn take(&mut self) -> Option<Completion> {
        let entry = self.ring.completion().next()?;
        let slot = entry.user_data() as usize;
        self.in_flight -= 1;
        self.slots.get_mut(slot)?.in_flight = false;
        let result = match entry.result() {
            error @ ..0 => Err(io::Error::from_raw_os_error(-error)),
            length => Ok(length.unsigned_abs() as usize),
        };
        Some(Completion { slot, result })
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        while self.in_flight > 0 {
            if let Err(error) = self.wait(None) {
                tracing::warn!(
                    "some requests are still in flight, so their memory is leaked: {error}"
                );
                std::mem::forget(std::mem::take(&mut self.slots));
                return;
            }
            while self.take().is_some() {}
        }
    }
}

fn retry<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::AsFd;

    use super::*;

    /// Creates a ring, or reports the test as skipped if the machine has no io_uring.
    fn ring(depth: u32) -> Option<Ring> {
        match Ring::new(depth, 4096) {
            Ok(ring) => Some(ring),
            Err(error) => {
                assert!(std::env::var_os("FSLAB_REQUIRE_ALL").is_none(), "io_uring: {error}");
                eprintln!("skipped: io_uring: {error}");
                None
            }
        }
    }

    #[test]
    fn requests_in_flight_are_each_answered_once() {
        let Some(mut ring) = ring(4) else { return };
        let mut file = tempfile::tempfile().unwrap();
        for block in 0..4_u8 {
            file.write_all(&[block; 4096]).unwrap();
        }
        for block in 0..4_u64 {
            let slot = ring.free_slot().unwrap();
            ring.submit(slot, file.as_fd(), Direction::Read, block * 4096).unwrap();
            assert_eq!(slot as u64, block);
        }
        assert!(ring.free_slot().is_none() && ring.buffer(0).is_none());
        assert!(ring.submit(0, file.as_fd(), Direction::Read, 0).is_err());
        let mut done = Vec::new();
        while ring.in_flight() > 0 {
            ring.wait(None).unwrap();
            while let Some(completion) = ring.take() {
                assert_eq!(completion.result.unwrap(), 4096);
                done.push(completion.slot);
            }
        }
        done.sort_unstable();
        assert_eq!(done, [0, 1, 2, 3]);
        for slot in 0..4 {
            assert!(ring.buffer(slot).unwrap().iter().all(|byte| usize::from(*byte) == slot));
        }
    }

    #[test]
    fn broken_ring_is_not_entered_again() {
        let Some(mut ring) = ring(2) else { return };
        let file = tempfile::tempfile().unwrap();
        ring.submit(0, file.as_fd(), Direction::Read, 0).unwrap();
        ring.is_broken = true;
        let error = ring.submit(1, file.as_fd(), Direction::Read, 0).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EIO));
        assert_eq!(ring.wait(None).unwrap_err().raw_os_error(), Some(libc::EIO));
        assert_eq!(ring.in_flight(), 1);
    }

    #[test]
    fn wait_times_out_and_completions_report_errors() {
        let Some(mut ring) = ring(1) else { return };
        let (read, mut write) = io::pipe().unwrap();
        // A pipe without data: the wait ends after the given time.
        ring.submit(0, read.as_fd(), Direction::Read, u64::MAX).unwrap();
        ring.wait(Some(Duration::from_millis(1))).unwrap();
        assert!(ring.take().is_none());
        write.write_all(&[7; 5]).unwrap();
        ring.wait(None).unwrap();
        assert_eq!(ring.take().unwrap().result.unwrap(), 5);
        ring.submit(0, read.as_fd(), Direction::Write, 0).unwrap();
        ring.wait(None).unwrap();
        let error = ring.take().unwrap().result.unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EBADF));
    }
}
