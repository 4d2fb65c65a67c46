//! The types of a report's model.

use serde::Serialize;

use crate::pooling::Pooling;
use crate::provenance::Provenance;
use crate::sample::{Better, CacheState, End, Note, Sample, TargetRecord, of_threads};
use fslab_stats::{GeometricMean, Margin, RatioInterval, Steadiness, Summary};

/// The model of a report: everything that renderers show.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The provenance of the first run.
    pub provenance: Provenance,
    /// The provenances of the other runs whose samples are included.
    pub further_runs: Vec<Provenance>,
    /// The baselines, the main one first.
    pub baselines: Vec<String>,
    /// Names of the machines on which the samples were taken.
    pub machines: Vec<String>,
    /// The way to combine the ratios of these machines.
    #[serde(skip_serializing_if = "Pooling::is_strata")]
    pub pooling: Pooling,
    /// The groups of machines that are treated as one when their ratios are combined.
    #[serde(skip)]
    pub(crate) kernels: Vec<Vec<usize>>,
    /// Names of all targets, in the plan's order.
    pub target_names: Vec<String>,
    /// Labels of all workloads, in the plan's order.
    pub workloads: Vec<String>,
    /// Descriptions of how the targets were made.
    pub targets: Vec<TargetRecord>,
    /// Notes for the reader, the most serious first.
    pub notes: Vec<Note>,
    /// The end of the comparison; missing if a run was killed or is still running.
    pub end: Option<End>,
    /// The phases in the order of a run; the points of a sweep follow its sum.
    pub groups: Vec<Group>,
    /// The geometric means of the targets' ratios, by baseline and then by target.
    pub overall: Vec<Vec<Option<GeometricMean>>>,
    /// Number of samples that the report uses.
    pub samples: usize,
    /// Number of these samples that were taken during interference.
    pub contaminated: usize,
    /// Number of these samples that are outliers; they are used too.
    pub outliers: usize,
    /// Number of samples of superseded attempts; they are stored but not used.
    pub superseded: usize,
    /// The least steady row that wrote to its device; `None` if all were steady.
    pub least_steady: Option<Unsteady>,
    /// Metrics that the terminal shows in addition to the time; empty by default.
    #[serde(skip)]
    pub shown_metrics: Vec<String>,
    /// Returns a description of a workload for the page; empty by default.
    #[serde(skip)]
    pub workload_help: fn(&str) -> &'static str,
    /// The samples that the report uses, as measured.
    #[serde(skip)]
    pub raw: Vec<Sample>,
}

/// One phase of one workload, or one point of a sweep, over all targets.
#[derive(Clone, Debug, Serialize)]
pub struct Group {
    /// The workload's label.
    pub workload: String,
    /// The phase.
    pub phase: String,
    /// The size of a sweep's point; `None` for a phase, and for the sum over a sweep.
    pub size_bytes: Option<u64>,
    /// The number of threads at a point of a sweep over threads.
    pub threads: Option<u32>,
    /// Whether this is the sum over a sweep's points.
    pub is_sum: bool,
    /// The cache state that was requested.
    pub cache: CacheState,
    /// The targets, in the plan's order.
    pub rows: Vec<Row>,
    /// The difference between two copies of the baseline, if a second one was run.
    pub noise_floor: Option<NoiseFloor>,
}

/// The ratio of a hidden second copy of the plan's baseline to the baseline. Smaller differences
/// are within the noise of the measurement.
#[derive(Clone, Debug, Serialize)]
pub struct NoiseFloor {
    /// The ratio of the times of the same rounds.
    pub ratio: RatioInterval,
    /// The ratios of metrics, if both copies have them.
    pub metrics: Vec<MetricFloor>,
}

/// The noise floor of a metric.
#[derive(Clone, Debug, Serialize)]
pub struct MetricFloor {
    /// The metric.
    pub metric: String,
    /// The ratio of the second copy's figures to the baseline's.
    pub ratio: RatioInterval,
}

/// The rows whose device had not reached a steady state.
#[derive(Clone, Debug, Serialize)]
pub struct Unsteady {
    /// Number of rows whose device had not reached a steady state.
    pub rows: usize,
    /// The workload, phase and target of the least steady row.
    pub worst: String,
    /// The steadiness of that row.
    pub steadiness: Steadiness,
}

