//! Counts how often the kernel passes a tracepoint, on all processors and without recording a
//! trace: perf_event_open(2) in counting mode.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;

use crate::processors;

/// From include/uapi/linux/perf_event.h: the event is a tracepoint, given by its number.
const PERF_TYPE_TRACEPOINT: u32 = 2;

const PERF_FLAG_FD_CLOEXEC: libc::c_ulong = 8;

/// `_IOW('$', 6, char *)`: count only events that match a filter.
const PERF_EVENT_IOC_SET_FILTER: libc::Ioctl = 0x4008_2406;

/// The first version of `struct perf_event_attr`; the kernel treats later fields as zero.
#[repr(C)]
#[derive(Default)]
struct EventAttributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint_kind: u32,
    config1: u64,
}

const _: () = assert!(size_of::<EventAttributes>() == 64);

/// A tracepoint of the running kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tracepoint {
    id: u64,
}

impl Tracepoint {
    /// Finds a tracepoint, such as `fuse/fuse_request_send`, in a mounted tracefs.
    ///
    /// # Errors
    /// `NotFound` if the kernel has no such tracepoint, or tracefs is not mounted there.
    pub fn find(tracefs: &Path, name: &str) -> io::Result<Self> {
        let text = fs::read_to_string(tracefs.join("events").join(name).join("id"))?;
        let id = text.trim().parse().map_err(|error| {
            io::Error::new(io::ErrorKind::InvalidData, format!("{name}: {text:?}: {error}"))
        })?;
        Ok(Self { id })
    }
}

/// Counts the events of a tracepoint since the counter's creation.
#[derive(Debug)]
pub struct Counter {
    /// One event for each processor.
    events: Vec<OwnedFd>,
}

impl Counter {
    /// Starts counting, on every processor, the events that match a filter in the kernel's
    /// language, such as `connection == 46`.
    ///
    /// # Errors
    /// `EACCES` or `EPERM` without CAP_PERFMON; `EINVAL` for a filter that the kernel does not
    /// understand.
    pub fn new(tracepoint: Tracepoint, filter: &str) -> io::Result<Self> {
        let filter = CString::new(filter)?;
        let events = processors::online()?
            .into_iter()
            .map(|processor| open(tracepoint, processor, &filter))
            .collect::<io::Result<_>>()?;
        Ok(Self { events })
    }

    /// Number of events so far.
    ///
    /// # Errors
    /// Errors of reading.
    pub fn count(&self) -> io::Result<u64> {
        let mut total = 0;
        for event in &self.events {
            let mut bytes = [0; 8];
            if rustix::io::read(event, &mut bytes)? != bytes.len() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            total += u64::from_ne_bytes(bytes);
        }
        Ok(total)
    }
}

fn open(tracepoint: Tracepoint, processor: usize, filter: &CString) -> io::Result<OwnedFd> {
    let attributes = EventAttributes {
        kind: PERF_TYPE_TRACEPOINT,
        size: size_of::<EventAttributes>() as u32,
        config: tracepoint.id,
        ..EventAttributes::default()
    };
    let (every_process, no_group): (libc::pid_t, RawFd) = (-1, -1);
    // SAFETY: the pointer is to a live structure, whose `size` field is its size.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw const attributes,
            every_process,
            processor as i32,
            no_group,
            PERF_FLAG_FD_CLOEXEC,
        )
    };
    let descriptor = RawFd::try_from(answer).map_err(io::Error::other)?;
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has just created this descriptor, and nothing else owns it.
    let event = unsafe { OwnedFd::from_raw_fd(descriptor) };
    // SAFETY: the filter is a live string that ends with a NUL byte; the kernel copies it.
    let answer =
        unsafe { libc::ioctl(event.as_raw_fd(), PERF_EVENT_IOC_SET_FILTER, filter.as_ptr()) };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(event) }
}
