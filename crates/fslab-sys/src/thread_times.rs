//! Times of threads: how long a thread ran, and how long it was ready to run and waited for a
//! processor. `/proc/PID/schedstat` contains both in nanoseconds
//! (Documentation/scheduler/sched-stats.rst).

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

/// A thread and its times since it started.
///
/// The kernel updates the times when the thread leaves a processor, and at each scheduler tick
/// (usually 1 to 10 ms). So the times of a running thread may be a tick behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thread {
    /// Number of the thread.
    pub id: u32,
    /// Name of the thread, at most 15 bytes. Names of the kernel's workers are longer and change.
    pub name: String,
    /// Time that the thread ran on a processor.
    pub running: Duration,
    /// Time that the thread was ready to run and waited for a processor.
    pub queued: Duration,
}

/// Returns the threads of a process. Threads that end during this call may be missing.
///
/// # Errors
/// `NotFound` if there is no such process, or if the kernel does not count the times
/// (`CONFIG_SCHED_INFO`).
pub fn of_process(process: u32) -> io::Result<Vec<Thread>> {
    let tasks = fs::read_dir(format!("/proc/{process}/task"))?;
    let threads: Vec<Thread> = tasks.filter_map(|task| thread(&task.ok()?.path())).collect();
    if threads.is_empty() { Err(io::ErrorKind::NotFound.into()) } else { Ok(threads) }
}

/// Returns the threads of the kernel. The list is empty in a PID namespace without kernel threads,
/// such as that of a container.
///
/// # Errors
/// Errors of reading /proc.
pub fn of_kernel() -> io::Result<Vec<Thread>> {
    let entries = fs::read_dir("/proc")?;
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    Ok(paths.filter(|path| is_kernel_thread(path)).filter_map(|path| thread(&path)).collect())
}

/// Whether a directory of /proc is that of a kernel thread: its parent is kthreadd, process 2.
fn is_kernel_thread(path: &Path) -> bool {
    let is_number = |name: &str| name.bytes().all(|byte| byte.is_ascii_digit());
    if !path.file_name().and_then(|name| name.to_str()).is_some_and(is_number) {
        return false;
    }
    // A process that has ended has no such file.
    fs::read_to_string(path.join("stat")).is_ok_and(|text| parent(&text) == Some(2))
}

/// Parses the parent in the text of `/proc/PID/stat`. The name, in parentheses, may contain any
/// characters.
fn parent(text: &str) -> Option<u32> {
    text.rsplit_once(')')?.1.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// Returns a thread, or `None` if it has ended.
fn thread(path: &Path) -> Option<Thread> {
    let (running, queued) = parse(&fs::read_to_string(path.join("schedstat")).ok()?)?;
    Some(Thread {
        id: path.file_name()?.to_str()?.parse().ok()?,
        name: fs::read_to_string(path.join("comm")).ok()?.trim_end().to_owned(),
        running,
        queued,
    })
}

fn parse(text: &str) -> Option<(Duration, Duration)> {
    let mut fields = text.split_ascii_whitespace().map(|field| field.parse().ok());
    Some((Duration::from_nanos(fields.next()??), Duration::from_nanos(fields.next()??)))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{of_kernel, of_process, parent, parse};
    use crate::usage::Instant;

    #[test]
    fn times_are_parsed_in_nanoseconds() {
        let times = (Duration::from_nanos(89_077), Duration::from_nanos(2_451_228));
        assert_eq!(parse("89077 2451228 2\n"), Some(times));
        assert_eq!(parse("89077\n"), None);
        assert_eq!(parent("7 (a) b (c) S 2 7 7 0"), Some(2));
        assert_eq!(parent("7 (a"), None);
    }

    /// The times distinguish a named thread that computes from one that sleeps.
    #[test]
    fn a_computing_thread_runs_and_a_sleeping_one_does_not() {
        let spawn = |name: &str, work: fn()| {
            std::thread::Builder::new().name(name.to_owned()).spawn(work).unwrap()
        };
        let compute = || {
            let start = Instant::now();
            while start.elapsed() < Duration::from_millis(300) {
                std::hint::black_box(0);
            }
            std::thread::park_timeout(Duration::from_secs(2));
        };
        let computing = spawn("computes", compute);
        let sleeping = spawn("sleeps", || std::thread::park_timeout(Duration::from_secs(10)));
        std::thread::sleep(Duration::from_millis(500));
        let threads = of_process(std::process::id()).unwrap();
        for thread in [computing, sleeping] {
            thread.thread().unpark();
            thread.join().unwrap();
        }
        let running = |name: &str| threads.iter().find(|one| one.name == name).unwrap().running;
        assert!(running("computes") > 10 * running("sleeps"), "{threads:?}");
        assert!(of_process(u32::MAX).is_err());
    }

    /// Containers have their own PID namespace, without kernel threads.
    #[test]
    fn kernel_threads_contain_the_softirq_thread_or_there_are_none() {
        let threads = of_kernel().unwrap();
        let is_softirq = |name: &str| name.starts_with("ksoftirqd/");
        assert!(threads.is_empty() || threads.iter().any(|thread| is_softirq(&thread.name)));
        assert!(!threads.iter().any(|thread| thread.id == std::process::id()));
    }
}
