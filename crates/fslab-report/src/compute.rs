//! Computes groups, rows and figures from samples.

use std::collections::BTreeMap;

use super::merge::Merged;
use super::metrics::Metric;
use super::model::{Against, DeviceMeans, Group, Means, MetricRow, Point, Report, Row, Unsteady};
use super::{latencies, noise_floor, pairing, time_parts, why};
use crate::error::{Error, Result};
use crate::pooling::Pooling;
use crate::sample::{Cache, Device, Record, Sample};
use fslab_stats::{GeometricMean, Margin, Margins, Steadiness, Summary, outliers};

pub(super) fn report(merged: Merged<'_>, baselines: Vec<String>) -> Report {
    let mut groups = groups(&merged, &baselines);
    pairing::judge(&mut groups);
    for group in &mut groups {
        noise_floor::mark(group);
        why::explain(&mut group.rows, &baselines);
    }
    let outliers = groups.iter().filter(|group| !group.is_sum).flat_map(|group| &group.rows);
    let outliers = outliers.flat_map(|row| &row.points).filter(|point| point.outlier).count();
    Report {
        overall: overall(&groups, &merged.target_names, baselines.len()),
        samples: merged.samples.len(),
        contaminated: merged.samples.iter().filter(|s| s.contaminated.is_some()).count(),
        shown_metrics: Vec::new(),
        workload_help: |_| "",
        raw: merged.samples.iter().map(|sample| (*sample).clone()).collect(),
        provenance: merged.provenance,
        further_runs: merged.further,
        machines: merged.machines,
        pooling: merged.pooling,
        kernels: merged.kernels,
        target_names: merged.target_names,
        workloads: merged.workloads,
        targets: merged.targets,
        notes: merged.notes,
        end: merged.end,
        superseded: merged.superseded,
        least_steady: least_steady(&groups),
        baselines,
        groups,
        outliers,
    }
}

impl Report {
    /// Computes the report against the plan's baseline. Records before the first provenance are
    /// ignored.
    #[must_use]
    pub fn new(records: &[Record]) -> Self {
        let merged = Merged::of(records, Pooling::Strata);
        let baselines = vec![merged.provenance.baseline.clone()];
        report(merged, baselines)
    }

    /// Computes the report against other baselines than the plan's, the main one first. If a margin
    /// is given, it replaces the plan's.
    ///
    /// # Errors
    /// Fails for a baseline that is not a target.
    pub fn against(
        records: &[Record],
        baselines: &[String],
        margin: Option<Margin>,
    ) -> Result<Self> {
        Self::pooled(records, baselines, margin, Pooling::Strata)
    }

    /// Computes the report like [`against`](Self::against), and pools the ratios of several
    /// machines in the given way.
    ///
    /// # Errors
    /// Fails for a baseline that is not a target.
    pub fn pooled(
        records: &[Record],
        baselines: &[String],
        margin: Option<Margin>,
        pooling: Pooling,
    ) -> Result<Self> {
        let mut merged = Merged::of(records, pooling);
        if margin.is_some() {
            merged.provenance.margins = Margins { all: margin, ..Margins::default() };
        }
        let names = || merged.target_names.iter().map(String::as_str);
        if let Some(name) = baselines.iter().find(|name| !merged.target_names.contains(name)) {
            return Err(Error::unknown("target", name, names()));
        }
        let main = [merged.provenance.baseline.clone()];
        let baselines = if baselines.is_empty() { &main } else { baselines };
        Ok(report(merged, baselines.to_vec()))
    }
}

