//! Latencies of single operations: a bounded histogram for each kind of operation, and the progress
//! of a phase over time.
//!
//! The clock is read once per operation: the end of one operation is the beginning of the next. The
//! width of a bucket is at most 1/16 of its value, so percentiles are exact to 6 %. A histogram has
//! at most a few hundred buckets, for any number of operations.

use std::time::Duration;

use fslab_sys::usage::Instant;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Maximum latency in nanoseconds (an hour). A longer operation is recorded with this latency.
const LONGEST_NS: u64 = 3_600_000_000_000;

/// Significant decimal digits of the histogram. With one digit, the width of a bucket is at most
/// 1/16 of its value.
const DIGITS: u8 = 1;

/// Maximum number of milestones of a phase.
const MILESTONES: u64 = 100;

/// Latencies of operations of one kind, in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Latency {
    /// The kind of operation.
    pub operation: String,
    /// Number of operations.
    pub count: u64,
    /// Mean latency.
    pub mean_ns: u64,
    /// Shortest latency, rounded down to the start of its bucket.
    pub min_ns: u64,
    /// Median: half of the operations took at most this long.
    pub p50_ns: u64,
    /// 90th percentile.
    pub p90_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// 99.9th percentile.
    pub p999_ns: u64,
    /// Longest latency.
    pub max_ns: u64,
    /// The histogram: each bucket's upper bound and its count, without empty buckets.
    pub buckets: Vec<(u64, u64)>,
}

/// The progress of a phase at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Milestone {
    /// Operations done.
    pub operations: u64,
    /// Nanoseconds since the start of the phase's operations.
    pub elapsed_ns: u64,
}

/// Measures the time of consecutive operations.
#[derive(Debug)]
#[must_use]
pub struct Stopwatch {
    started: Instant,
    last: Instant,
    laps: u64,
    /// Operations between two milestones; 0 if there are no milestones.
    stride: u64,
    /// Operations until the next milestone.
    to_go: u64,
    longest: u64,
    histogram: Option<Histogram<u64>>,
    along: Vec<Milestone>,
}

impl Stopwatch {
    /// Starts a stopwatch.
    pub fn start() -> Self {
        let now = Instant::now();
        Self {
            started: now,
            last: now,
            laps: 0,
            stride: 0,
            to_go: 0,
            longest: 0,
            histogram: Histogram::new_with_bounds(1, LONGEST_NS, DIGITS).ok(),
            along: Vec::new(),
        }
    }

    /// Starts a stopwatch for about this many operations, which records milestones on the way.
    pub fn start_along(operations: u64) -> Self {
        let stride = operations.div_ceil(MILESTONES).max(1);
        let along = Vec::with_capacity(MILESTONES as usize);
        Self { stride, to_go: stride, along, ..Self::start() }
    }

    /// Records the end of an operation, which is the beginning of the next.
    #[inline]
    pub fn lap(&mut self) {
        let now = Instant::now();
        self.record(now - self.last);
        self.last = now;
        self.laps += 1;
        if self.stride == 0 {
            return;
        }
        self.to_go -= 1;
        if self.to_go == 0 {
            self.to_go = self.stride;
            let elapsed_ns = nanoseconds(now - self.started);
            self.along.push(Milestone { operations: self.laps, elapsed_ns });
        }
    }

    /// Starts the next operation now. The time since the end of the last operation is not recorded.
    #[inline]
    pub fn skip(&mut self) {
        self.last = Instant::now();
    }

    /// Merges the latencies of another stopwatch. The milestones are dropped, because milestones of
    /// several workers can't be combined.
    pub fn joined_with(mut self, other: Self) -> Self {
        self.laps += other.laps;
        self.longest = self.longest.max(other.longest);
        if let (Some(own), Some(others)) = (&mut self.histogram, other.histogram) {
            // Both histograms have the same bounds, so no value lies outside.
            if let Err(error) = own.add(others) {
                tracing::warn!("can't merge two latency histograms: {error}");
            }
        }
        self.along.clear();
        self
    }

    /// Returns the latencies and the milestones. The latencies are `None` if there was no
    /// operation.
    #[must_use]
    pub fn finish(self, operation: &str) -> (Option<Latency>, Vec<Milestone>) {
        let latency = self.histogram.filter(|histogram| !histogram.is_empty()).map(|histogram| {
            let at = |quantile: f64| histogram.value_at_quantile(quantile).min(self.longest);
            Latency {
                operation: operation.to_owned(),
                count: histogram.len(),
                mean_ns: histogram.mean() as u64,
                min_ns: histogram.min(),
                p50_ns: at(0.5),
                p90_ns: at(0.9),
                p99_ns: at(0.99),
                p999_ns: at(0.999),
                max_ns: self.longest,
                buckets: buckets(&histogram),
            }
        });
        (latency, self.along)
    }

    /// Returns the longest latency and the buckets. A worker process sends its latencies in this
    /// form.
    #[must_use]
    pub fn into_buckets(self) -> (u64, Vec<(u64, u64)>) {
        (self.longest, self.histogram.as_ref().map(buckets).unwrap_or_default())
    }

    /// Makes a stopwatch of the longest latency and the buckets that a worker process sent.
    pub fn from_buckets(longest: u64, buckets: &[(u64, u64)]) -> Self {
        let mut stopwatch = Self { longest, ..Self::start() };
        for (value, count) in buckets {
            stopwatch.laps += count;
            if let Some(histogram) = &mut stopwatch.histogram {
                histogram.saturating_record_n(*value, *count);
            }
        }
        stopwatch
    }

