//! What a report says: the values every renderer shows.

use serde::Serialize;

use crate::provenance::Provenance;
use crate::sample::{Better, CacheState, End, Note, Sample, TargetRecord, of_threads};
use fslab_stats::{GeometricMean, Margin, RatioInterval, Steadiness, Summary};

/// Everything a renderer shows.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// What was run, where and with what; of several runs, the first.
    pub provenance: Provenance,
    /// The other runs whose samples are read together with it.
    pub further_runs: Vec<Provenance>,
    /// The targets the others are compared with, the main one first.
    pub baselines: Vec<String>,
    /// What the machines are called on which the samples were taken.
    pub machines: Vec<String>,
    /// Names of all targets, in the plan's order.
    pub target_names: Vec<String>,
    /// Labels of all workloads, in the plan's order.
    pub workloads: Vec<String>,
    /// How each target was made.
    pub targets: Vec<TargetRecord>,
    /// What a reader must know, the gravest first.
    pub notes: Vec<Note>,
    /// How it ended; missing where a run was killed or still goes on.
    pub end: Option<End>,
    /// Phases, in the order in which they were run; a sweep's points follow its sum.
    pub groups: Vec<Group>,
    /// What each target's ratios have in common, by baseline and then by target.
    pub overall: Vec<Vec<Option<GeometricMean>>>,
    /// Samples that count.
    pub samples: usize,
    /// Of these, taken while the machine did other things.
    pub contaminated: usize,
    /// Of these, far from the others of their kind; they count as well.
    pub outliers: usize,
    /// Samples of blocks that were run again; they are kept and don't count.
    pub superseded: usize,
    /// The row that was least steady while it wrote to its device, of those that were not.
    pub least_steady: Option<Unsteady>,
    /// Metrics that the terminal shows beside the time; none unless they are set.
    #[serde(skip)]
    pub shown_metrics: Vec<String>,
    /// What is known of a workload beyond its label, for the page; nothing unless it is set.
    #[serde(skip)]
    pub workload_help: fn(&str) -> &'static str,
    /// The samples that count, as they were measured.
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
    /// For a point of a sweep over threads: how many.
    pub threads: Option<u32>,
    /// The sum over a sweep's points.
    pub is_sum: bool,
    /// What was asked of the cache.
    pub cache: CacheState,
    /// The targets, in the plan's order.
    pub rows: Vec<Row>,
    /// How far two copies of the baseline are apart, where a second one was run.
    pub noise_floor: Option<NoiseFloor>,
}

/// A hidden second copy of the plan's baseline against the baseline: what differs no more is
/// within the noise of the measurement.
#[derive(Clone, Debug, Serialize)]
pub struct NoiseFloor {
    /// The ratio of the times of the same rounds.
    pub ratio: RatioInterval,
    /// The ratios of metrics, where both copies have them.
    pub metrics: Vec<MetricFloor>,
}

/// The noise floor of a metric.
#[derive(Clone, Debug, Serialize)]
pub struct MetricFloor {
    /// The metric.
    pub metric: String,
    /// The ratio of the second copy's to the baseline's.
    pub ratio: RatioInterval,
}

/// Rows whose device had not come to a steady state.
#[derive(Clone, Debug, Serialize)]
pub struct Unsteady {
    /// How many there are.
    pub rows: usize,
    /// The workload, phase and target of the worst.
    pub worst: String,
    /// How it moved.
    pub steadiness: Steadiness,
}

