//! Names of the threads that send requests, from `/proc`.
//!
//! A name is read while the caller waits for its reply, because the caller may exit afterwards.
//! Names change by execve(2) and prctl(2), and thread numbers are reused, so a remembered name is
//! used only for a short time. The number of remembered names is fixed.

use std::fs::{self, File};
use std::io::Read;

use parking_lot::Mutex;

/// Time for which a remembered name is used, in nanoseconds. Reading a name takes about 1.2 us, so
/// a busy caller loses about 0.1 % of its time, however many requests it sends. A longer time would
/// save little, but short-lived processes would get the name of the shell that started them.
const REUSE_NS: u64 = 1_000_000;

/// Number of remembered names. Threads share a slot if their numbers differ by a multiple of this.
const SLOTS: usize = 1024;

/// The kernel truncates names to this many bytes. Only kernel threads have longer names.
const NAME_BYTES_MAX: usize = 15;

/// The names of the threads that called last.
pub(super) struct Programs {
    slots: Box<[Mutex<Known>]>,
    /// Reads the name of a thread.
    read: fn(u32) -> Option<Name>,
}

/// A thread and its remembered name. The default stands for the kernel (thread 0), whose name is
/// never read.
#[derive(Clone, Copy, Default)]
struct Known {
    thread: u32,
    read_ns: u64,
    name: Option<Name>,
}

#[derive(Clone, Copy)]
struct Name {
    bytes: [u8; NAME_BYTES_MAX],
    length: u8,
}

impl Programs {
    /// Reads names from `/proc`, unless it shows the processes of another PID namespace. There, a
    /// number belongs to another process.
    pub(super) fn of_this_machine() -> Self {
        let own = fs::read_link("/proc/self").ok().and_then(|own| own.to_str()?.parse().ok());
        let is_own_namespace = own == Some(std::process::id());
        Self::with(if is_own_namespace { read } else { |_| None })
    }

    fn with(read: fn(u32) -> Option<Name>) -> Self {
        Self { slots: (0..SLOTS).map(|_| Mutex::default()).collect(), read }
    }

    /// Returns the name of a waiting caller. Returns `None` for the kernel, for a thread that has
    /// exited, and for a thread that is not in `/proc`. The name may be up to [`REUSE_NS`] old.
    pub(super) fn name_of(&self, thread: u32, now_ns: u64) -> Option<Vec<u8>> {
        if thread == 0 {
            return None;
        }
        let slot = &self.slots[thread as usize % SLOTS];
        let mut known = *slot.lock();
        if known.thread != thread || now_ns.saturating_sub(known.read_ns) >= REUSE_NS {
            // The slot is not locked during the read, so that other callers need not wait.
            known = Known { thread, read_ns: now_ns, name: (self.read)(thread) };
            *slot.lock() = known;
        }
        known.name.map(|name| name.bytes[..name.length.into()].to_vec())
    }
}

fn read(thread: u32) -> Option<Name> {
    // The file contains the name and a newline.
    let mut line = [0; NAME_BYTES_MAX + 1];
    let length = File::open(format!("/proc/{thread}/comm")).ok()?.read(&mut line).ok()?;
    Some(Name::of(line[..length].strip_suffix(b"\n").unwrap_or(&line[..length])))
}

impl Name {
    /// Truncates a name.
    fn of(name: &[u8]) -> Self {
        let length = name.len().min(NAME_BYTES_MAX);
        let mut bytes = [0; NAME_BYTES_MAX];
        bytes[..length].copy_from_slice(&name[..length]);
        Self { bytes, length: length as u8 }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    /// Returns the name `THREAD:READS`; `READS` is the number of earlier reads by this test.
    fn counted(thread: u32) -> Option<Name> {
        thread_local! {
            static READS: AtomicU32 = const { AtomicU32::new(0) };
        }
        let reads = READS.with(|reads| reads.fetch_add(1, Ordering::Relaxed));
        Some(Name::of(format!("{thread}:{reads}").as_bytes()))
    }

    #[track_caller]
    fn check(programs: &Programs, thread: u32, now_ns: u64, expected: &str) {
        let name = programs.name_of(thread, now_ns);
        assert_eq!(name.as_deref(), Some(expected.as_bytes()), "{thread} at {now_ns}");
    }

    #[test]
    fn name_is_read_again_after_its_time() {
        let programs = Programs::with(counted);
        check(&programs, 7, 50, "7:0");
        check(&programs, 7, 49 + REUSE_NS, "7:0");
        check(&programs, 8, 49 + REUSE_NS, "8:1");
        check(&programs, 7, 50 + REUSE_NS, "7:2");
        check(&programs, 7, 51 + REUSE_NS, "7:2");
        // The time may go back, because another thread of the daemon may have read the clock before
        // the last request was recorded.
        check(&programs, 7, 49 + REUSE_NS, "7:2");
        assert_eq!(programs.name_of(0, 50), None, "the kernel");
    }

    #[test]
    fn many_callers_do_not_enlarge_the_memory() {
        let programs = Programs::with(|thread| Some(Name::of(&thread.to_le_bytes())));
        for round in 0..2 {
            for thread in 1..=4 * SLOTS as u32 {
                let name = programs.name_of(thread, round);
                assert_eq!(name.as_deref(), Some(&thread.to_le_bytes()[..]));
            }
        }
        assert_eq!(programs.slots.len(), SLOTS);
        assert!(size_of_val(&*programs.slots) <= 40 << 10);
    }

    #[test]
    fn missing_names_are_remembered_too() {
        let programs = Programs::with(|_| None);
        assert_eq!(programs.name_of(7, 50), None);
        let slot = *programs.slots[7].lock();
        assert_eq!((slot.thread, slot.read_ns, slot.name.is_none()), (7, 50, true));
    }

    #[test]
    fn own_thread_is_found_by_its_number() {
        let name = |programs: &Programs| {
            let link = fs::read_link("/proc/thread-self").unwrap();
            let own = link.file_name().unwrap().to_str().unwrap().parse().unwrap();
            programs.name_of(own, 0)
        };
        for (given, expected) in
            [("short", "short"), ("longer-than-15-bytes", "longer-than-15-"), ("a b", "a b")]
        {
            let started = std::thread::Builder::new().name(given.to_owned());
            let thread = started.spawn(move || name(&Programs::of_this_machine())).unwrap();
            assert_eq!(thread.join().unwrap().as_deref(), Some(expected.as_bytes()));
        }
        // Numbers of threads are at most 2^22.
        assert_eq!(Programs::of_this_machine().name_of(u32::MAX, 0), None);
    }
}
