//! The counters of `stats`, in shards.

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use fslab_vfs::{Answer, Errno, Operation, Outcome, errno_name};

use super::super::threads::own_number;
use super::histogram::{Counts, Histogram, percentile_ns, upper_ns};
use crate::report::{Bucket, Latency, OperationReport};

/// Number of shards. If there are more threads, several of them share a shard.
const SHARDS: usize = 16;

/// Upper bound of the error numbers that Linux file systems return.
const ERRNOS: usize = 134;

/// All counters, in shards that are allocated at first use.
#[derive(Default)]
pub(super) struct Counters {
    shards: [OnceLock<Box<[Counter]>>; SHARDS],
}

/// The counters of one operation in one shard. Because of the alignment, two counters never share a
/// pair of cache lines.
#[repr(align(128))]
#[derive(Default)]
struct Counter {
    begun: AtomicU64,
    ended: AtomicU64,
    bytes: AtomicU64,
    sum_ns: AtomicU64,
    max_ns: AtomicU64,
    latencies: Histogram,
    /// Errors by number; the last counter includes all larger numbers.
    errors: Counts<ERRNOS>,
}

impl Counters {
    pub fn begin(&self, operation: Operation) {
        self.counter(operation).begun.fetch_add(1, Ordering::Relaxed);
    }

    pub fn end(&self, operation: Operation, duration_ns: u64, outcome: &Outcome<'_>) {
        let counter = self.counter(operation);
        match outcome {
            Ok(Answer::Moved(bytes)) => {
                counter.bytes.fetch_add(*bytes, Ordering::Relaxed);
            }
            Ok(_) => {}
            Err(errno) => counter.fail(*errno),
        }
        counter.latencies.record(duration_ns);
        counter.sum_ns.fetch_add(duration_ns, Ordering::Relaxed);
        // New maxima are rare, and a load is cheaper than an exchange.
        if counter.max_ns.load(Ordering::Relaxed) < duration_ns {
            counter.max_ns.fetch_max(duration_ns, Ordering::Relaxed);
        }
        counter.ended.fetch_add(1, Ordering::Relaxed);
    }

    /// The counts of each operation that occurred.
    pub fn report(&self) -> Vec<OperationReport> {
        let all = Operation::ALL.iter().map(|operation| self.report_of(*operation));
        all.filter(|report| report.count + report.in_flight > 0).collect()
    }

    fn counter(&self, operation: Operation) -> &Counter {
        let shard = &self.shards[own_number() as usize % SHARDS];
        let make = || Operation::ALL.iter().map(|_| Counter::default()).collect();
        &shard.get_or_init(make)[operation as usize]
    }

    fn report_of(&self, operation: Operation) -> OperationReport {
        let mut sum = Sum::default();
        for shard in self.shards.iter().filter_map(OnceLock::get) {
            sum.add(&shard[operation as usize]);
        }
        OperationReport {
            operation: operation.name().to_owned(),
            count: sum.ended,
            in_flight: sum.begun.saturating_sub(sum.ended),
            bytes: sum.bytes,
            latency: sum.latency(),
            errors: sum.errors,
        }
    }
}

impl Counter {
    fn fail(&self, errno: Errno) {
        let number = usize::try_from(errno.raw_os_error()).unwrap_or(ERRNOS);
        self.errors.0[number.min(ERRNOS - 1)].fetch_add(1, Ordering::Relaxed);
    }
}

/// The sum of one operation over all shards.
#[derive(Default)]
struct Sum {
    begun: u64,
    ended: u64,
    bytes: u64,
    sum_ns: u64,
    max_ns: u64,
    latencies: Vec<u64>,
    errors: BTreeMap<String, u64>,
}

impl Sum {
    fn add(&mut self, counter: &Counter) {
        let of = |number: &AtomicU64| number.load(Ordering::Relaxed);
        // The counter of ended operations is read first, so that it never exceeds the counter of
        // begun ones. An operation that ends between the two reads is reported as in flight.
        self.ended += of(&counter.ended);
        self.begun += of(&counter.begun);
        self.bytes += of(&counter.bytes);
        self.sum_ns += of(&counter.sum_ns);
        self.max_ns = self.max_ns.max(of(&counter.max_ns));
        counter.latencies.add_to(&mut self.latencies);
        for (number, count) in counter.errors.0.iter().enumerate() {
            let count = of(count);
            if count > 0 {
                *self.errors.entry(name_of(number)).or_default() += count;
            }
        }
    }

    fn latency(&self) -> Latency {
        let percentile = |share| percentile_ns(&self.latencies, share).min(self.max_ns);
        let counted = self.latencies.iter().enumerate().filter(|(_, count)| **count > 0);
        Latency {
            sum_ns: self.sum_ns,
            max_ns: self.max_ns,
            p50_ns: percentile(0.5),
            p90_ns: percentile(0.9),
            p99_ns: percentile(0.99),
            p999_ns: percentile(0.999),
            buckets: counted
                .map(|(index, count)| Bucket { upper_ns: upper_ns(index), count: *count })
                .collect(),
        }
    }
}

fn name_of(number: usize) -> String {
    match i32::try_from(number) {
        Ok(raw @ 1..) if number < ERRNOS - 1 => errno_name(Errno::from_raw_os_error(raw)),
        _ => "other".to_owned(),
    }
}
