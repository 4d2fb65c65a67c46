//! Exchanges the contents of two files atomically.

use std::os::fd::{AsFd, AsRawFd};

use rustix::io::Result;

use crate::file_handle::check;

/// `XFS_IOC_EXCHANGE_RANGE`, which other file systems may adopt: fs/xfs/libxfs/xfs_fs.h.
const EXCHANGE_RANGE: libc::Ioctl = 0x4028_5881;

/// The kernel's `struct xfs_exchange_range`.
#[repr(C)]
#[derive(Default)]
struct ExchangeRange {
    other: i32,
    padding: u32,
    other_offset: u64,
    offset: u64,
    length: u64,
    flags: u64,
}

const _: () = assert!(size_of::<ExchangeRange>() == 40);

/// Exchanges the first bytes of two files atomically (Linux 6.10).
///
/// # Errors
/// `ENOTTY` or `EOPNOTSUPP` if the kernel or the file system does not support it.
pub fn exchange_ranges(one: impl AsFd, other: impl AsFd, length: u64) -> Result<()> {
    let other = other.as_fd().as_raw_fd();
    let argument = ExchangeRange { other, length, ..ExchangeRange::default() };
    // SAFETY: the request takes a pointer to the structure that `argument` mirrors (its size is
    // asserted above). The kernel only reads it, and the descriptor in it is open during the call.
    let answer =
        unsafe { libc::ioctl(one.as_fd().as_raw_fd(), EXCHANGE_RANGE as _, &raw const argument) };
    check(answer.into()).map(|_| ())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use rustix::io::Errno;

    use super::exchange_ranges;

    /// The call succeeds or fails as unsupported. A wrong number or structure would cause EFAULT or
    /// EINVAL.
    #[test]
    fn ioctl_succeeds_or_is_unsupported() {
        let mut one = tempfile::NamedTempFile::new_in(".").unwrap();
        let mut other = tempfile::NamedTempFile::new_in(".").unwrap();
        one.write_all(&[1; 8192]).unwrap();
        other.write_all(&[2; 8192]).unwrap();
        let answer = exchange_ranges(one.as_file(), other.as_file(), 8192);
        let lacking = [Errno::NOTTY, Errno::OPNOTSUPP];
        assert!(answer.is_ok() || lacking.contains(&answer.unwrap_err()), "{answer:?}");
    }
}