/// Counts the rows that wrote to a device and did not reach a steady state, and finds the least
/// steady one. For a sweep, only the sum over its sizes is considered.
fn least_steady(groups: &[Group]) -> Option<Unsteady> {
    let rows = groups.iter().filter(|group| group.size_bytes.is_none()).flat_map(|group| {
        group.rows.iter().filter_map(move |row| {
            let writes = row.means.device.as_ref()?.bytes_written > 0.0;
            let steadiness = row.steadiness.filter(|steady| writes && !steady.is_steady())?;
            Some((format!("{} of {} on {}", group.phase, group.workload, row.target), steadiness))
        })
    });
    let rows: Vec<_> = rows.collect();
    let worst = rows.iter().max_by(|(_, one), (_, other)| one.range.total_cmp(&other.range))?;
    Some(Unsteady { rows: rows.len(), worst: worst.0.clone(), steadiness: worst.1 })
}

/// Computes the steadiness of the times in the last rounds.
fn steadiness(samples: &[&Sample]) -> Option<Steadiness> {
    let mut figures: Vec<(u32, f64)> = samples.iter().map(|s| (s.round, s.seconds())).collect();
    figures.sort_by_key(|(round, _)| *round);
    Steadiness::of(&figures.into_iter().map(|(_, seconds)| seconds).collect::<Vec<_>>())
}

/// Groups samples by workload and phase: workloads in the plan's order, phases in the order of a
/// run.
fn groups(merged: &Merged<'_>, baselines: &[String]) -> Vec<Group> {
    let mut groups = Vec::new();
    for workload in &merged.workloads {
        let of_workload: Vec<&Sample> =
            merged.samples.iter().copied().filter(|s| s.workload == *workload).collect();
        for phase in phases(&of_workload) {
            let of_phase: Vec<&Sample> =
                of_workload.iter().copied().filter(|sample| sample.phase == phase).collect();
            let mut sizes: Vec<u64> =
                of_phase.iter().filter_map(|sample| sample.size_bytes).collect();
            sizes.sort_unstable();
            sizes.dedup();
            if sizes.is_empty() {
                groups.extend(group(&of_phase, merged, baselines, false));
                continue;
            }
            // A sweep has a group for the sum of all sizes, then one for each size.
            let sums = sums(&of_phase, sizes.len());
            groups.extend(group(&sums.iter().collect::<Vec<_>>(), merged, baselines, true));
            for size in sizes {
                let is_of_size = |sample: &&Sample| sample.size_bytes == Some(size);
                let of_size: Vec<&Sample> = of_phase.iter().copied().filter(is_of_size).collect();
                groups.extend(group(&of_size, merged, baselines, false));
            }
        }
    }
    groups
}

/// Returns the phases of a workload in the order of a run. Some targets may lack phases, so each
/// phase is sorted by its latest position in any run. The order then does not depend on which run
/// comes first.
fn phases<'a>(samples: &[&'a Sample]) -> Vec<&'a str> {
    let mut runs: BTreeMap<(&str, &str, u32, u32), Vec<&str>> = BTreeMap::new();
    for sample in samples {
        let run = (&*sample.run, &*sample.target, sample.round, sample.attempt);
        let phases = runs.entry(run).or_default();
        if !phases.contains(&&*sample.phase) {
            phases.push(&sample.phase);
        }
    }
    let mut places: BTreeMap<&str, usize> = BTreeMap::new();
    for (place, phase) in runs.values().flat_map(|phases| phases.iter().enumerate()) {
        let latest = places.entry(phase).or_default();
        *latest = place.max(*latest);
    }
    let mut phases: Vec<(usize, &str)> =
        places.into_iter().map(|(phase, place)| (place, phase)).collect();
    phases.sort_unstable();
    phases.into_iter().map(|(_, phase)| phase).collect()
}

/// Returns the sum over all sizes for each round. Rounds that lack a size are left out.
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
    let cache = Cache {
        remounted: parts.iter().all(|part| part.cache.remounted),
        evicted: parts.iter().all(|part| part.cache.evicted),
        resident_pages: parts.iter().map(|part| part.cache.resident_pages).sum(),
        device_pages: parts.iter().map(|part| part.cache.device_pages).sum(),
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
        fuse_requests: parts.iter().map(|sample| sample.fuse_requests).sum(),
        used_bytes: parts.last().and_then(|sample| sample.used_bytes),
        device,
        stored_bytes: parts.iter().map(|sample| sample.stored_bytes).sum(),
        // These figures are per size; a sum would mix sizes.
        latencies: Vec::new(),
        along: Vec::new(),
        metrics: Vec::new(),
        requests: Vec::new(),
        thread_times: Vec::new(),
        contaminated: parts.iter().find_map(|sample| sample.contaminated.clone()),
        cache: cache.judged(device),
        ..first
    }
}

