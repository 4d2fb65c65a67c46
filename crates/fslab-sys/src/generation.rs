//! The generation of an inode, from FS_IOC_GETVERSION: a number that changes when the inode is
//! reused. ext2, ext3, ext4, XFS and Btrfs report it to every user who may open the file.

use std::fs::File;
use std::os::fd::AsRawFd;

use rustix::io::Errno;

use crate::file_handle::check;

/// `FS_IOC_GETVERSION`, whose number declares a `long` argument.
const GET_VERSION: libc::c_ulong = 0x8008_7601;

/// The generation of a file's or directory's inode; `None` if the file system does not report it.
///
/// # Errors
/// Other errors of the system.
pub fn of(file: &File) -> Result<Option<u32>, Errno> {
    // File systems write an `int`; FUSE writes as many bytes as the call's number declares.
    let mut generation = [0_u32; 2];
    // SAFETY: the descriptor is open, and the buffer has the 8 bytes that the call's number claims,
    // which is the most that the kernel writes.
    let answer = unsafe { libc::ioctl(file.as_raw_fd(), GET_VERSION, generation.as_mut_ptr()) };
    match check(answer.into()) {
        Ok(_) => Ok(Some(generation[0])),
        Err(Errno::NOTTY | Errno::NOSYS | Errno::OPNOTSUPP | Errno::INVAL) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generation_is_stable_or_not_reported() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let made = File::create(&path).unwrap();
        let first = of(&made).unwrap();
        assert_eq!(of(&File::open(&path).unwrap()).unwrap(), first);
        assert_eq!(of(&File::open("/proc/self/status").unwrap()).unwrap(), None);
        assert_eq!(of(&File::open(directory.path()).unwrap()).unwrap().is_some(), first.is_some());
    }
}
