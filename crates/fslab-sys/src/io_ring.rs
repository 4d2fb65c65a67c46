//! Reads and writes of files by io_uring, several at a time by one thread.
//!
//! The ring owns the memory that requests read to and write from: nobody else reaches the memory
//! of a request in flight, and it is given back only when the kernel is done with it.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, opcode};

/// What direct I/O may ask of an address.
const ALIGNMENT: usize = 4096;

#[derive(Clone, Copy)]
#[repr(C, align(4096))]
struct Page([u8; ALIGNMENT]);

/// Memory at an address that direct I/O takes.
pub struct AlignedBuffer {
    pages: Vec<Page>,
    length: usize,
}

impl AlignedBuffer {
    /// So many zeros.
    #[must_use]
    pub fn new(length: usize) -> Self {
        Self { pages: vec![Page([0; ALIGNMENT]); length.div_ceil(ALIGNMENT)], length }
    }

    /// The bytes.
    pub fn bytes(&mut self) -> &mut [u8] {
        let pages = self.pages.as_mut_ptr().cast();
        // SAFETY: a page is an array of bytes without padding, pages lie behind each other, and
        // together they have at least this length.
        unsafe { std::slice::from_raw_parts_mut(pages, self.length) }
    }
}

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the file.
    Read,
    /// To the file.
    Write,
}

/// A request that is done.
#[derive(Debug)]
pub struct Completion {
    /// Its slot, which is free again.
    pub slot: usize,
    /// Bytes read or written, or what the kernel answered.
    pub result: io::Result<usize>,
}

struct Slot {
    buffer: AlignedBuffer,
    in_flight: bool,
}

/// A ring with a slot for each request that may be in flight.
pub struct Ring {
    ring: IoUring,
    slots: Vec<Slot>,
    in_flight: usize,
    /// A submission failed: its entry may still be queued with the number of a descriptor that is
    /// another file by now, so the kernel is not entered any more.
    is_broken: bool,
}

impl Ring {
    /// Of so many requests at a time, each of at most `bytes` bytes.
    ///
    /// # Errors
    /// What the kernel answers: `ENOSYS` where it has no io_uring, `EPERM` where it is forbidden.
    pub fn new(depth: u32, bytes: usize) -> io::Result<Self> {
        let ring = IoUring::new(depth.max(1))?;
        let slot = |_| Slot { buffer: AlignedBuffer::new(bytes), in_flight: false };
        let slots = (0..depth.max(1)).map(slot).collect();
        Ok(Self { ring, slots, in_flight: 0, is_broken: false })
    }

    /// Requests in flight.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// A slot that is free.
    #[must_use]
    pub fn free_slot(&self) -> Option<usize> {
        self.slots.iter().position(|slot| !slot.in_flight)
    }

    /// The memory of a slot; `None` for one in flight.
    pub fn buffer(&mut self, slot: usize) -> Option<&mut [u8]> {
        let slot = self.slots.get_mut(slot).filter(|slot| !slot.in_flight)?;
        Some(slot.buffer.bytes())
    }

    /// Starts to read or write the whole memory of a free slot.
    ///
    /// # Errors
    /// `EBUSY` for a slot in flight, what the kernel answers, and `EIO` after such an answer: the
    /// ring is of no use then.
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
        // SAFETY: the memory lives in the slot, which nobody reaches until the completion was
        // taken, and which is leaked rather than given back where that can't be had. The kernel
        // holds the file from the submission on, which is below.
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

    /// Waits until a request is done, so long at most where a time is given. It returns at once
    /// where nothing is in flight, and where a completion is there to be taken.
    ///
    /// # Errors
    /// What the kernel answers, and `EIO` after a submission that failed.
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

    /// Takes a request that is done.
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
                tracing::warn!("requests stay in flight, and their memory with them: {error}");
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

    /// A ring, unless the machine has none, which is said.
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
    fn broken_ring_is_entered_no_more() {
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
    fn errors_and_times_are_told() {
        let Some(mut ring) = ring(1) else { return };
        let (read, mut write) = io::pipe().unwrap();
        // A pipe that nobody writes to: the wait ends by its time.
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
