//! Clocks and processor time of this process, its children, another process, and the machine.

use std::fs;
use std::io;
use std::ops::Sub;
use std::time::Duration;

use rustix::io::{Errno, Result};
use rustix::time::{ClockId, clock_gettime};

use crate::file_handle::check;

/// A reading of CLOCK_MONOTONIC_RAW, which is not affected by adjustments of the system time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instant(Duration);

impl Instant {
    /// The current time.
    #[must_use]
    pub fn now() -> Self {
        let now = clock_gettime(ClockId::MonotonicRaw);
        Self(Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec as u32))
    }

    /// Time since this reading.
    #[must_use]
    pub fn elapsed(self) -> Duration {
        Self::now() - self
    }
}

impl Sub for Instant {
    type Output = Duration;

    fn sub(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

/// Selects whose processor time is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// The whole process.
    Process,
    /// The calling thread.
    Thread,
    /// Children that have ended and were waited for.
    Children,
}

/// Processor time used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessorTime {
    /// Time in the program itself.
    pub user: Duration,
    /// Time in the kernel on behalf of the program.
    pub system: Duration,
}

impl ProcessorTime {
    /// The processor time used so far.
    #[must_use]
    pub fn of(who: Who) -> Self {
        let who = match who {
            Who::Process => libc::RUSAGE_SELF,
            Who::Thread => libc::RUSAGE_THREAD,
            Who::Children => libc::RUSAGE_CHILDREN,
        };
        let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
        // SAFETY: the pointer is to a live `struct rusage`, which the call fills.
        let answer = unsafe { libc::getrusage(who, usage.as_mut_ptr()) };
        debug_assert_eq!(answer, 0, "getrusage has no error for a valid `who`");
        // SAFETY: all fields are plain numbers, for which zero is valid; the call filled them.
        let usage = unsafe { usage.assume_init() };
        Self { user: duration(usage.ru_utime), system: duration(usage.ru_stime) }
    }
}

impl_sub!(ProcessorTime { user, system });

fn duration(time: libc::timeval) -> Duration {
    Duration::from_secs(time.tv_sec.unsigned_abs())
        + Duration::from_micros(time.tv_usec.unsigned_abs())
}

/// Processor time of another process: user and system time together, in nanoseconds, including
/// threads that have ended.
///
/// # Errors
/// `ESRCH` if there is no such process.
pub fn processor_time_of(pid: u32) -> Result<Duration> {
    let mut clock: libc::clockid_t = 0;
    let pid = libc::pid_t::try_from(pid).or(Err(Errno::SRCH))?;
    // SAFETY: the pointer is to a live variable, which the call fills.
    let answer = unsafe { libc::clock_getcpuclockid(pid, &raw mut clock) };
    if answer != 0 {
        return Err(Errno::from_raw_os_error(answer));
    }
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a live variable, which the call fills.
    check(unsafe { libc::clock_gettime(clock, &raw mut time) }.into())?;
    Ok(Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32))
}

/// Processor time of another process and of all its children that have ended and were waited for,
/// exact to a scheduler tick (usually 10 ms).
///
/// # Errors
/// Errors of reading or parsing `/proc/PID/stat`, for example if the process does not exist.
pub fn family_time_of(pid: u32) -> io::Result<ProcessorTime> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    parse_family(&text, rustix::param::clock_ticks_per_second()).ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidData, format!("can't parse /proc/{pid}/stat"))
    })
}

fn parse_family(text: &str, ticks_per_second: u64) -> Option<ProcessorTime> {
    // The name, in parentheses, may contain any characters.
    let (_, rest) = text.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let ticks = |index: usize| fields.get(index)?.parse::<u64>().ok();
    let time = |own: u64, children: u64| {
        let nanoseconds = 1_000_000_000 / ticks_per_second.max(1);
        Duration::from_nanos((own + children).saturating_mul(nanoseconds))
    };
    // `rest` begins with field 3, the state. Fields 14 to 17 are utime, stime, cutime and cstime.
    Some(ProcessorTime { user: time(ticks(11)?, ticks(13)?), system: time(ticks(12)?, ticks(14)?) })
}

