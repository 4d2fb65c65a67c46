//! Memory shared by several processes, as 64-bit words that each of them may change at any time.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use rustix::fs::{MemfdFlags, SealFlags};

/// Shared memory. Other processes may write anything to it, so readers must check its content.
#[derive(Debug)]
pub struct SharedMemory {
    file: OwnedFd,
    start: NonNull<AtomicU64>,
    words: usize,
}

// SAFETY: the memory is only reached as atomic words.
unsafe impl Send for SharedMemory {}
// SAFETY: as above.
unsafe impl Sync for SharedMemory {}

impl SharedMemory {
    /// Creates shared memory of this many words, all zero. Pages use no memory before they are
    /// written. The file's length is sealed.
    ///
    /// # Errors
    /// Errors of the kernel.
    pub fn new(name: &str, words: usize) -> io::Result<Self> {
        let file = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        rustix::fs::ftruncate(&file, (words * size_of::<u64>()) as u64)?;
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&file, seals)?;
        Self::of(file, words)
    }

    /// Maps shared memory that another process has created, given its file.
    ///
    /// # Errors
    /// `InvalidData` if the file is not sealed or has another number of words; errors of the
    /// kernel.
    pub fn of(file: OwnedFd, words: usize) -> io::Result<Self> {
        let length = words * size_of::<u64>();
        let seals = rustix::fs::fcntl_get_seals(&file);
        let is_sealed = seals.is_ok_and(|seals| seals.contains(SealFlags::SHRINK));
        if !is_sealed || rustix::fs::fstat(&file)?.st_size.cast_unsigned() != length as u64 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the file is not the shared memory of a mount with -o keep",
            ));
        }
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice touches no other memory. The
        // file can't become shorter, so every word of it stays readable.
        let start = unsafe {
            libc::mmap(std::ptr::null_mut(), length, access, libc::MAP_SHARED, file.as_raw_fd(), 0)
        };
        let start = Some(start).filter(|start| *start != libc::MAP_FAILED).and_then(NonNull::new);
        let start = start.ok_or_else(io::Error::last_os_error)?;
        Ok(Self { file, start: start.cast(), words })
    }

    /// All words.
    #[must_use]
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping has that many words, is aligned to a page, lives as long as the
        // borrow, and is accessed only as atomic words.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.words) }
    }
}

impl AsFd for SharedMemory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        let length = self.words * size_of::<u64>();
        // SAFETY: the mapping is this value's own, and nothing refers to it any more.
        let answer = unsafe { libc::munmap(self.start.as_ptr().cast(), length) };
        debug_assert_eq!(answer, 0);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn two_mappings_of_one_memory_see_each_other() {
        let one = SharedMemory::new("test", 1000).unwrap();
        let file = one.as_fd().try_clone_to_owned().unwrap();
        let other = SharedMemory::of(file, 1000).unwrap();
        one.words()[999].store(7, Ordering::Relaxed);
        assert_eq!(other.words()[999].load(Ordering::Relaxed), 7);
        assert_eq!(other.words()[0].load(Ordering::Relaxed), 0);
    }

    #[test]
    fn memory_of_another_size_or_that_may_shrink_is_refused() {
        let sealed = SharedMemory::new("test", 1000).unwrap();
        let again = || sealed.as_fd().try_clone_to_owned().unwrap();
        assert!(SharedMemory::of(again(), 999).is_err());
        assert!(rustix::fs::ftruncate(again(), 8).is_err());
        let open = rustix::fs::memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&open, 8000).unwrap();
        assert!(SharedMemory::of(open, 1000).is_err());
    }
}
