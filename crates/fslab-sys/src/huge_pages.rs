//! Large pages for randomly accessed caches: with pages of 4 KiB, most accesses miss the
//! processor's address translation cache.

/// Bytes of a large page on most machines. It is a multiple of every size of small pages.
const LARGE_PAGE: usize = 2 << 20;

/// Asks the kernel to use large pages for a range of memory. Returns whether it will try; the
/// content of the memory does not change.
pub fn prefer_large_pages(memory: &mut [u8]) -> bool {
    let skipped = memory.as_ptr().align_offset(LARGE_PAGE);
    let length = memory.len().saturating_sub(skipped) / LARGE_PAGE * LARGE_PAGE;
    if length == 0 {
        return false;
    }
    let range = &mut memory[skipped..skipped + length];
    // SAFETY: the range is whole pages of memory that is borrowed for the call, and this advice
    // changes only how they are mapped, not their contents.
    let answer =
        unsafe { libc::madvise(range.as_mut_ptr().cast(), range.len(), libc::MADV_HUGEPAGE) };
    answer == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_page_advice_keeps_memory_contents() {
        let mut memory: Vec<u8> = (0..5_000_000_u32).map(|at| at as u8).collect();
        // Kernels without large pages refuse.
        let _ = prefer_large_pages(&mut memory);
        assert!(memory.iter().zip(0_u32..).all(|(byte, at)| *byte == at as u8));
        assert!(!prefer_large_pages(&mut memory[..10]));
        assert!(!prefer_large_pages(&mut []));
    }
}
