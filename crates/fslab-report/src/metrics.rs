//! Metrics: the figures of a sample other than its elapsed time. Each has a ratio, an interval and
//! a verdict, like the time.

use super::merge::Merged;
use super::model::{Against, Group, MetricRow, Row};
use super::names::distinct;
use super::pairing;
use super::time_parts::Times;
use crate::sample::{Better, Device, OwnMetric, Sample, ThreadTimes};
use fslab_stats::{Latency, Summary};

/// A metric: its name, its unit, and the source of its figure in a sample.
pub(super) struct Metric {
    pub name: String,
    unit: String,
    better: Better,
    figure: Figure,
}

/// The source of a figure in a sample.
enum Figure {
    /// A counter of the phase.
    Counter(Counter),
    /// A percentile of the latencies of an operation.
    Percentile { operation: String, least: u64, of: Percentile },
    /// The requests of a kind to a file system in user space.
    Requests { kind: String },
    /// A time of all threads of one kind.
    Threads { kind: String, of: fn(&ThreadTimes) -> u64 },
    /// A figure that the workload measured itself, found by its name.
    Own,
}

/// Reads a counter; `None` if the sample does not have it.
type Counter = fn(&Sample) -> Option<f64>;

const SECONDS: &str = "s";
const BYTES: &str = "bytes";
const NUMBER: &str = "";

const COUNTERS: [(&str, &str, Counter); 19] = [
    ("processor-each", SECONDS, |sample| {
        let all = sample.user_ns + sample.system_ns + sample.daemon_cpu_ns.unwrap_or(0);
        Some(seconds(all) / sample.operations.max(1) as f64)
    }),
    ("user", SECONDS, |sample| Some(seconds(sample.user_ns))),
    ("system", SECONDS, |sample| Some(seconds(sample.system_ns))),
    ("daemon", SECONDS, |sample| sample.daemon_cpu_ns.map(seconds)),
    ("flush", SECONDS, |sample| Some(seconds(sample.flush_ns))),
    ("requests", NUMBER, |sample| Some(sample.fuse_requests? as f64)),
    ("device-reads", NUMBER, |sample| Some(sample.device?.reads as f64)),
    ("device-read-bytes", BYTES, |sample| sample.device.map(bytes_read)),
    ("device-writes", NUMBER, |sample| Some(sample.device?.writes as f64)),
    ("device-written-bytes", BYTES, |sample| sample.device.map(bytes_written)),
    ("device-flushes", NUMBER, |sample| Some(sample.device?.flushes as f64)),
    ("device-busy", SECONDS, |sample| Some(sample.device?.busy_ms as f64 / 1e3)),
    ("device-read-time", SECONDS, |sample| Some(sample.device?.read_ms as f64 / 1e3)),
    ("device-write-time", SECONDS, |sample| Some(sample.device?.write_ms as f64 / 1e3)),
    ("workload-waiting", SECONDS, |sample| Some(Times::of(sample)?.waiting())),
    ("write-amplification", NUMBER, |sample| {
        let written = sample.device.map(bytes_written)?;
        (sample.bytes > 0).then(|| written / sample.bytes as f64)
    }),
    ("used-bytes", BYTES, |sample| Some(sample.used_bytes? as f64)),
    ("stored-bytes", BYTES, |sample| Some(sample.stored_bytes? as f64)),
    ("page-cache-bytes", BYTES, |sample| Some(sample.machine.page_cache_bytes.max(0) as f64)),
];

/// Kinds of threads that used less than this share of the elapsed time have no metrics.
const THREADS_SHARE: f64 = 0.01;

/// Percentiles, and the minimum number of operations for which each is meaningful.
const PERCENTILES: [(&str, u64, Percentile); 4] = [
    ("p50", 2, |latency| latency.p50_ns),
    ("p90", 10, |latency| latency.p90_ns),
    ("p99", 100, |latency| latency.p99_ns),
    ("p99.9", 1000, |latency| latency.p999_ns),
];

type Percentile = fn(&Latency) -> u64;

fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}

fn bytes_read(device: Device) -> f64 {
    device.sectors_read as f64 * 512.0
}

fn bytes_written(device: Device) -> f64 {
    device.sectors_written as f64 * 512.0
}

/// Returns the metrics of the kinds of threads that used a relevant share of the time in a sample.
fn of_threads(samples: &[&Sample]) -> Vec<Metric> {
    let relevant = samples.iter().flat_map(|sample| {
        let is_relevant = |one: &&ThreadTimes| {
            (one.running_ns + one.queued_ns) as f64 > THREADS_SHARE * sample.elapsed_ns as f64
        };
        sample.thread_times.iter().filter(is_relevant).map(|one| &*one.kind)
    });
    let metrics = |kind: &str| {
        let metric = |name: &str, of: fn(&ThreadTimes) -> u64| Metric {
            name: format!("{}-{name}", kind.replace(' ', "-")),
            unit: SECONDS.to_owned(),
            better: Better::Less,
            figure: Figure::Threads { kind: kind.to_owned(), of },
        };
        [metric("running", |one| one.running_ns), metric("queued", |one| one.queued_ns)]
    };
    distinct(relevant).into_iter().flat_map(metrics).collect()
}

