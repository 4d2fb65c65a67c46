//! Memory of a virtual machine that its host has not provided yet.
//!
//! A page that a virtual machine never used costs its host some microseconds when it is first
//! touched (about 9 where this was measured). The guest sees them as system time of whoever
//! touches it. 128 MiB of such pages make a phase of 60 ms last 350 ms. The harness touches memory
//! before each run and gives it back, so that the page cache gets pages which the host has
//! provided. It does so in blocks of 2 MiB, as read-ahead takes them: with small pages, or once for
//! all the targets of a round, cold reads of 128 MiB took 20 or 120 ms by turns.

use std::fs;
use std::hint::black_box;

use fslab_sys::huge_pages::prefer_large_pages;

/// So much is touched at most. The page cache of a run rarely takes more.
const MOST: u64 = 256 << 20;

/// And at most this part of the memory that is available.
const SHARE: u64 = 8;

/// How many bytes to touch before each run; none on a machine of its own.
pub(super) fn to_touch() -> u64 {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    amount(&read("/proc/cpuinfo"), &read("/proc/meminfo"))
}

fn amount(processors: &str, memory: &str) -> u64 {
    let is_flags = |line: &&str| line.starts_with("flags");
    let is_virtual = processors
        .lines()
        .find(is_flags)
        .is_some_and(|line| line.split_ascii_whitespace().any(|flag| flag == "hypervisor"));
    let available = super::surroundings::memory_field(memory, "MemAvailable:").unwrap_or(0);
    if is_virtual { MOST.min(available / SHARE) } else { 0 }
}

/// Touches so many bytes and gives them back.
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
        assert_eq!(amount(&flags(" hypervisor"), memory), 256 << 20);
        assert_eq!(amount(&flags(" hypervisor"), "MemAvailable: 1048576 kB\n"), 128 << 20);
        assert_eq!(amount(&flags(""), memory), 0);
        assert_eq!(amount(&flags(" hypervisor"), ""), 0);
    }
}
