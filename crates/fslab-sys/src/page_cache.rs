//! Determines which pages of a file are in the page cache.
//!
//! `cachestat(2)` (Linux 6.5) reports their number without touching the file. If the kernel lacks
//! it, `mincore(2)` on a mapping is used, which is exact only for a caller that owns or may write
//! the file.

use std::os::fd::{AsFd, AsRawFd};

use rustix::io::{Errno, Result};

use crate::file_handle::check;

/// The number of cachestat(2). It is the same on every architecture except alpha; libc defines it
/// on few of them.
const SYS_CACHESTAT: libc::c_long = 451;

/// The kernel's `struct cachestat_range`; a length of 0 means the rest of the file.
#[repr(C)]
struct Range {
    offset: u64,
    length: u64,
}

/// Pages of a file in the page cache: the kernel's `struct cachestat`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Residency {
    /// Pages in the cache.
    pub cached: u64,
    /// Cached pages that are dirty.
    pub dirty: u64,
    /// Cached pages under write-back.
    pub writeback: u64,
    /// Pages that were in the cache and have been evicted.
    pub evicted: u64,
    /// Evicted pages whose eviction is so recent that reading them now indicates memory pressure.
    pub recently_evicted: u64,
}

/// Calls `cachestat` for a file from an offset to its end. For a block device it reports the
/// device's own cache, where some file systems keep their metadata.
///
/// # Errors
/// `ENOSYS` before Linux 6.5; `EPERM` for a file the caller neither owns nor may write.
pub fn cachestat(file: impl AsFd, offset: u64) -> Result<Residency> {
    let range = Range { offset, length: 0 };
    let mut answer = Residency::default();
    // SAFETY: the kernel reads `range` and fills `answer`; both mirror its structures and live
    // through the call.
    let status = unsafe {
        libc::syscall(SYS_CACHESTAT, file.as_fd().as_raw_fd(), &raw const range, &raw mut answer, 0)
    };
    check(status).map(|_| answer)
}

/// Counts the resident pages in the first `length` bytes of a file with `mincore`.
///
/// # Errors
/// Errors of mmap(2) and mincore(2).
pub fn mincore(file: impl AsFd, length: u64) -> Result<u64> {
    let pages = resident_map(file, length)?;
    Ok(pages.iter().filter(|resident| **resident).count() as u64)
}

/// Returns which pages in a file's first `length` bytes are resident. Requires the same rights as
/// [`mincore`].
///
/// # Errors
/// Errors of mmap(2) and mincore(2).
pub fn resident_map(file: impl AsFd, length: u64) -> Result<Vec<bool>> {
    let length = usize::try_from(length).or(Err(Errno::FBIG))?;
    if length == 0 {
        return Ok(Vec::new());
    }
    let mut pages = vec![0_u8; length.div_ceil(rustix::param::page_size())];
    // SAFETY: a new mapping at an address of the kernel's choice, which is never read or written
    // and is unmapped below.
    let start = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            length,
            libc::PROT_READ,
            libc::MAP_SHARED,
            file.as_fd().as_raw_fd(),
            0,
        )
    };
    if start == libc::MAP_FAILED {
        return check(-1).map(|_| Vec::new());
    }
    // SAFETY: `start` and `length` describe the mapping just made, and `pages` has one byte for
    // each of its pages.
    let status = check(unsafe { libc::mincore(start, length, pages.as_mut_ptr()) }.into());
    // SAFETY: unmaps exactly the mapping made above; nothing refers to it.
    check(unsafe { libc::munmap(start, length) }.into())?;
    status?;
    Ok(pages.iter().map(|page| page & 1 == 1).collect())
}

/// Number of resident pages of a file of `length` bytes, by `cachestat` or else `mincore`.
///
/// # Errors
/// Errors of both calls.
pub fn resident_pages(file: impl AsFd, length: u64) -> Result<u64> {
    match cachestat(&file, 0) {
        Ok(residency) => Ok(residency.cached),
        Err(Errno::NOSYS) => mincore(file, length),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::{cachestat, mincore, resident_pages};

    #[test]
    fn written_pages_are_resident_until_dropped() {
        let mut file = tempfile::tempfile_in(".").unwrap();
        let length = 16 * rustix::param::page_size() as u64;
        file.write_all(&vec![7; length as usize]).unwrap();
        assert_eq!(resident_pages(&file, length).unwrap(), 16);
        assert_eq!(mincore(&file, length).unwrap(), 16);
        file.sync_all().unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        assert_eq!(mincore(&file, length).unwrap(), 0);
        match cachestat(&file, 0) {
            Ok(residency) => assert_eq!(residency.cached, 0),
            Err(error) => assert_eq!(error, rustix::io::Errno::NOSYS),
        }
    }
}
