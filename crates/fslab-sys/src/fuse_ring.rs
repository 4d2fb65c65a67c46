//! FUSE over io_uring: one entry of a queue, with its own ring.
//!
//! The kernel delivers the requests of each processor to the queue of that processor. An entry
//! carries one request at a time. It is *available* in the kernel until a request arrives, and then
//! *taken* until the reply; the reply makes it available again. Each request takes one system call,
//! which sends the previous reply and waits for the request.
//!
//! An entry belongs to the thread that created it. The kernel copies requests and replies only
//! while that thread is in [`FuseRing::take`]. So the entry's memory does not change while it is
//! borrowed. Layout and numbers are those of `linux/fuse.h`, protocol 7.42 (Linux 6.14).

use std::io;
use std::marker::PhantomData;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use io_uring::squeue::Entry128;
use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode};
use rustix::io::Errno;

use crate::mapping::Mapping;

const COMMAND_REGISTER: u32 = 1;
const COMMAND_COMMIT_AND_FETCH: u32 = 2;

/// Bytes of the first header of a request, `struct fuse_in_header`.
const IN_HEADER_BYTES: usize = 40;
/// Bytes of the header of a reply, `struct fuse_out_header`.
const OUT_HEADER_BYTES: usize = 16;

/// Offset of the payload in an entry's memory: after the page of the headers. The two request
/// headers are copied to the bytes just in front of the payload, so that headers and payload form
/// one slice.
const PAYLOAD_START: usize = 4096;

/// Bytes of memory that the payload of an idle entry may keep.
pub const IDLE_BYTES_MAX: usize = 64 << 10;
/// Time after which an idle entry frees its memory beyond [`IDLE_BYTES_MAX`].
const IDLE_TIME: Duration = Duration::from_secs(1);

/// The kernel's `struct fuse_uring_req_header`.
#[repr(C)]
struct Headers {
    in_out: [u8; 128],
    operation: [u8; 128],
    flags: u64,
    commit_id: u64,
    payload_bytes: u32,
    padding: u32,
    reserved: u64,
}

const _: () = assert!(size_of::<Headers>() == 288 && size_of::<Headers>() < PAYLOAD_START - 256);

/// The kernel's `struct fuse_uring_cmd_req`, at the beginning of a command's 80 bytes.
fn command(commit_id: u64, queue: u16) -> [u8; 80] {
    let mut bytes = [0; 80];
    bytes[8..16].copy_from_slice(&commit_id.to_ne_bytes());
    bytes[16..18].copy_from_slice(&queue.to_ne_bytes());
    bytes
}

/// Result of waiting for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// A request arrived: see [`FuseRing::request`].
    Request,
    /// The connection has ended.
    Gone,
}

/// An entry of a queue. It can't be sent to another thread.
pub struct FuseRing {
    ring: IoUring<Entry128, cqueue::Entry>,
    memory: Mapping,
    device: Arc<OwnedFd>,
    queue: u16,
    commit_id: u64,
    /// The number of the last request taken.
    unique: [u8; 8],
    request: Range<usize>,
    /// Number of bytes at the beginning of the payload whose memory may be in use.
    touched_bytes: usize,
    /// Keeps the entry on one thread, because the kernel binds the ring to the thread.
    one_thread: PhantomData<*const ()>,
}

impl std::fmt::Debug for FuseRing {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("FuseRing").field("queue", &self.queue).finish_non_exhaustive()
    }
}

impl FuseRing {
    /// Makes an entry for requests with at most this many bytes after their headers; it is not yet
    /// registered.
    ///
    /// # Errors
    /// `ENOSYS` or `EPERM` if io_uring is missing or not allowed, `EINVAL` before Linux 6.1,
    /// `ENOMEM` or `EMFILE` without enough memory or descriptors.
    pub fn new(device: Arc<OwnedFd>, queue: u16, payload_bytes: usize) -> io::Result<Self> {
        let ring = IoUring::builder()
            .dontfork()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_submit_all()
            .build(2)?;
        Ok(Self {
            ring,
            memory: Mapping::new(PAYLOAD_START + payload_bytes)?,
            device,
            queue,
            commit_id: 0,
            unique: [0; 8],
            request: 0..0,
            touched_bytes: 0,
            one_thread: PhantomData,
        })
    }

    /// Makes the entry available to the kernel. From then on, the kernel may assign requests to the
    /// entry, so [`Self::take`] must be called.
    ///
    /// # Errors
    /// `EOPNOTSUPP` if the machine does not allow FUSE over io_uring; `EINVAL` for a queue unknown
    /// to the kernel or a payload shorter than its largest request.
    pub fn register(&mut self) -> io::Result<()> {
        let payload_bytes = self.memory.len() - PAYLOAD_START;
        let start = self.memory.as_mut_ptr();
        let part = |offset: usize, length| libc::iovec {
            iov_base: start.wrapping_add(offset).cast(),
            iov_len: length,
        };
        let parts = [part(0, size_of::<Headers>()), part(PAYLOAD_START, payload_bytes)];
        let entry = opcode::UringCmd80::new(Fd(self.device.as_raw_fd()), COMMAND_REGISTER)
            .cmd(command(0, self.queue))
            .addr(Some(parts.as_ptr() as u64))
            .build();
        self.push(&with_length(entry, parts.len() as u32))?;
        // The kernel reads `parts` now and never again.
        self.ring.submit()?;
        match self.ring.completion().next() {
            None => Ok(()),
            // A registered entry completes when a request arrives. So a completion at this point is
            // an error.
            Some(answer) => Err(io::Error::from_raw_os_error(-answer.result())),
        }
    }

