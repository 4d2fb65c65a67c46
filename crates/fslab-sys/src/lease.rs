//! Leases on files: to detect writers before they write, or to use a file exclusively.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd};

use rustix::io::Result;

use crate::file_handle::check;

/// `F_SETSIG`, from include/uapi/asm-generic/fcntl.h.
pub(crate) const F_SETSIG: libc::c_int = 10;

/// A lease on a file that no process has open for writing. While it is held, a process that wants
/// to open the file for writing or truncate it waits (for `/proc/sys/fs/lease-break-time` at most).
/// [`Lease::is_held`] detects such a process.
#[derive(Debug)]
pub struct Lease {
    file: File,
}

impl Lease {
    /// Takes a lease on a file that is open for reading only.
    ///
    /// # Errors
    /// `EAGAIN` if a process has it open for writing; `EACCES` for a user who neither owns it nor
    /// may lease files of others; `EINVAL` if the file system has no leases.
    pub fn take(file: File) -> Result<Self> {
        set(&file, libc::F_RDLCK)?;
        Ok(Self { file })
    }

    /// Whether the lease is intact: no process waits for its end, and the kernel has not revoked
    /// it.
    #[must_use]
    pub fn is_held(&self) -> bool {
        // SAFETY: a call on an open descriptor, without an argument.
        let held = unsafe { libc::fcntl(self.file.as_raw_fd(), libc::F_GETLEASE) };
        held == libc::F_RDLCK
    }
}

/// Takes an exclusive lease on a file that no other process has open or mapped. The descriptor must
/// be open for writing. Until [`give_back`], a process that opens the file waits, for
/// `/proc/sys/fs/lease-break-time` at most.
///
/// # Errors
/// `EAGAIN` if another process has it open; otherwise as for [`Lease::take`].
pub fn take_alone(file: impl AsFd) -> Result<()> {
    set(file, libc::F_WRLCK)
}

/// Ends the lease of a descriptor.
///
/// # Errors
/// `EAGAIN` if there is none.
pub fn give_back(file: impl AsFd) -> Result<()> {
    set(file, libc::F_UNLCK)
}

fn set(file: impl AsFd, lease: libc::c_int) -> Result<()> {
    let descriptor = file.as_fd().as_raw_fd();
    // The usual signal, SIGIO, would terminate the process. SIGURG is ignored unless there is a
    // handler. SAFETY: a call on an open descriptor with a number as argument.
    let set = unsafe { libc::fcntl(descriptor, F_SETSIG, libc::SIGURG) };
    check(set.into())?;
    // SAFETY: as above.
    let set = unsafe { libc::fcntl(descriptor, libc::F_SETLEASE, lease) };
    check(set.into())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::{File, OpenOptions};
    use std::io::ErrorKind;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::OpenOptionsExt;
    use std::time::{Duration, Instant};

    use super::{Lease, give_back, take_alone};

    /// A mapped file is treated as open, even if its descriptor was closed.
    #[test]
    fn exclusive_lease_needs_a_file_not_open_or_mapped_elsewhere() {
        let scratch = tempfile::NamedTempFile::new_in(".").unwrap();
        scratch.as_file().set_len(4096).unwrap();
        let path = scratch.into_temp_path();
        let own = || OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let file = own();
        if take_alone(&file).err() == Some(rustix::io::Errno::INVAL) {
            return;
        }
        let start = Instant::now();
        // A child process that another test starts holds copies of all descriptors until it
        // executes its program. Until then, the lease is refused.
        while take_alone(&file).is_err() {
            assert!(start.elapsed() < Duration::from_secs(60), "never alone");
        }
        let open = |options: &mut OpenOptions| {
            options.custom_flags(libc::O_NONBLOCK).open(&path).unwrap_err().kind()
        };
        assert_eq!(open(OpenOptions::new().read(true)), ErrorKind::WouldBlock);
        give_back(&file).unwrap();
        let reader = File::open(&path).unwrap();
        assert_eq!(take_alone(&file).unwrap_err(), rustix::io::Errno::AGAIN);
        let (anywhere, descriptor) = (std::ptr::null_mut(), reader.as_raw_fd());
        // SAFETY: a new mapping of a file that no process truncates.
        let mapped =
            unsafe { libc::mmap(anywhere, 4096, libc::PROT_READ, libc::MAP_SHARED, descriptor, 0) };
        assert_ne!(mapped, libc::MAP_FAILED);
        drop(reader);
        assert_eq!(take_alone(&file).unwrap_err(), rustix::io::Errno::AGAIN);
        // SAFETY: unmaps exactly the page mapped above; nothing refers to it afterwards.
        assert_eq!(unsafe { libc::munmap(mapped, 4096) }, 0);
        while take_alone(&file).is_err() {
            assert!(start.elapsed() < Duration::from_secs(60), "never alone again");
        }
    }

    #[test]
    fn read_lease_is_refused_if_a_writer_exists_and_broken_by_a_new_writer() {
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
                // A child process that another test starts holds a copy of the writer's descriptor
                // until it executes its program.
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
