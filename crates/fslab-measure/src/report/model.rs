//! What a report says, computed from the records of a samples file.

use std::collections::BTreeMap;

use serde::Serialize;

use super::why;
use crate::provenance::Provenance;
use crate::sample::{CacheState, End, Note, Record, Sample, TargetRecord};
use crate::stats::{RatioInterval, Summary, paired_ratio};

/// Everything a renderer shows.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// What was run, where and with what.
    pub provenance: Provenance,
    /// How each target was made.
    pub targets: Vec<TargetRecord>,
    /// What a reader must know, the gravest first.
    pub notes: Vec<Note>,
    /// How it ended; missing where the run was killed or still goes on.
    pub end: Option<End>,
    /// Phases, in the order in which they were run; a sweep's points follow its sum.
    pub groups: Vec<Group>,
    /// Samples in all.
    pub samples: usize,
    /// Of these, taken while the machine did other things.
    pub contaminated: usize,
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
    /// The sum over a sweep's points.
    pub is_sum: bool,
    /// What was asked of the cache.
    pub cache: CacheState,
    /// The targets, in the plan's order.
    pub rows: Vec<Row>,
}

/// A target in a group.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The target.
    pub target: String,
    /// Its place in the plan, which is its colour.
    pub index: usize,
    /// Whether it is the one the others are compared with.
    pub is_baseline: bool,
    /// Wall-clock seconds.
    pub seconds: Summary,
    /// Against the baseline's times of the same rounds.
    pub ratio: Option<RatioInterval>,
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
    /// What of the counters goes with a difference that is shown.
    pub why: Vec<String>,
    /// The samples themselves.
    pub points: Vec<Point>,
}

/// One sample in a chart.
#[derive(Clone, Debug, Serialize)]
pub struct Point {
    /// The round, from 0.
    pub round: u32,
    /// Wall-clock seconds.
    pub seconds: f64,
    /// Against the baseline in the same round.
    pub ratio: Option<f64>,
    /// Taken while the machine did other things.
    pub contaminated: bool,
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
    /// Cache flushes.
    pub flushes: f64,
}

impl Row {
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
    /// Computes it. Records before a provenance are not looked at; of several provenances the
    /// first counts.
    #[must_use]
    pub fn new(records: &[Record]) -> Self {
        let mut report = Self {
            provenance: Provenance::default(),
            targets: Vec::new(),
            notes: Vec::new(),
            end: None,
            groups: Vec::new(),
            samples: 0,
            contaminated: 0,
        };
        let mut samples = Vec::new();
        for record in records {
            match record {
                Record::Provenance(found) if report.provenance.run.is_empty() => {
                    report.provenance.clone_from(found);
                }
                Record::Provenance(_) => {}
                Record::Target(target) => report.add_target(target),
                Record::Sample(sample) => samples.push(sample),
                Record::Note(note) => report.notes.push(note.clone()),
                Record::End(end) => report.end = Some(end.clone()),
            }
        }
        report.notes.sort_by_key(|note| note.kind as u8);
        report.samples = samples.len();
        report.contaminated = samples.iter().filter(|s| s.contaminated.is_some()).count();
        report.groups = groups(&samples, &report.provenance);
        report
    }

    fn add_target(&mut self, target: &TargetRecord) {
        if !self.targets.iter().any(|known| known.name == target.name) {
            self.targets.push(target.clone());
        }
    }

    /// How many phases that asked for a cold or warm cache have a sample that does not prove it.
    #[must_use]
    pub fn unproven(&self) -> Vec<&Group> {
        let unproven = |group: &&Group| {
            group.cache != CacheState::NotAsked
                && !group.is_sum
                && group.rows.iter().any(|row| row.proven < row.seconds.count)
        };
        self.groups.iter().filter(unproven).collect()
    }
}

