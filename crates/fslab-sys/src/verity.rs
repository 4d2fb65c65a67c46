//! Enables fs-verity, which makes a file immutable and verifies its content at every read.

use std::os::fd::{AsFd, AsRawFd};

use rustix::io::Result;

use crate::file_handle::check;

/// `FS_IOC_ENABLE_VERITY`, from include/uapi/linux/fsverity.h.
const ENABLE_VERITY: libc::Ioctl = 0x4080_6685;

const SHA256: u32 = 1;

/// The kernel's `struct fsverity_enable_arg`.
#[repr(C)]
#[derive(Default)]
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

/// Makes a file immutable, with a tree of SHA-256 hashes that verifies every read. The file must be
/// open for reading only, and no process may have it open for writing.
///
/// # Errors
/// `ENOTTY` or `EOPNOTSUPP` if the kernel or the file system has no fs-verity.
pub fn enable_verity(file: impl AsFd, block_size: u32) -> Result<()> {
    let argument =
        EnableVerity { version: 1, hash_algorithm: SHA256, block_size, ..EnableVerity::default() };
    // SAFETY: the request takes a pointer to the structure that `argument` mirrors (its size is
    // asserted above); its pointers are null, and the kernel only reads it.
    let answer =
        unsafe { libc::ioctl(file.as_fd().as_raw_fd(), ENABLE_VERITY as _, &raw const argument) };
    check(answer.into()).map(|_| ())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use rustix::io::Errno;

    use super::enable_verity;

    /// The call succeeds or fails as unsupported. A wrong number or structure would cause EFAULT or
    /// EINVAL.
    #[test]
    fn ioctl_succeeds_or_is_unsupported() {
        let mut file = tempfile::NamedTempFile::new_in(".").unwrap();
        file.write_all(&[1; 8192]).unwrap();
        let read_only = std::fs::File::open(file.path()).unwrap();
        let path = file.into_temp_path();
        let answer = enable_verity(&read_only, 4096);
        let lacking = [Errno::NOTTY, Errno::OPNOTSUPP];
        assert!(answer.is_ok() || lacking.contains(&answer.unwrap_err()), "{answer:?}");
        path.close().unwrap();
    }
}