    fn record(&mut self, duration: Duration) {
        let value = nanoseconds(duration);
        self.longest = self.longest.max(value);
        if let Some(histogram) = &mut self.histogram {
            histogram.saturating_record(value);
        }
    }
}

/// Measures the time of consecutive operations. Reads and writes have separate histograms:
/// percentiles of both together would describe neither.
#[derive(Debug)]
pub struct Directions {
    /// Stopwatch of the reads.
    pub reads: Stopwatch,
    /// Stopwatch of the writes.
    pub writes: Stopwatch,
    last: Instant,
}

impl Directions {
    /// Starts both stopwatches.
    #[must_use]
    pub fn start() -> Self {
        let reads = Stopwatch::start();
        Self { last: reads.last, reads, writes: Stopwatch::start() }
    }

    /// Combines a stopwatch of reads and one of writes.
    #[must_use]
    pub fn of(reads: Stopwatch, writes: Stopwatch) -> Self {
        Self { last: reads.last, reads, writes }
    }

    /// Records the end of an operation, which is the beginning of the next.
    #[inline]
    pub fn lap(&mut self, is_write: bool) {
        let now = Instant::now();
        self.record(is_write, now - self.last);
        self.last = now;
    }

    /// Records the duration of an operation that was timed with a separate clock.
    #[inline]
    pub fn record(&mut self, is_write: bool, took: Duration) {
        let stopwatch = if is_write { &mut self.writes } else { &mut self.reads };
        stopwatch.record(took);
        stopwatch.laps += 1;
    }
}

fn buckets(histogram: &Histogram<u64>) -> Vec<(u64, u64)> {
    let recorded = histogram.iter_recorded();
    recorded.map(|value| (value.value_iterated_to(), value.count_since_last_iteration())).collect()
}

/// Converts a duration to nanoseconds.
#[must_use]
pub fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Directions, Stopwatch};

    fn stopwatch(values: impl Iterator<Item = u64>) -> Stopwatch {
        let mut stopwatch = Stopwatch::start();
        for value in values {
            stopwatch.record(Duration::from_nanos(value));
        }
        stopwatch
    }

    /// Percentiles are exact to 1/16, and the longest latency is exact. The size does not grow with
    /// the number of operations.
    #[test]
    fn percentiles_are_accurate_and_the_histogram_is_bounded() {
        let (latency, _) = stopwatch((1..=100_000).map(|value| value * 10)).finish("x");
        let latency = latency.unwrap();
        assert_eq!((latency.count, latency.max_ns), (100_000, 1_000_000));
        let near = |found: u64, exact: f64| (found as f64 / exact - 1.0).abs() < 0.07;
        assert!(near(latency.p50_ns, 500_000.0), "{latency:?}");
        assert!(near(latency.p90_ns, 900_000.0), "{latency:?}");
        assert!(near(latency.p99_ns, 990_000.0), "{latency:?}");
        assert!(near(latency.mean_ns, 500_005.0), "{latency:?}");
        assert!(latency.buckets.len() < 300, "{}", latency.buckets.len());
        assert_eq!(latency.buckets.iter().map(|(_, count)| count).sum::<u64>(), 100_000);
    }

    /// The buckets that a worker process sends keep all values. Joining two stopwatches adds their
    /// counts.
    #[test]
    fn buckets_round_trip_and_join() {
        let (longest, buckets) = stopwatch([100, 2_000, 30_000].into_iter()).into_buckets();
        let told = Stopwatch::from_buckets(longest, &buckets);
        let (joined, _) = told.joined_with(stopwatch([5_000_000].into_iter())).finish("x");
        let joined = joined.unwrap();
        assert_eq!((joined.count, joined.max_ns), (4, 5_000_000));
        assert!(stopwatch([].into_iter()).finish("x").0.is_none());
    }

    /// Each operation is counted as a read or a write, and its time is not added to the other kind.
    #[test]
    fn reads_and_writes_are_timed_separately() {
        let mut directions = Directions::start();
        for number in 0..50 {
            let is_write = number % 5 == 0;
            if is_write {
                std::thread::sleep(Duration::from_millis(2));
            }
            directions.lap(is_write);
        }
        let Directions { reads, writes, .. } = directions;
        let (reads, writes) =
            (reads.joined_with(Stopwatch::start()), writes.joined_with(Stopwatch::start()));
        let (reads, writes) = (reads.finish("read").0, writes.finish("write").0);
        let (reads, writes) = (reads.unwrap(), writes.unwrap());
        assert_eq!((reads.count, writes.count), (40, 10));
        assert!(writes.min_ns >= 1_900_000 && reads.p50_ns < 1_000_000, "{reads:?}, {writes:?}");
    }

    #[test]
    fn milestones_are_spread_over_the_operations() {
        let mut stopwatch = Stopwatch::start_along(1_000);
        for _ in 0..1_000 {
            stopwatch.lap();
        }
        let (latency, along) = stopwatch.finish("x");
        assert_eq!((along.len(), along[99].operations), (100, 1_000));
        assert!(along.windows(2).all(|pair| pair[0].elapsed_ns <= pair[1].elapsed_ns));
        assert_eq!(latency.unwrap().count, 1_000);
    }
}