/// A target in a group.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The target.
    pub target: String,
    /// Its index in the plan, which determines its colour.
    pub index: usize,
    /// The index of the machine on which the times were measured. If `machines` is not empty, the
    /// ratios are over all machines.
    pub machine: usize,
    /// The rows of the single machines, if there are samples of several. Times and counters of
    /// different machines are never combined.
    pub machines: Vec<Row>,
    /// Elapsed time in seconds.
    pub seconds: Summary,
    /// Comparisons with each baseline, in their order.
    pub against: Vec<Against>,
    /// Number of operations per sample.
    pub operations: u64,
    /// Number of bytes per sample.
    pub bytes: u64,
    /// Means over the samples.
    pub means: Means,
    /// Number of samples whose cache state was proven to be as requested.
    pub proven: usize,
    /// Number of samples taken during interference.
    pub contaminated: usize,
    /// One point for each sample.
    pub points: Vec<Point>,
    /// The steadiness of the last rounds, if there are enough.
    pub steadiness: Option<Steadiness>,
    /// Latencies by kind of operation, if they were measured.
    pub latencies: Vec<LatencyFigures>,
    /// The time per operation during the phase, if it was measured.
    pub along: Vec<Progress>,
    /// Its other metrics; none for the points of a sweep.
    pub metrics: Vec<MetricRow>,
}

/// A metric of a target in a group.
#[derive(Clone, Debug, Serialize)]
pub struct MetricRow {
    /// The metric.
    pub metric: String,
    /// Its unit: `s`, `bytes`, empty for a number, or one defined by the workload.
    pub unit: String,
    /// The direction that is better.
    pub better: Better,
    /// Whether the workload measured the metric itself.
    pub is_own: bool,
    /// A summary of the metric's figures.
    pub summary: Summary,
    /// Comparisons with each baseline, in their order. Here [`Verdict::Faster`] means less and
    /// [`Verdict::Slower`] means more.
    pub against: Vec<Against>,
}

/// The latencies of operations of one kind.
#[derive(Clone, Debug, Serialize)]
pub struct LatencyFigures {
    /// The kind.
    pub operation: String,
    /// Number of operations in all samples.
    pub count: u64,
    /// The median. This field and the next three contain medians over the samples.
    pub p50_seconds: f64,
    /// The 90th percentile.
    pub p90_seconds: f64,
    /// The 99th percentile.
    pub p99_seconds: f64,
    /// The 99.9th percentile.
    pub p999_seconds: f64,
    /// The maximum over all samples.
    pub max_seconds: f64,
}

/// The time per operation at one point of a phase.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Progress {
    /// Number of operations done up to this point.
    pub operations: u64,
    /// Average seconds per operation since the previous point.
    pub seconds_each: f64,
}

/// The comparison of a target with a baseline.
#[derive(Clone, Debug, Serialize)]
pub struct Against {
    /// The verdict.
    pub verdict: Verdict,
    /// The margin that applies, if one is stated.
    pub margin: Option<Margin>,
    /// The ratio of the figures of the same rounds.
    pub ratio: Option<RatioInterval>,
    /// Its p-value after Holm's correction over all phases, targets and baselines of the report.
    /// For a sweep's points, the correction is over the points of the sweep; for metrics, over all
    /// metrics.
    pub p_adjusted: Option<f64>,
    /// Whether the ratio lies within the interval of the noise floor.
    pub within_noise_floor: bool,
    /// The ratio in the round of each point.
    pub ratios: Vec<Option<f64>>,
    /// The state of the measuring thread that explains most of a shown difference, if this is
    /// proven: a clause that begins with "because".
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// Counters that also differ, if a difference is shown.
    pub why: Vec<String>,
}

/// A ratio with its interval, and the ratios of the rounds.
pub(super) type Ratios = (Option<RatioInterval>, Vec<Option<f64>>);

/// The verdict on a target against a baseline.
#[derive(Clone, Copy, Debug, Serialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The target is the baseline.
    Baseline,
    /// Too few rounds have samples of both targets.
    TooFew,
    /// No margin is stated, and the interval contains 1.
    NotShown,
    /// No margin is stated. The interval excludes 1, but after Holm's correction no difference is
    /// shown, because among many comparisons some intervals exclude 1 by chance.
    Alone,
    /// The whole interval lies within the margin on both sides of 1.
    Equal,
    /// The margin bounds only slower ratios, and the whole interval lies below it.
    AtMostSlower,
    /// A margin is stated, but the interval is too wide to decide.
    NotDecided,
    /// The target is faster.
    Faster,
    /// The target is slower.
    Slower,
}

impl Verdict {
    /// Whether a difference is shown.
    #[must_use]
    pub fn shows_difference(self) -> bool {
        matches!(self, Self::Faster | Self::Slower)
    }

    /// Returns the mark before a ratio in texts.
    #[must_use]
    pub fn mark(self) -> &'static str {
        match self {
            Self::NotShown => "~",
            Self::Alone | Self::NotDecided => "?",
            Self::Equal => "=",
            Self::AtMostSlower => "\u{2264}",
            Self::Baseline | Self::TooFew | Self::Faster | Self::Slower => " ",
        }
    }
}

