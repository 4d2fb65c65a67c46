//! Private memory in whole pages, initially zero. Parts of it can be freed.

use std::io;
use std::ops::Range;
use std::ptr::NonNull;

/// A private anonymous mapping.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: it is memory like any other, owned only by this value.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Creates a mapping of this many bytes, which use no memory before they are accessed.
    pub fn new(length: usize) -> io::Result<Self> {
        let (access, kind) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping at an address of the kernel's choice touches no other memory.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), length, access, kind, -1, 0) };
        let start = Some(start).filter(|start| *start != libc::MAP_FAILED).and_then(NonNull::new);
        let start = start.ok_or_else(io::Error::last_os_error)?;
        // A huge page would use more memory than was touched. Kernels without huge pages return an
        // error. SAFETY: the range is the new mapping, and its contents do not change.
        unsafe { libc::madvise(start.as_ptr(), length, libc::MADV_NOHUGEPAGE) };
        Ok(Self { start: start.cast(), length })
    }

    pub fn len(&self) -> usize {
        self.length
    }

    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.start.as_ptr()
    }

    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: the mapping is that long, is initialized by the kernel, and is borrowed.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }

    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as for `as_slice`, and borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.length) }
    }

    /// Frees the memory of a range; it then reads as zeros. Both ends must be multiples of the page
    /// size.
    pub fn discard(&mut self, range: Range<usize>) {
        let range = range.start..range.end.min(self.length);
        let length = range.len();
        let start = self.start.as_ptr().wrapping_add(range.start);
        // SAFETY: the range lies in the mapping, which is borrowed exclusively; zeros are valid.
        let answer = unsafe { libc::madvise(start.cast(), length, libc::MADV_DONTNEED) };
        if answer != 0 {
            tracing::debug!(error = %io::Error::last_os_error(), "can't free memory");
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, and nothing refers to it any more.
        let answer = unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
        debug_assert_eq!(answer, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn discarded_part_of_a_mapping_reads_as_zeros() {
        let mut memory = Mapping::new(1 << 20).unwrap();
        memory.as_mut_slice().fill(7);
        memory.discard(64 << 10..memory.len());
        assert_eq!(memory.len(), 1 << 20);
        assert!(memory.as_slice()[..64 << 10].iter().all(|byte| *byte == 7));
        assert!(memory.as_slice()[64 << 10..].iter().all(|byte| *byte == 0));
    }
}