/// Samples by phase, in the order of their first appearance.
fn groups(samples: &[&Sample], provenance: &Provenance) -> Vec<Group> {
    let mut groups = Vec::new();
    for workload in ordered(samples.iter().map(|sample| &*sample.workload), &provenance.workloads) {
        let of_workload: Vec<&Sample> =
            samples.iter().copied().filter(|sample| sample.workload == workload).collect();
        for phase in ordered(of_workload.iter().map(|sample| &*sample.phase), &[]) {
            let of_phase: Vec<&Sample> =
                of_workload.iter().copied().filter(|sample| sample.phase == phase).collect();
            phase_groups(&of_phase, provenance, &mut groups);
        }
    }
    groups
}

/// A phase's group; for a sweep, that of its sum and then one for each size.
fn phase_groups(samples: &[&Sample], provenance: &Provenance, groups: &mut Vec<Group>) {
    let mut sizes: Vec<u64> = samples.iter().filter_map(|sample| sample.size_bytes).collect();
    sizes.sort_unstable();
    sizes.dedup();
    if sizes.is_empty() {
        groups.extend(group(samples, provenance, None, false));
        return;
    }
    let sums = sums(samples, sizes.len());
    groups.extend(group(&sums.iter().collect::<Vec<_>>(), provenance, None, true));
    for size in sizes {
        let of_size: Vec<&Sample> =
            samples.iter().copied().filter(|sample| sample.size_bytes == Some(size)).collect();
        groups.extend(group(&of_size, provenance, Some(size), false));
    }
}

/// Each round's sum over all sizes, for the rounds that have them all.
fn sums(samples: &[&Sample], sizes: usize) -> Vec<Sample> {
    let mut rounds: BTreeMap<(&str, &str, u32), Vec<&Sample>> = BTreeMap::new();
    for sample in samples {
        rounds.entry((&sample.run, &sample.target, sample.round)).or_default().push(sample);
    }
    rounds.into_values().filter(|parts| parts.len() == sizes).map(|parts| sum(&parts)).collect()
}

fn sum(parts: &[&Sample]) -> Sample {
    let total = |part: fn(&Sample) -> u64| parts.iter().map(|sample| part(sample)).sum::<u64>();
    let first = parts.first().map(|sample| (*sample).clone()).unwrap_or_default();
    let device = parts.iter().map(|part| part.device).reduce(|a, b| Some(add(a?, b?))).flatten();
    let cache = crate::sample::Cache {
        remounted: parts.iter().all(|part| part.cache.remounted),
        resident_pages: parts.iter().map(|part| part.cache.resident_pages).sum(),
        ..first.cache
    };
    Sample {
        size_bytes: None,
        operations: total(|s| s.operations),
        bytes: total(|s| s.bytes),
        elapsed_ns: total(|s| s.elapsed_ns),
        flush_ns: total(|s| s.flush_ns),
        user_ns: total(|s| s.user_ns),
        system_ns: total(|s| s.system_ns),
        daemon_cpu_ns: parts.iter().map(|sample| sample.daemon_cpu_ns).sum(),
        device,
        contaminated: parts.iter().find_map(|sample| sample.contaminated.clone()),
        cache: cache.judged(device),
        ..first
    }
}

fn add(a: crate::sample::Device, b: crate::sample::Device) -> crate::sample::Device {
    crate::sample::Device {
        reads: a.reads + b.reads,
        reads_merged: a.reads_merged + b.reads_merged,
        sectors_read: a.sectors_read + b.sectors_read,
        writes: a.writes + b.writes,
        writes_merged: a.writes_merged + b.writes_merged,
        sectors_written: a.sectors_written + b.sectors_written,
        discards: a.discards + b.discards,
        flushes: a.flushes + b.flushes,
    }
}

/// Distinct names: those of `known` in its order, then others as they come.
fn ordered<'a>(names: impl Iterator<Item = &'a str>, known: &[String]) -> Vec<&'a str> {
    let mut distinct: Vec<&str> = Vec::new();
    for name in names {
        if !distinct.contains(&name) {
            distinct.push(name);
        }
    }
    let place = |name: &&str| known.iter().position(|known| known == name).unwrap_or(known.len());
    distinct.sort_by_key(place);
    distinct
}

