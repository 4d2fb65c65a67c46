//! Touches memory of a virtual machine before each run, because the host may not have provided it
//! yet.
//!
//! When a virtual machine first touches a page, its host needs some microseconds to provide it
//! (about 9 in one measurement). The guest counts this time as system time of the process that
//! touches the page. With 128 MiB of such pages, a phase of 60 ms takes 350 ms. Two measures make
//! this rare:
//!
//! - During a whole comparison, the harness keeps a reserve of small pages that the host has
//!   already provided, because writes use small pages ([`ProvidedMemory`]). Without it, writes of
//!   128 MiB had a standard deviation of 43 to 92 %.
//! - Before each run it touches pages of 2 MiB and frees them, because read-ahead allocates large
//!   pages too. When it touched only small pages, or touched memory only once per round, cold reads
//!   of 128 MiB took alternately 20 and 120 ms.

use std::fs;
use std::hint::black_box;

use fslab_sys::huge_pages::prefer_large_pages;
use fslab_sys::memory_bound;
use fslab_sys::provided_memory::ProvidedMemory;

/// Maximum number of bytes to touch. The page cache of a run is rarely larger.
const MOST: u64 = 256 << 20;

/// Divisor of the free memory: at most 1/16 of it is touched. Free memory is the available memory,
/// or the remaining memory of the control group if that is less.
const SHARE: u64 = 16;

/// Bytes of the reserve per byte that is touched before each run. The reserve is larger because a
/// run and its file system use small pages for more than the page cache.
const PROVIDED_PER_TOUCHED: u64 = 6;

/// Returns the bytes to touch before each run; 0 on a physical machine.
pub(super) fn to_touch() -> u64 {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    // If control groups can't be read, no limit is known.
    let free = memory_bound::free_here().ok().flatten().unwrap_or(u64::MAX);
    amount(&read("/proc/cpuinfo"), &read("/proc/meminfo"), free)
}

/// Returns the bytes to touch. `free` is the remaining memory of the control group.
fn amount(processors: &str, memory: &str, free: u64) -> u64 {
    let is_flags = |line: &&str| line.starts_with("flags");
    let is_virtual = processors
        .lines()
        .find(is_flags)
        .is_some_and(|line| line.split_ascii_whitespace().any(|flag| flag == "hypervisor"));
    let available = super::surroundings::memory_field(memory, "MemAvailable:").unwrap_or(0);
    let available = available.min(free);
    if is_virtual { MOST.min(available / SHARE) } else { 0 }
}

/// Creates the reserve of provided memory for a comparison whose runs touch this many bytes. The
/// reserve is smaller if less memory is available now, because images may be in memory.
///
/// # Errors
/// Returns errors of the system calls.
pub(super) fn provide(touched_bytes: u64) -> std::io::Result<Option<ProvidedMemory>> {
    let touched_bytes = touched_bytes.min(to_touch());
    let bytes = usize::try_from(touched_bytes * PROVIDED_PER_TOUCHED).unwrap_or(0);
    (bytes > 0).then(|| ProvidedMemory::new(bytes)).transpose()
}

/// Touches this many bytes and frees them.
pub(super) fn touch(bytes: u64) {
    let Ok(length) = usize::try_from(bytes) else { return };
    if length > 0 {
        let mut memory = vec![0_u8; length];
        prefer_large_pages(&mut memory);
        memory.fill(1);
        black_box(memory);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_touched_in_a_virtual_machine_only() {
        let memory = "MemFree: 100 kB\nMemAvailable:   8388608 kB\n";
        let flags = |more: &str| format!("processor : 0\nflags\t\t: fpu vme{more} sse\n");
        let (guest, no_limit) = (flags(" hypervisor"), u64::MAX);
        assert_eq!(amount(&guest, memory, no_limit), 256 << 20);
        assert_eq!(amount(&guest, "MemAvailable: 2097152 kB\n", no_limit), 128 << 20);
        assert_eq!(amount(&guest, memory, 1 << 30), 64 << 20, "in a small control group");
        assert_eq!(amount(&flags(""), memory, no_limit), 0);
        assert_eq!(amount(&guest, "", no_limit), 0);
    }
}