/// Bytes of memory available without swapping, if cached files are dropped.
///
/// # Errors
/// /proc/meminfo can't be read or lacks the value.
pub fn memory_available() -> io::Result<u64> {
    let text = fs::read_to_string("/proc/meminfo")?;
    parse_available(&text).ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidData, "/proc/meminfo: no line MemAvailable")
    })
}

fn parse_available(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kib| kib << 10)
}

/// Time used by all processors together since the machine started; accurate to a scheduler tick
/// (usually 10 ms).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MachineTime {
    /// Time in programs, including those of low priority.
    pub user: Duration,
    /// Time in the kernel, including interrupts.
    pub system: Duration,
    /// Idle time while waiting for a device.
    pub input_output_wait: Duration,
    /// Time that the hypervisor used for other virtual machines.
    pub steal: Duration,
}

impl MachineTime {
    /// Reads /proc/stat.
    ///
    /// # Errors
    /// The file can't be read or parsed.
    pub fn now() -> io::Result<Self> {
        let text = fs::read_to_string("/proc/stat")?;
        Self::parse(&text, rustix::param::clock_ticks_per_second()).ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidData, "/proc/stat: no line for all processors")
        })
    }

    fn parse(text: &str, ticks_per_second: u64) -> Option<Self> {
        let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
        let ticks: Vec<u64> =
            line.split_ascii_whitespace().map(|field| field.parse().ok()).collect::<Option<_>>()?;
        let at = |index: usize| {
            let ticks = ticks.get(index).copied().unwrap_or(0);
            Duration::from_nanos(ticks.saturating_mul(1_000_000_000 / ticks_per_second.max(1)))
        };
        // The fields are: user nice system idle iowait irq softirq steal
        Some(Self {
            user: at(0) + at(1),
            system: at(2) + at(5) + at(6),
            input_output_wait: at(4),
            steal: at(7),
        })
    }
}

impl_sub!(MachineTime { user, system, input_output_wait, steal });

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{
        Instant, MachineTime, ProcessorTime, Who, parse_available, parse_family, processor_time_of,
    };

    #[test]
    fn process_and_child_times_are_parsed_after_any_name() {
        let text = "7 (a) b (c) S 1 7 7 0 -1 4194560 1 2 3 4 100 20 30 4 20 0 1 0";
        let time = parse_family(text, 100).unwrap();
        assert_eq!(time.user, Duration::from_millis(1300));
        assert_eq!(time.system, Duration::from_millis(240));
        assert_eq!(parse_family("7 (a) S 1", 100), None);
    }

    #[test]
    fn available_memory_is_parsed_from_kib() {
        let text = "MemTotal:  8 kB\nMemAvailable:   23753124 kB\n";
        assert_eq!(parse_available(text), Some(23_753_124 << 10));
        assert_eq!(parse_available("MemTotal:  8 kB\n"), None);
    }

    #[test]
    fn machine_time_is_parsed_by_column() {
        let text = "cpu  10 1 20 999 5 2 3 7 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n";
        let time = MachineTime::parse(text, 100).unwrap();
        assert_eq!(time.user, Duration::from_millis(110));
        assert_eq!(time.system, Duration::from_millis(250));
        assert_eq!(time.input_output_wait, Duration::from_millis(50));
        assert_eq!(time.steal, Duration::from_millis(70));
        assert_eq!(MachineTime::parse("intr 1\n", 100), None);
    }

    /// Checks three clocks: the monotonic clock, the processor time that this process reads, and
    /// the processor time that another process would read.
    #[test]
    fn work_shows_in_every_clock() {
        let (start, own) = (Instant::now(), ProcessorTime::of(Who::Process));
        let seen = processor_time_of(std::process::id()).unwrap();
        let mut sum = 0_u64;
        let spent = || {
            let spent = ProcessorTime::of(Who::Process) - own;
            spent.user + spent.system
        };
        // On a busy machine, a process may get little processor time in any wall-clock interval.
        while spent() < Duration::from_millis(50) {
            assert!(start.elapsed() < Duration::from_secs(60), "{:?}", spent());
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        assert!(start.elapsed() > Duration::ZERO);
        assert!(processor_time_of(std::process::id()).unwrap() > seen);
        assert!(processor_time_of(u32::MAX).is_err());
    }
}