/// A target in a group.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The target.
    pub target: String,
    /// Its place in the plan, which is its colour.
    pub index: usize,
    /// The machine whose figures these are. Ratios of a row with `machines` are of all machines.
    pub machine: usize,
    /// Where samples are of several machines: the row of each. Times and counters of different
    /// machines are never put together.
    pub machines: Vec<Row>,
    /// Wall-clock seconds.
    pub seconds: Summary,
    /// Against each baseline, in their order.
    pub against: Vec<Against>,
    /// Operations of one sample.
    pub operations: u64,
    /// Bytes of one sample.
    pub bytes: u64,
    /// Means over the samples.
    pub means: Means,
    /// Samples whose cache is proven to have been as asked.
    pub proven: usize,
    /// Samples taken while the machine did other things.
    pub contaminated: usize,
    /// The samples themselves.
    pub points: Vec<Point>,
    /// How steady the last rounds were, where there are enough.
    pub steadiness: Option<Steadiness>,
    /// How long single operations took, by kind, where that was measured.
    pub latencies: Vec<LatencyFigures>,
    /// What an operation took along the way, where that was measured.
    pub along: Vec<Progress>,
    /// Its metrics beside the time; none for the points of a sweep.
    pub metrics: Vec<MetricRow>,
}

/// A metric of a target in a group.
#[derive(Clone, Debug, Serialize)]
pub struct MetricRow {
    /// The metric.
    pub metric: String,
    /// Its unit: `s`, `bytes`, empty for a number, or what the workload says.
    pub unit: String,
    /// Which direction is good.
    pub better: Better,
    /// Whether the workload measured it itself.
    pub is_own: bool,
    /// Its figures.
    pub summary: Summary,
    /// Against each baseline, in their order. [`Verdict::Faster`] says less, [`Verdict::Slower`]
    /// more.
    pub against: Vec<Against>,
}

/// How long operations of one kind took.
#[derive(Clone, Debug, Serialize)]
pub struct LatencyFigures {
    /// The kind.
    pub operation: String,
    /// How many there were in all samples.
    pub count: u64,
    /// Half took at most this: of this and the next three, the median over the samples.
    pub p50_seconds: f64,
    /// Nine in ten took at most this.
    pub p90_seconds: f64,
    /// 99 in 100 took at most this.
    pub p99_seconds: f64,
    /// 999 in 1000 took at most this.
    pub p999_seconds: f64,
    /// The longest of all samples.
    pub max_seconds: f64,
}

/// What an operation took at a place of a phase.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Progress {
    /// So many were done then.
    pub operations: u64,
    /// Seconds each of the last ones took.
    pub seconds_each: f64,
}

/// A target against a baseline.
#[derive(Clone, Debug, Serialize)]
pub struct Against {
    /// What can be said.
    pub verdict: Verdict,
    /// The margin it is judged by, where one is stated.
    pub margin: Option<Margin>,
    /// The ratio of the figures of the same rounds.
    pub ratio: Option<RatioInterval>,
    /// Its p-value after Holm's correction over all phases, targets and baselines of the report
    /// (for a sweep's points: over the points of the sweep; for metrics: over all metrics).
    pub p_adjusted: Option<f64>,
    /// Whether the ratio lies within the interval of the noise floor.
    pub within_noise_floor: bool,
    /// The ratio in each point's round.
    pub ratios: Vec<Option<f64>>,
    /// What of the counters goes with a difference that is shown.
    pub why: Vec<String>,
}

/// A ratio with its interval, and the ratios of the rounds.
pub(super) type Ratios = (Option<RatioInterval>, Vec<Option<f64>>);

/// What can be said of a target against a baseline.
#[derive(Clone, Copy, Debug, Serialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It is the baseline.
    Baseline,
    /// Too few rounds have both.
    TooFew,
    /// No margin is stated, and the interval holds 1.
    NotShown,
    /// No margin is stated, and the interval leaves out 1, but among so many comparisons some do
    /// by chance: after Holm's correction no difference is shown.
    Alone,
    /// The whole interval lies within the margin on both sides of 1.
    Equal,
    /// The whole interval lies below the margin, which bounds one side.
    AtMostSlower,
    /// A margin is stated, and the interval is too wide to say on which side of it the ratio is.
    NotDecided,
    /// It is faster.
    Faster,
    /// It is slower.
    Slower,
}

impl Verdict {
    /// Whether a difference is shown.
    #[must_use]
    pub fn shows_difference(self) -> bool {
        matches!(self, Self::Faster | Self::Slower)
    }

