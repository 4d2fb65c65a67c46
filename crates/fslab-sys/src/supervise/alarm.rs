//! A signal to the supervisor when a worker begins to exit.
//!
//! The kernel reports the end of a process only when its last thread has exited, which can take
//! long. So a thread of the worker holds the only write end of a pipe. When the process is killed,
//! this thread exits at once, and the kernel then signals the owner of the read end. The worker
//! shares its table of descriptors with the supervisor, so this thread has a table of its own.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::thread::Builder;

use rustix::fs::{Mode, OFlags};

use crate::file_handle::check;
use crate::lease::F_SETSIG;

/// The signal to the supervisor. It is ignored unless it is blocked.
pub(super) const EXITS: i32 = libc::SIGURG;

/// Stack of the thread that holds the write end, in bytes. The thread only waits.
const STACK_BYTES: usize = 64 << 10;

/// The read end of the pipe.
#[derive(Debug)]
pub(super) struct Alarm(OwnedFd);

impl Alarm {
    /// Makes a pipe that signals this process each time that its last write end is closed.
    ///
    /// # Errors
    /// Errors of the kernel.
    pub fn new() -> io::Result<Self> {
        let (read_end, write_end) = io::pipe()?;
        drop(write_end);
        let read_end = OwnedFd::from(read_end);
        let owner = rustix::process::getpid().as_raw_nonzero().get();
        let settings = [(F_SETSIG, EXITS), (libc::F_SETOWN, owner), (libc::F_SETFL, libc::O_ASYNC)];
        for (operation, value) in settings {
            // SAFETY: a call on an open descriptor with a number as argument.
            check(unsafe { libc::fcntl(read_end.as_raw_fd(), operation, value) }.into())?;
        }
        Ok(Self(read_end))
    }

    /// Starts the thread of a worker that holds the write end. If this fails, the supervisor may
    /// detect the end of this worker late.
    pub fn arm(&self) {
        let number = self.0.as_raw_fd();
        let hold = move || hold_write_end(number).unwrap_or_else(log_failure);
        let thread = Builder::new().name("fslab-alarm".to_owned()).stack_size(STACK_BYTES);
        // The thread inherits the mask. It must not run handlers, because these may use
        // descriptors that are not in its table.
        let mut before = std::mem::MaybeUninit::uninit();
        // SAFETY: sigfillset fills the first set, and pthread_sigmask the second one. Neither call
        // fails with these arguments.
        let before: libc::sigset_t = unsafe {
            let mut all = std::mem::MaybeUninit::uninit();
            libc::sigfillset(all.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
            before.assume_init()
        };
        let started = thread.spawn(hold);
        // SAFETY: the set was filled above.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
        }
        started.map_or_else(log_failure, drop);
    }
}

fn log_failure(error: io::Error) {
    tracing::info!(%error, "the supervisor may detect the end of this process late");
}

/// Opens the write end in a table of descriptors that only this thread has, and waits until the
/// process exits.
fn hold_write_end(read_end: RawFd) -> io::Result<()> {
    // This makes an empty table, so no descriptor is closed and no lock is released.
    // SAFETY: this thread uses no descriptor of the former table, and other threads keep theirs.
    let unshared = unsafe {
        libc::syscall(libc::SYS_close_range, 0, libc::c_uint::MAX, libc::CLOSE_RANGE_UNSHARE)
    };
    check(unshared)?;
    // This is the table of the main thread.
    let path = format!("/proc/self/fd/{read_end}");
    let _write_end = rustix::fs::open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    loop {
        std::thread::park();
    }
}