fn group(
    samples: &[&Sample],
    provenance: &Provenance,
    size_bytes: Option<u64>,
    is_sum: bool,
) -> Option<Group> {
    let first = samples.first()?;
    let of_target = |target: &str| -> Vec<&Sample> {
        samples.iter().copied().filter(|sample| sample.target == target).collect()
    };
    let baseline = of_target(&provenance.baseline);
    let targets = ordered(samples.iter().map(|sample| &*sample.target), &provenance.targets);
    let mut rows: Vec<Row> = targets
        .into_iter()
        .filter_map(|target| row(target, &of_target(target), &baseline, provenance))
        .collect();
    why::explain(&mut rows);
    Some(Group {
        workload: first.workload.clone(),
        phase: first.phase.clone(),
        size_bytes,
        is_sum,
        cache: first.cache.asked,
        rows,
    })
}

fn row(
    target: &str,
    samples: &[&Sample],
    baseline: &[&Sample],
    provenance: &Provenance,
) -> Option<Row> {
    let seconds: Vec<f64> = samples.iter().map(|sample| sample.seconds()).collect();
    let in_round = |sample: &Sample| {
        baseline.iter().find(|base| base.round == sample.round && base.run == sample.run)
    };
    let is_baseline = target == provenance.baseline;
    let pairs: Vec<(f64, f64)> = samples
        .iter()
        .filter_map(|sample| Some((sample.seconds(), in_round(sample)?.seconds())))
        .collect();
    let points = samples.iter().map(|sample| Point {
        round: sample.round,
        seconds: sample.seconds(),
        ratio: in_round(sample)
            .filter(|_| !is_baseline)
            .map(|base| sample.seconds() / base.seconds()),
        contaminated: sample.contaminated.is_some(),
    });
    Some(Row {
        target: target.to_owned(),
        index: provenance.targets.iter().position(|name| name == target).unwrap_or(0),
        is_baseline,
        seconds: Summary::of(&seconds)?,
        ratio: paired_ratio(&pairs, provenance.seed).filter(|_| !is_baseline),
        operations: samples.first().map_or(0, |sample| sample.operations),
        bytes: samples.first().map_or(0, |sample| sample.bytes),
        means: means(samples),
        proven: samples.iter().filter(|sample| sample.cache.proven).count(),
        contaminated: samples.iter().filter(|sample| sample.contaminated.is_some()).count(),
        why: Vec::new(),
        points: points.collect(),
    })
}

fn means(samples: &[&Sample]) -> Means {
    let mean = |part: &dyn Fn(&Sample) -> Option<u64>| {
        let values: Vec<f64> =
            samples.iter().filter_map(|sample| part(sample)).map(|value| value as f64).collect();
        Summary::of(&values).map(|summary| summary.mean)
    };
    let seconds =
        |part: fn(&Sample) -> u64| mean(&|sample| Some(part(sample))).unwrap_or(0.0) / 1e9;
    let device =
        |part: fn(&crate::sample::Device) -> u64| mean(&|sample| sample.device.as_ref().map(part));
    Means {
        flush_seconds: seconds(|sample| sample.flush_ns),
        user_seconds: seconds(|sample| sample.user_ns),
        system_seconds: seconds(|sample| sample.system_ns),
        daemon_seconds: mean(&|sample| sample.daemon_cpu_ns).map(|value| value / 1e9),
        device: device(|device| device.reads).map(|reads| DeviceMeans {
            reads,
            bytes_read: device(|device| device.sectors_read).unwrap_or(0.0) * 512.0,
            writes: device(|device| device.writes).unwrap_or(0.0),
            bytes_written: device(|device| device.sectors_written).unwrap_or(0.0) * 512.0,
            flushes: device(|device| device.flushes).unwrap_or(0.0),
        }),
    }
}