    /// The mark before a ratio in texts.
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
    /// The machine.
    pub machine: usize,
    /// Wall-clock seconds.
    pub seconds: f64,
    /// Taken while the machine did other things.
    pub contaminated: bool,
    /// Far from the others.
    pub outlier: bool,
}

/// Means of a sample's counters.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Means {
    /// Seconds in fsync and syncfs.
    pub flush_seconds: f64,
    /// Processor seconds of the workload itself, user.
    pub user_seconds: f64,
    /// Processor seconds of the workload itself, system.
    pub system_seconds: f64,
    /// Processor seconds of the daemon, where it is known.
    pub daemon_seconds: Option<f64>,
    /// Requests to the file system in user space, where they are known.
    pub fuse_requests: Option<f64>,
    /// Bytes in use on the target afterwards, where they are known.
    pub used_bytes: Option<f64>,
    /// Bytes the files take that the phase wrote, where the workload asked.
    pub stored_bytes: Option<f64>,
    /// The device's counters, where there is one.
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
    /// Requests joined to another.
    pub merged: f64,
    /// Cache flushes.
    pub flushes: f64,
}

impl Against {
    /// Of so many samples, without ratios.
    #[must_use]
    pub(super) fn new(samples: usize, is_baseline: bool, margin: Option<Margin>) -> Self {
        Self {
            verdict: if is_baseline { Verdict::Baseline } else { Verdict::TooFew },
            margin: margin.filter(|_| !is_baseline),
            ratio: None,
            p_adjusted: None,
            within_noise_floor: false,
            ratios: vec![None; samples],
            why: Vec::new(),
        }
    }

    /// With ratios, unless it is the baseline's own.
    #[must_use]
    pub(super) fn with_ratios(self, ratios: impl FnOnce() -> Ratios) -> Self {
        if self.verdict == Verdict::Baseline {
            return self;
        }
        let (ratio, ratios) = ratios();
        Self { ratio, ratios, ..self }
    }

    /// Whether what looks like a difference is no larger than that of two copies of the baseline.
    #[must_use]
    pub fn is_doubted_by_noise(&self) -> bool {
        let differs = matches!(self.verdict, Verdict::Faster | Verdict::Slower | Verdict::Alone);
        differs && self.within_noise_floor
    }
}

impl Group {
    /// The phase without the number of threads that its name has in a sweep over threads.
    #[must_use]
    pub fn operation(&self) -> &str {
        let end = self.threads.map(|threads| of_threads("", threads)).unwrap_or_default();
        self.phase.strip_suffix(end.as_str()).unwrap_or(&self.phase)
    }

    /// Its name within the workload.
    #[must_use]
    pub fn name(&self) -> String {
        if self.is_sum { format!("{}, all sizes", self.phase) } else { self.phase.clone() }
    }
}

impl Row {
    /// Whether its ratios are of several machines.
    #[must_use]
    pub fn is_pooled(&self) -> bool {
        !self.machines.is_empty()
    }

    /// The points of the machine whose figures the row has.
    pub fn own_points(&self) -> impl Iterator<Item = &Point> {
        self.points.iter().filter(|point| point.machine == self.machine)
    }

    /// Samples of all machines.
    #[must_use]
    pub fn count(&self) -> usize {
        self.points.len()
    }

    /// Median seconds of one operation.
    #[must_use]
    pub fn seconds_per_operation(&self) -> Option<f64> {
        (self.operations > 0).then(|| self.seconds.median / self.operations as f64)
    }

    /// Bytes a second at the median.
    #[must_use]
    pub fn bytes_per_second(&self) -> Option<f64> {
        (self.bytes > 0 && self.seconds.median > 0.0)
            .then(|| self.bytes as f64 / self.seconds.median)
    }
}

impl Report {
    /// The groups that are phases, not points of a sweep.
    pub fn phases(&self) -> impl Iterator<Item = &Group> {
        self.groups.iter().filter(|group| group.size_bytes.is_none())
    }
}