    fn push(&mut self, entry: &Entry128) -> io::Result<()> {
        // SAFETY: a command points to this entry's own mapping, which lives as long as the ring, or
        // to data that is read while the command is submitted.
        let pushed = unsafe { self.ring.submission().push(entry) };
        pushed.map_err(io::Error::other)
    }

    /// Sends the reply to the previous request, if [`Self::answer`] was called, and waits for the
    /// next request.
    ///
    /// # Errors
    /// The error of the kernel for a refused reply. The kernel can't use the entry until it is
    /// registered again.
    pub fn take(&mut self) -> io::Result<Taken> {
        loop {
            let waited = if self.touched_bytes > IDLE_BYTES_MAX {
                let time = Timespec::from(IDLE_TIME);
                self.ring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&time))
            } else {
                self.ring.submit_and_wait(1)
            };
            match waited.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(Errno::TIME) => self.give_memory_back(),
                Err(errno) => return Err(errno.into()),
            }
            let answer = self.ring.completion().next();
            if let Some(answer) = answer {
                return self.read_request(answer.result());
            }
        }
    }

    fn read_request(&mut self, result: i32) -> io::Result<Taken> {
        match -result {
            ..=0 => {}
            libc::ENOTCONN | libc::ECONNABORTED | libc::ENODEV => return Ok(Taken::Gone),
            error => return Err(io::Error::from_raw_os_error(error)),
        }
        let headers = self.headers();
        let (in_header, operation) = (headers.in_out, headers.operation);
        let payload_bytes = headers.payload_bytes as usize;
        (self.commit_id, self.unique) = (headers.commit_id, array(&in_header[8..16]));
        let length = u32::from_ne_bytes(array(&in_header[..4]));
        // The bytes that are neither header nor payload are the operation's header.
        let operation_bytes = (length as usize)
            .checked_sub(IN_HEADER_BYTES + payload_bytes)
            .filter(|bytes| *bytes <= operation.len())
            .filter(|_| payload_bytes <= self.memory.len() - PAYLOAD_START)
            .ok_or(Errno::BADMSG)?;
        let (middle, end) = (PAYLOAD_START - operation_bytes, PAYLOAD_START + payload_bytes);
        let memory = self.memory.as_mut_slice();
        memory[middle..PAYLOAD_START].copy_from_slice(&operation[..operation_bytes]);
        let start = middle - IN_HEADER_BYTES;
        memory[start..middle].copy_from_slice(&in_header[..IN_HEADER_BYTES]);
        self.request = start..end;
        self.touched_bytes = self.touched_bytes.max(payload_bytes);
        Ok(Taken::Request)
    }

    /// The last request taken: its headers and its payload, in the same format as from /dev/fuse.
    #[must_use]
    pub fn request(&self) -> &[u8] {
        &self.memory.as_slice()[self.request.clone()]
    }

    /// Sets the reply to the last request taken: a negative error number, or 0 and a payload.
    /// [`Self::take`] sends the reply.
    ///
    /// # Errors
    /// `EMSGSIZE` if the payload does not fit.
    pub fn answer(&mut self, error: i32, payload: &[u8]) -> io::Result<()> {
        let room = self.memory.as_mut_slice().get_mut(PAYLOAD_START..).unwrap_or_default();
        room.get_mut(..payload.len()).ok_or(Errno::MSGSIZE)?.copy_from_slice(payload);
        self.touched_bytes = self.touched_bytes.max(payload.len());
        let length = (OUT_HEADER_BYTES + payload.len()) as u32;
        let unique = self.unique;
        let headers = self.headers_mut();
        headers.in_out[..4].copy_from_slice(&length.to_ne_bytes());
        headers.in_out[4..8].copy_from_slice(&error.to_ne_bytes());
        headers.in_out[8..16].copy_from_slice(&unique);
        headers.payload_bytes = payload.len() as u32;
        let device = Fd(self.device.as_raw_fd());
        let entry = opcode::UringCmd80::new(device, COMMAND_COMMIT_AND_FETCH)
            .cmd(command(self.commit_id, self.queue))
            .build();
        self.push(&entry)
    }

    /// Frees the memory of an idle payload beyond [`IDLE_BYTES_MAX`].
    fn give_memory_back(&mut self) {
        self.memory.discard(PAYLOAD_START + IDLE_BYTES_MAX..self.memory.len());
        self.touched_bytes = IDLE_BYTES_MAX;
    }

    fn headers(&self) -> &Headers {
        // SAFETY: the mapping begins at a page, is longer than the headers, and any bytes are valid
        // headers.
        unsafe { &*self.memory.as_slice().as_ptr().cast() }
    }

    fn headers_mut(&mut self) -> &mut Headers {
        // SAFETY: as for `headers`, and borrowed exclusively.
        unsafe { &mut *self.memory.as_mut_ptr().cast() }
    }
}

fn array<const LENGTH: usize>(bytes: &[u8]) -> [u8; LENGTH] {
    let mut array = [0; LENGTH];
    array.copy_from_slice(bytes);
    array
}

/// Sets the length of the memory at a command's address, for which the crate io-uring has no field.
fn with_length(entry: Entry128, length: u32) -> Entry128 {
    /// Offset of `len` in the kernel's `struct io_uring_sqe`.
    const LENGTH_OFFSET: usize = 24;
    const { assert!(size_of::<Entry128>() == 128) };
    // SAFETY: an entry is 128 bytes of plain data, in the kernel's layout.
    let mut bytes: [u8; 128] = unsafe { std::mem::transmute(entry) };
    bytes[LENGTH_OFFSET..LENGTH_OFFSET + 4].copy_from_slice(&length.to_ne_bytes());
    // SAFETY: as above.
    unsafe { std::mem::transmute(bytes) }
}
