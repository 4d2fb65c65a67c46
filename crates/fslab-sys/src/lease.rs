//! Leases on files: to be told before anybody else writes.

use std::fs::File;
use std::os::fd::AsRawFd;

use rustix::io::Result;

use crate::file_handle::check;

/// `F_SETSIG`, from include/uapi/asm-generic/fcntl.h.
const F_SETSIG: libc::c_int = 10;

/// A lease on a file that nobody has open for writing. While it is held, whoever wants to open the
/// file for writing or to cut it waits (for `/proc/sys/fs/lease-break-time` at most), and the
/// lease says so.
#[derive(Debug)]
pub struct Lease {
    file: File,
}

impl Lease {
    /// Takes a lease on a file that is open for reading only.
    ///
    /// # Errors
    /// `EAGAIN` where somebody has it open for writing; `EACCES` for who neither owns it nor may
    /// lease what others own; `EINVAL` where the file system has no leases.
    pub fn take(file: File) -> Result<Self> {
        // The usual signal, SIGIO, would end the process: this one is ignored unless asked for.
        // SAFETY: a call on an open descriptor with a number as argument.
        let set = unsafe { libc::fcntl(file.as_raw_fd(), F_SETSIG, libc::SIGURG) };
        check(set.into())?;
        // SAFETY: as above.
        let set = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_RDLCK) };
        check(set.into())?;
        Ok(Self { file })
    }

    /// Whether nobody waits for the lease to end, and it has not been taken away.
    #[must_use]
    pub fn is_held(&self) -> bool {
        // SAFETY: as above, without an argument.
        let held = unsafe { libc::fcntl(self.file.as_raw_fd(), libc::F_GETLEASE) };
        held == libc::F_RDLCK
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{File, OpenOptions};
    use std::io::ErrorKind;
    use std::os::unix::fs::OpenOptionsExt;
    use std::time::{Duration, Instant};

    use super::Lease;

    #[test]
    fn a_lease_tells_of_writers_and_is_refused_beside_them() {
        let scratch = tempfile::NamedTempFile::new_in(".").unwrap();
        let path = scratch.path().to_owned();
        let reader = || File::open(&path).unwrap();
        assert_eq!(Lease::take(reader()).unwrap_err(), rustix::io::Errno::AGAIN);
        let kept = scratch.into_temp_path();
        let start = Instant::now();
        let lease = loop {
            match Lease::take(reader()) {
                Ok(lease) => break lease,
                Err(rustix::io::Errno::INVAL) => return,
                // A child of another test holds the writer's descriptor until it runs.
                Err(rustix::io::Errno::AGAIN) if start.elapsed() < Duration::from_secs(60) => {
                    std::thread::yield_now();
                }
                Err(error) => panic!("{error}"),
            }
        };
        reader();
        assert!(lease.is_held());
        let writer =
            OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(&path).unwrap_err();
        assert_eq!(writer.kind(), ErrorKind::WouldBlock);
        assert!(!lease.is_held());
        drop(lease);
        OpenOptions::new().write(true).open(&path).unwrap();
        kept.close().unwrap();
    }
}
