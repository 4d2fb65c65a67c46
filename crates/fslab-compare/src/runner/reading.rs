//! All counters at one moment. Reading them is not timed.

use std::collections::BTreeMap;
use std::time::Duration;

use fslab_sys::block_counters::{BlockCounters, DeviceNumber};
use fslab_sys::thread_times::{self, Thread};
use fslab_sys::usage::{MachineTime, ProcessorTime, Who, processor_time_of};

use super::surroundings::device_counters;
use crate::error::{Error, Result};
use crate::target::Target;
use fslab_report::sample::{Machine, RequestCount, Sample, ThreadTimes};
use fslab_stats::nanoseconds;

/// The counters of the workload, the daemon, the device and the machine.
pub(super) struct Reading {
    process: ProcessorTime,
    /// Processor time of the calling thread, which runs the phase.
    caller: ProcessorTime,
    /// Processor time of programs that the phase ran and waited for.
    children: ProcessorTime,
    daemon: Option<Duration>,
    threads: Threads,
    machine: MachineTime,
    device: Option<BlockCounters>,
    requests: Option<BTreeMap<String, u64>>,
}

impl Reading {
    pub fn take(target: &dyn Target) -> Result<Self> {
        let read = |device: DeviceNumber| {
            BlockCounters::read(device).map_err(Error::file(&device.sysfs("stat")))
        };
        Ok(Self {
            process: ProcessorTime::of(Who::Process),
            caller: ProcessorTime::of(Who::Thread),
            children: ProcessorTime::of(Who::Children),
            // An error is ignored, because the workload's own operations fail if the daemon has
            // exited.
            daemon: target.daemon().and_then(|pid| processor_time_of(pid).ok()),
            threads: Threads::read(target.daemon()),
            machine: MachineTime::now().map_err(Error::file("/proc/stat".as_ref()))?,
            device: target.device().map(read).transpose()?,
            requests: target.fuse_requests()?,
        })
    }

    /// Records the changes since `before` in the sample.
    pub fn record_since(&self, before: &Self, sample: &mut Sample) {
        let process = self.process - before.process;
        let children = self.children - before.children;
        sample.user_ns += nanoseconds(process.user + children.user);
        sample.system_ns += nanoseconds(process.system + children.system);
        sample.daemon_cpu_ns = self
            .daemon
            .zip(before.daemon)
            .map(|(after, before)| nanoseconds(after.saturating_sub(before)));
        let counts = self.requests.as_ref().zip(before.requests.as_ref());
        let requests = counts.map(|(after, before)| requests_since(after, before));
        sample.fuse_requests =
            requests.as_ref().map(|kinds| kinds.iter().map(|one| one.count).sum());
        sample.requests = requests.unwrap_or_default();
        let sum = |time: ProcessorTime| time.user + time.system;
        let times = [process, self.caller - before.caller, children].map(sum);
        sample.thread_times = self.threads.since(&before.threads, times);
        let machine = self.machine - before.machine;
        sample.machine = Machine {
            user_ns: nanoseconds(machine.user),
            system_ns: nanoseconds(machine.system),
            input_output_wait_ns: nanoseconds(machine.input_output_wait),
            steal_ns: nanoseconds(machine.steal),
            ..sample.machine
        };
        sample.device =
            self.device.zip(before.device).map(|(after, before)| device_counters(after - before));
    }
}

/// Returns the requests of the kinds that occurred.
fn requests_since(
    after: &BTreeMap<String, u64>,
    before: &BTreeMap<String, u64>,
) -> Vec<RequestCount> {
    let since = |(kind, count): (&String, &u64)| {
        // A kind that had not occurred before is missing.
        let count = count - before.get(kind).unwrap_or(&0);
        let kind = kind.strip_prefix("FUSE_").unwrap_or(kind).to_ascii_lowercase();
        (count > 0).then_some(RequestCount { kind, count })
    };
    after.iter().filter_map(since).collect()
}

/// The threads that may work for a phase. Unreadable threads are missing, for example kernel
/// threads in a container.
struct Threads {
    /// The calling thread; at most one.
    caller: Vec<Thread>,
    /// Other threads of this process.
    workers: Vec<Thread>,
    daemon: Vec<Thread>,
    kernel: Vec<Thread>,
}

impl Threads {
    fn read(daemon: Option<u32>) -> Self {
        // Without these times, only metrics are missing. An error is therefore not a failure.
        let of_process = |pid| thread_times::of_process(pid).unwrap_or_default();
        let caller_id = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
        let (caller, workers) =
            of_process(std::process::id()).into_iter().partition(|one| one.id == caller_id);
        Self {
            caller,
            workers,
            daemon: daemon.map(of_process).unwrap_or_default(),
            kernel: thread_times::of_kernel().unwrap_or_default(),
        }
    }

    /// Returns the times since `before`. The processor times of this process and of its programs
    /// include threads that have ended. The caller's time is exact; times read from /proc may be a
    /// scheduler tick behind.
    fn since(&self, before: &Self, [process, caller, programs]: [Duration; 3]) -> Vec<ThreadTimes> {
        let own = |kind: &str, after: &[Thread], before: &[Thread], running: Duration| {
            let read = by_kind(after, before, |_| kind.to_owned()).pop().unwrap_or_default();
            let (kind, running_ns) = (kind.to_owned(), nanoseconds(running));
            ThreadTimes { kind, running_ns, threads: read.threads.max(1), ..read }
        };
        let mut times = vec![
            own("workload", &self.caller, &before.caller, caller),
            own("workers", &self.workers, &before.workers, process.saturating_sub(caller)),
            own("programs", &[], &[], programs),
        ];
        times.retain(|one| one.running_ns > 0);
        let daemon = |name: &str| format!("daemon {}", without_number(name));
        times.extend(by_kind(&self.daemon, &before.daemon, daemon));
        let kernel =
            |name: &str| format!("kernel {}", name.split(['/', ':']).next().unwrap_or(name));
        times.extend(by_kind(&self.kernel, &before.kernel, kernel));
        times
    }
}