/// One sample in a chart.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Point {
    /// The round, from 0.
    pub round: u32,
    /// The index of the machine.
    pub machine: usize,
    /// Elapsed time in seconds.
    pub seconds: f64,
    /// Whether it was taken during interference.
    pub contaminated: bool,
    /// Whether it is an outlier.
    pub outlier: bool,
}

/// Means of a sample's counters.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Means {
    /// Seconds in fsync and syncfs.
    pub flush_seconds: f64,
    /// User processor time of the workload itself, in seconds.
    pub user_seconds: f64,
    /// System processor time of the workload itself, in seconds.
    pub system_seconds: f64,
    /// Processor time of the daemon in seconds, if known.
    pub daemon_seconds: Option<f64>,
    /// Requests to the file system in user space, if known.
    pub fuse_requests: Option<f64>,
    /// Used bytes on the target after the phase, if known.
    pub used_bytes: Option<f64>,
    /// Allocated bytes of the files that the phase wrote, if the workload requested it.
    pub stored_bytes: Option<f64>,
    /// The device's counters, if there is a device.
    pub device: Option<DeviceMeans>,
}

/// Means of the device's counters.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct DeviceMeans {
    /// Read requests.
    pub reads: f64,
    /// Bytes read.
    pub bytes_read: f64,
    /// Write requests.
    pub writes: f64,
    /// Bytes written.
    pub bytes_written: f64,
    /// Merged requests.
    pub merged: f64,
    /// Cache flushes.
    pub flushes: f64,
    /// Seconds during which the device had at least one request.
    pub busy_seconds: f64,
}

impl Against {
    /// Makes a comparison without ratios, for this number of samples.
    #[must_use]
    pub(super) fn new(samples: usize, is_baseline: bool, margin: Option<Margin>) -> Self {
        Self {
            verdict: if is_baseline { Verdict::Baseline } else { Verdict::TooFew },
            margin: margin.filter(|_| !is_baseline),
            ratio: None,
            p_adjusted: None,
            within_noise_floor: false,
            ratios: vec![None; samples],
            cause: None,
            why: Vec::new(),
        }
    }

    /// Adds the ratios, unless the target is the baseline itself.
    #[must_use]
    pub(super) fn with_ratios(self, ratios: impl FnOnce() -> Ratios) -> Self {
        if self.verdict == Verdict::Baseline {
            return self;
        }
        let (ratio, ratios) = ratios();
        Self { ratio, ratios, ..self }
    }

    /// Whether an apparent difference is no larger than that between two copies of the baseline.
    #[must_use]
    pub fn is_doubted_by_noise(&self) -> bool {
        let differs = matches!(self.verdict, Verdict::Faster | Verdict::Slower | Verdict::Alone);
        differs && self.within_noise_floor
    }
}

impl Group {
    /// Returns the phase without the number of threads, which is part of its name in a sweep over
    /// threads.
    #[must_use]
    pub fn operation(&self) -> &str {
        let end = self.threads.map(|threads| of_threads("", threads)).unwrap_or_default();
        self.phase.strip_suffix(end.as_str()).unwrap_or(&self.phase)
    }

    /// Returns the name of the group within its workload.
    #[must_use]
    pub fn name(&self) -> String {
        if self.is_sum { format!("{}, all sizes", self.phase) } else { self.phase.clone() }
    }
}

impl Row {
    /// Whether the row combines several machines.
    #[must_use]
    pub fn is_pooled(&self) -> bool {
        !self.machines.is_empty()
    }

    /// Returns the points of the machine on which the times were measured.
    pub fn own_points(&self) -> impl Iterator<Item = &Point> {
        self.points.iter().filter(|point| point.machine == self.machine)
    }

    /// Returns the number of samples of all machines.
    #[must_use]
    pub fn count(&self) -> usize {
        self.points.len()
    }

    /// Returns the median time per operation in seconds.
    #[must_use]
    pub fn seconds_per_operation(&self) -> Option<f64> {
        (self.operations > 0).then(|| self.seconds.median / self.operations as f64)
    }

    /// Returns the throughput in bytes per second at the median time.
    #[must_use]
    pub fn bytes_per_second(&self) -> Option<f64> {
        (self.bytes > 0 && self.seconds.median > 0.0)
            .then(|| self.bytes as f64 / self.seconds.median)
    }
}

impl Report {
    /// Returns the groups of whole phases, without the points of sweeps.
    pub fn phases(&self) -> impl Iterator<Item = &Group> {
        self.groups.iter().filter(|group| group.size_bytes.is_none())
    }
}