fn add(a: Device, b: Device) -> Device {
    Device {
        reads: a.reads + b.reads,
        reads_merged: a.reads_merged + b.reads_merged,
        sectors_read: a.sectors_read + b.sectors_read,
        writes: a.writes + b.writes,
        writes_merged: a.writes_merged + b.writes_merged,
        sectors_written: a.sectors_written + b.sectors_written,
        read_ms: a.read_ms + b.read_ms,
        write_ms: a.write_ms + b.write_ms,
        busy_ms: a.busy_ms + b.busy_ms,
        discards: a.discards + b.discards,
        flushes: a.flushes + b.flushes,
    }
}

fn group(
    samples: &[&Sample],
    merged: &Merged<'_>,
    baselines: &[String],
    is_sum: bool,
) -> Option<Group> {
    let first = samples.first()?;
    let of_target = |target: &str| -> Vec<&Sample> {
        let is_row = |s: &&Sample| s.target == target && !merged.is_second_copy(s);
        samples.iter().copied().filter(is_row).collect()
    };
    let bases: Vec<(&str, Vec<&Sample>)> =
        baselines.iter().map(|name| (name.as_str(), of_target(name))).collect();
    let margins = &merged.provenance.margins;
    let against = |samples: &[&Sample], target: &str| -> Vec<Against> {
        let of = |(name, base): &(&str, Vec<&Sample>)| {
            let margin = margins.of(&first.workload, target);
            let against = Against::new(samples.len(), target == *name, margin)
                .with_ratios(|| pairing::ratios(samples, base, merged, &|s| Some(s.seconds())));
            let explain = |ratio| time_parts::explanation(samples, base, merged, ratio);
            Against { cause: against.ratio.as_ref().and_then(explain), ..against }
        };
        bases.iter().map(of).collect()
    };
    let is_point = first.size_bytes.is_some() && !is_sum;
    let metrics = if is_point { Vec::new() } else { Metric::of_samples(samples) };
    let metric_rows = |own: &[&Sample], all: &[&Sample], target: &str| -> Vec<MetricRow> {
        let bases: Vec<(bool, &[&Sample])> =
            bases.iter().map(|(name, base)| (target == *name, base.as_slice())).collect();
        metrics.iter().filter_map(|metric| metric.row(own, all, &bases, merged)).collect()
    };
    let row = |(index, target): (usize, &String)| {
        let samples = of_target(target);
        let plain = |machine: usize| {
            let is_own = |sample: &&Sample| merged.machine(sample) == machine;
            let own: Vec<&Sample> = samples.iter().copied().filter(is_own).collect();
            let row = row(index, target, machine, &own)?;
            let metrics = metric_rows(&own, &own, target);
            Some((Row { against: against(&own, target), metrics, ..row }, own))
        };
        let (rows, samples): (Vec<Row>, Vec<Vec<&Sample>>) =
            (0..merged.machines.len()).filter_map(plain).unzip();
        let all = samples.concat();
        let own = samples.first().map(Vec::as_slice).unwrap_or_default();
        pooled(rows, || (against(&all, target), metric_rows(own, &all, target)))
    };
    Some(Group {
        workload: first.workload.clone(),
        phase: first.phase.clone(),
        size_bytes: first.size_bytes.filter(|_| !is_sum),
        threads: first.threads,
        is_sum,
        cache: first.cache.asked,
        rows: merged.target_names.iter().enumerate().filter_map(row).collect(),
        noise_floor: noise_floor::of(samples, &metrics, merged),
    })
}