/// Returns the name of a thread without the number at its end, such as `fslab-mover` of
/// `fslab-mover-3`.
fn without_number(name: &str) -> &str {
    let rest = name.trim_end_matches(|character: char| character.is_ascii_digit());
    rest.strip_suffix('-').filter(|rest| !rest.is_empty()).unwrap_or(name)
}

/// Sums the times since `before` by kind. Threads that neither ran nor waited for a processor are
/// left out.
fn by_kind(after: &[Thread], before: &[Thread], kind: impl Fn(&str) -> String) -> Vec<ThreadTimes> {
    let before: BTreeMap<u32, &Thread> = before.iter().map(|thread| (thread.id, thread)).collect();
    let mut kinds: BTreeMap<String, ThreadTimes> = BTreeMap::new();
    for thread in after {
        // An earlier time that is larger belongs to another thread, which had the same number.
        let earlier = before.get(&thread.id).filter(|before| before.running <= thread.running);
        let since = |part: fn(&Thread) -> Duration| {
            let earlier = earlier.map_or(Duration::ZERO, |thread| part(thread));
            nanoseconds(part(thread).saturating_sub(earlier))
        };
        let running_ns = since(|thread| thread.running);
        let queued_ns = since(|thread| thread.queued);
        if running_ns + queued_ns == 0 {
            continue;
        }
        let kind = kind(&thread.name);
        let sum = kinds.entry(kind.clone()).or_default();
        *sum = ThreadTimes {
            kind,
            threads: sum.threads + 1,
            running_ns: sum.running_ns + running_ns,
            queued_ns: sum.queued_ns + queued_ns,
        };
    }
    kinds.into_values().collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use fslab_sys::thread_times::Thread;

    use super::{Threads, by_kind, requests_since, without_number};
    use fslab_report::sample::{RequestCount, ThreadTimes};

    fn thread(id: u32, name: &str, running: u64, queued: u64) -> Thread {
        let (running, queued) = (Duration::from_nanos(running), Duration::from_nanos(queued));
        Thread { id, name: name.to_owned(), running, queued }
    }

    fn times(kind: &str, threads: u32, running_ns: u64, queued_ns: u64) -> ThreadTimes {
        ThreadTimes { kind: kind.to_owned(), threads, running_ns, queued_ns }
    }

    #[test]
    fn times_of_threads_are_summed_by_kind_since_the_phase_began() {
        let before = [thread(1, "a-1", 100, 10), thread(2, "a-2", 50, 5), thread(4, "b", 900, 0)];
        let after = [
            thread(1, "a-1", 130, 14),
            thread(2, "a-2", 50, 5),
            // Begun during the phase.
            thread(3, "a-3", 7, 1),
            // A new thread has the number of a thread that ended.
            thread(4, "b", 20, 2),
            // The running time of a short phase is counted later, at the next scheduler tick.
            thread(6, "c", 0, 8),
        ];
        let found = by_kind(&after, &before, |name| without_number(name).to_owned());
        assert_eq!(found, [times("a", 2, 37, 5), times("b", 1, 20, 2), times("c", 1, 0, 8)]);
        assert_eq!(without_number("fslab-mover-12"), "fslab-mover");
        assert_eq!(without_number("jbd2"), "jbd2");
        assert_eq!(without_number("-1"), "-1");
    }

    #[test]
    fn process_time_includes_ended_threads_and_programs() {
        let threads = |running| Threads {
            caller: vec![thread(1, "fslab", running, 4 * running)],
            workers: vec![thread(2, "fslab", running, 0), thread(3, "fslab", 1, 1)],
            daemon: vec![thread(5, "fslab-fuse", running, running / 2)],
            kernel: vec![thread(9, "kworker/u8:2-loop0", 2 * running, 0)],
        };
        let ns = Duration::from_nanos;
        let since = |times: [u64; 3]| threads(600).since(&threads(0), times.map(ns));
        let rest = [times("daemon fslab-fuse", 1, 600, 300), times("kernel kworker", 1, 1200, 0)];
        let mut single = vec![times("workload", 1, 700, 2400)];
        single.extend(rest.clone());
        assert_eq!(since([700, 700, 0]), single);
        let mut several = vec![
            times("workload", 1, 700, 2400),
            times("workers", 1, 9300, 0),
            times("programs", 1, 20, 0),
        ];
        several.extend(rest);
        assert_eq!(since([10_000, 700, 20]), several);
    }

    #[test]
    fn counted_requests_have_their_protocol_names() {
        let counts = |pairs: &[(&str, u64)]| -> BTreeMap<String, u64> {
            pairs.iter().map(|(kind, count)| ((*kind).to_owned(), *count)).collect()
        };
        let before = counts(&[("FUSE_LOOKUP", 5), ("FUSE_READ", 2)]);
        let after = counts(&[("FUSE_LOOKUP", 7), ("FUSE_OPEN", 1), ("FUSE_READ", 2), ("other", 3)]);
        let named = |kind: &str, count| RequestCount { kind: kind.to_owned(), count };
        let expected = [named("lookup", 2), named("open", 1), named("other", 3)];
        assert_eq!(requests_since(&after, &before), expected);
    }
}
