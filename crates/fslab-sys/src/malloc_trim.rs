//! Returns freed memory, which the allocator would keep, to the kernel.

/// Returns freed memory to the kernel. Memory freed by many threads is spread over pools of the
/// allocator, which normally shrink only at their ends. Takes some milliseconds per hundred MiB.
pub fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the function takes a number, and may be called at any time by any thread.
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resident_kib() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    /// The blocks are small enough for the pools. Every hundredth block remains allocated and keeps
    /// the pools from shrinking.
    #[test]
    #[cfg_attr(not(target_env = "gnu"), ignore = "this allocator keeps no such pools")]
    fn freed_memory_is_returned_to_the_kernel() {
        const PIECES: usize = 16 << 10;
        let mut pieces: Vec<_> = (0..PIECES).map(|_| vec![1_u8; 4 << 10]).collect();
        let mut number = 0;
        pieces.retain(|_| {
            number += 1;
            number % 100 == 0
        });
        let before = resident_kib();
        give_back();
        let after = resident_kib();
        assert!(after + (32 << 10) < before, "{before} KiB before and {after} KiB after");
        assert_eq!(pieces.len(), PIECES / 100);
    }
}