/// Combines the rows of a target on several machines. A single row is returned unchanged. Otherwise
/// the times are those of the first machine, and the ratios are computed over all machines. Only
/// runs of the same machine are compared.
fn pooled(
    rows: Vec<Row>,
    ratios_of_all: impl FnOnce() -> (Vec<Against>, Vec<MetricRow>),
) -> Option<Row> {
    if rows.len() < 2 {
        return rows.into_iter().next();
    }
    let points = rows.iter().flat_map(|row| row.points.iter().copied()).collect();
    let total = |part: fn(&Row) -> usize| rows.iter().map(part).sum();
    let (against, metrics) = ratios_of_all();
    Some(Row {
        against,
        metrics,
        points,
        proven: total(|row| row.proven),
        contaminated: total(|row| row.contaminated),
        machines: rows.clone(),
        ..rows.into_iter().next()?
    })
}

fn row(index: usize, target: &str, machine: usize, samples: &[&Sample]) -> Option<Row> {
    let seconds: Vec<f64> = samples.iter().map(|sample| sample.seconds()).collect();
    let marks = outliers(&seconds);
    let points = samples.iter().zip(marks).map(|(sample, outlier)| Point {
        round: sample.round,
        machine,
        seconds: sample.seconds(),
        contaminated: sample.contaminated.is_some(),
        outlier,
    });
    Some(Row {
        target: target.to_owned(),
        index,
        machine,
        machines: Vec::new(),
        seconds: Summary::of(&seconds)?,
        against: Vec::new(),
        operations: samples.first().map_or(0, |sample| sample.operations),
        bytes: samples.first().map_or(0, |sample| sample.bytes),
        means: means(samples),
        proven: samples.iter().filter(|sample| sample.cache.proven).count(),
        contaminated: samples.iter().filter(|sample| sample.contaminated.is_some()).count(),
        points: points.collect(),
        steadiness: steadiness(samples),
        latencies: latencies::figures(samples),
        along: latencies::along(samples),
        metrics: Vec::new(),
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
    let device = |part: fn(&Device) -> u64| mean(&|sample| sample.device.as_ref().map(part));
    Means {
        flush_seconds: seconds(|sample| sample.flush_ns),
        user_seconds: seconds(|sample| sample.user_ns),
        system_seconds: seconds(|sample| sample.system_ns),
        daemon_seconds: mean(&|sample| sample.daemon_cpu_ns).map(|value| value / 1e9),
        fuse_requests: mean(&|sample| sample.fuse_requests),
        used_bytes: mean(&|sample| sample.used_bytes),
        stored_bytes: mean(&|sample| sample.stored_bytes),
        device: device(|device| device.reads).map(|reads| DeviceMeans {
            reads,
            bytes_read: device(|device| device.sectors_read).unwrap_or(0.0) * 512.0,
            writes: device(|device| device.writes).unwrap_or(0.0),
            bytes_written: device(|device| device.sectors_written).unwrap_or(0.0) * 512.0,
            merged: device(|device| device.reads_merged + device.writes_merged).unwrap_or(0.0),
            flushes: device(|device| device.flushes).unwrap_or(0.0),
            busy_seconds: device(|device| device.busy_ms).unwrap_or(0.0) / 1e3,
        }),
    }
}

/// Returns the geometric mean of each target's ratios over all phases, for each baseline.
fn overall(
    groups: &[Group],
    targets: &[String],
    baselines: usize,
) -> Vec<Vec<Option<GeometricMean>>> {
    let of = |baseline: usize, target: &String| {
        let rows = groups.iter().filter(|group| group.size_bytes.is_none());
        let rows = rows.flat_map(|group| &group.rows).filter(|row| row.target == *target);
        let ratios: Vec<f64> =
            rows.filter_map(|row| Some(row.against.get(baseline)?.ratio?.ratio)).collect();
        GeometricMean::of(&ratios)
    };
    (0..baselines)
        .map(|baseline| targets.iter().map(|target| of(baseline, target)).collect())
        .collect()
}