/// Returns the metrics of a group with their rows: for each metric, the rows of all targets.
pub(super) fn by_name(group: &Group) -> impl Iterator<Item = (&Row, &MetricRow)> {
    let all = group.rows.iter().flat_map(|row| &row.metrics);
    distinct(all.map(|metric| &*metric.metric)).into_iter().flat_map(move |name| {
        group.rows.iter().filter_map(move |row| {
            Some((row, row.metrics.iter().find(|metric| metric.metric == name)?))
        })
    })
}

impl Metric {
    /// Returns the metrics that occur in any sample and are not 0 in all of them.
    pub fn of_samples(samples: &[&Sample]) -> Vec<Self> {
        let counters = COUNTERS.iter().map(|(name, unit, counter)| Self {
            name: (*name).to_owned(),
            unit: (*unit).to_owned(),
            better: Better::Less,
            figure: Figure::Counter(*counter),
        });
        let latencies = samples.iter().flat_map(|sample| &sample.latencies);
        let operations = distinct(latencies.map(|latency| latency.operation.as_str()));
        let percentiles = operations.into_iter().flat_map(|operation| {
            PERCENTILES.iter().map(move |(name, least, of)| Self {
                name: format!("{}-{name}", operation.replace(' ', "-")),
                unit: SECONDS.to_owned(),
                better: Better::Less,
                figure: Figure::Percentile {
                    operation: operation.to_owned(),
                    least: *least,
                    of: *of,
                },
            })
        });
        let requests = samples.iter().flat_map(|sample| &sample.requests);
        let requests = distinct(requests.map(|one| &*one.kind)).into_iter().map(|kind| Self {
            name: format!("requests-{kind}"),
            unit: NUMBER.to_owned(),
            better: Better::Less,
            figure: Figure::Requests { kind: kind.to_owned() },
        });
        let own = samples.iter().flat_map(|sample| &sample.metrics);
        let own = distinct(own.map(|own| (&own.name, &own.unit, own.better)));
        let own = own.into_iter().map(|(name, unit, better)| Self {
            name: name.clone(),
            unit: unit.clone(),
            better,
            figure: Figure::Own,
        });
        let is_there = |metric: &Self| {
            samples.iter().any(|sample| metric.of(sample).is_some_and(|figure| figure != 0.0))
        };
        let threads = of_threads(samples);
        let all = counters.chain(requests).chain(threads).chain(percentiles).chain(own);
        all.filter(is_there).collect()
    }

    /// Returns the figure of a sample.
    pub fn of(&self, sample: &Sample) -> Option<f64> {
        match &self.figure {
            Figure::Counter(counter) => counter(sample),
            Figure::Percentile { operation, least, of } => {
                let is_it = |one: &&Latency| one.operation == *operation && one.count >= *least;
                Some(seconds(of(sample.latencies.iter().find(is_it)?)))
            }
            Figure::Requests { kind } => {
                // If requests are counted, a missing kind means that no request of this kind
                // occurred.
                sample.fuse_requests?;
                let one = sample.requests.iter().find(|one| one.kind == *kind);
                Some(one.map_or(0.0, |one| one.count as f64))
            }
            Figure::Threads { kind, of } => {
                // If times are known, a missing kind means that no thread of this kind ran.
                sample.thread_times.first()?;
                let one = sample.thread_times.iter().find(|one| one.kind == *kind);
                Some(one.map_or(0.0, |one| seconds(of(one))))
            }
            Figure::Own => {
                let is_it = |own: &&OwnMetric| own.name == self.name && own.unit == self.unit;
                Some(sample.metrics.iter().find(is_it)?.value)
            }
        }
    }

    /// Computes the metric of a target. Its figures come from `own`, the samples of one machine;
    /// its ratios come from all samples.
    pub fn row(
        &self,
        own: &[&Sample],
        all: &[&Sample],
        bases: &[(bool, &[&Sample])],
        merged: &Merged<'_>,
    ) -> Option<MetricRow> {
        let figures: Vec<f64> = own.iter().filter_map(|sample| self.of(sample)).collect();
        let figure = |sample: &Sample| self.of(sample);
        let against = |(is_baseline, base): &(bool, &[&Sample])| {
            Against::new(all.len(), *is_baseline, None)
                .with_ratios(|| pairing::ratios(all, base, merged, &figure))
        };
        Some(MetricRow {
            metric: self.name.clone(),
            unit: self.unit.clone(),
            better: self.better,
            is_own: matches!(self.figure, Figure::Own),
            summary: Summary::of(&figures)?,
            against: bases.iter().map(against).collect(),
        })
    }
}
