//! Operations on whole files that few file systems have: fs-verity, and exchanging the contents
//! of two files.

use std::os::fd::{AsFd, AsRawFd};

use rustix::io::Result;

use crate::file_handle::check;

/// `FS_IOC_ENABLE_VERITY`, from include/uapi/linux/fsverity.h.
const ENABLE_VERITY: libc::Ioctl = 0x4080_6685;

/// `XFS_IOC_EXCHANGE_RANGE`, which other file systems may take up: fs/xfs/libxfs/xfs_fs.h.
const EXCHANGE_RANGE: libc::Ioctl = 0x4028_5881;

const SHA256: u32 = 1;

/// The kernel's `struct fsverity_enable_arg`.
#[repr(C)]
struct EnableVerity {
    version: u32,
    hash_algorithm: u32,
    block_size: u32,
    salt_size: u32,
    salt: u64,
    signature_size: u32,
    reserved: u32,
    signature: u64,
    reserved_more: [u64; 11],
}

const _: () = assert!(size_of::<EnableVerity>() == 128);

/// The kernel's `struct xfs_exchange_range`.
#[repr(C)]
struct ExchangeRange {
    other: i32,
    padding: u32,
    other_offset: u64,
    offset: u64,
    length: u64,
    flags: u64,
}

const _: () = assert!(size_of::<ExchangeRange>() == 40);

/// Makes a file unchangeable, with a tree of SHA-256 sums that every read is checked by. The file
/// must be open for reading only, and nobody may have it open for writing.
///
/// # Errors
/// `ENOTTY` or `EOPNOTSUPP` where the kernel or the file system has no fs-verity.
pub fn enable_verity(file: impl AsFd, block_size: u32) -> Result<()> {
    let argument = EnableVerity {
        version: 1,
        hash_algorithm: SHA256,
        block_size,
        salt_size: 0,
        salt: 0,
        signature_size: 0,
        reserved: 0,
        signature: 0,
        reserved_more: [0; 11],
    };
    // SAFETY: the request takes a pointer to the structure that `argument` mirrors (its size is
    // asserted above); it holds no pointers but null ones, and the kernel only reads it.
    let answer =
        unsafe { libc::ioctl(file.as_fd().as_raw_fd(), ENABLE_VERITY as _, &raw const argument) };
    check(answer.into()).map(|_| ())
}

/// Exchanges the first bytes of two files in one step (Linux 6.10).
///
/// # Errors
/// `ENOTTY` or `EOPNOTSUPP` where the kernel or the file system can't.
pub fn exchange_ranges(one: impl AsFd, other: impl AsFd, length: u64) -> Result<()> {
    let argument = ExchangeRange {
        other: other.as_fd().as_raw_fd(),
        padding: 0,
        other_offset: 0,
        offset: 0,
        length,
        flags: 0,
    };
    // SAFETY: as above; the descriptor in it is open through the call.
    let answer =
        unsafe { libc::ioctl(one.as_fd().as_raw_fd(), EXCHANGE_RANGE as _, &raw const argument) };
    check(answer.into()).map(|_| ())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use rustix::io::Errno;

    use super::{enable_verity, exchange_ranges};

    /// Here they work, or are refused as what a file system lacks; a wrong number or structure
    /// would be EFAULT or EINVAL.
    #[test]
    fn requests_are_known_or_lacking() {
        let lacking = [Errno::NOTTY, Errno::OPNOTSUPP];
        let mut one = tempfile::NamedTempFile::new_in(".").unwrap();
        let mut other = tempfile::NamedTempFile::new_in(".").unwrap();
        one.write_all(&[1; 8192]).unwrap();
        other.write_all(&[2; 8192]).unwrap();
        let exchanged = exchange_ranges(one.as_file(), other.as_file(), 8192);
        assert!(exchanged.is_ok() || lacking.contains(&exchanged.unwrap_err()), "{exchanged:?}");
        let read_only = std::fs::File::open(one.path()).unwrap();
        let path = one.into_temp_path();
        let sealed = enable_verity(&read_only, 4096);
        assert!(sealed.is_ok() || lacking.contains(&sealed.unwrap_err()), "{sealed:?}");
        path.close().unwrap();
    }
}
