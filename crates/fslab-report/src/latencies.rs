//! Latencies of single operations, over all samples of a target.

use std::collections::BTreeMap;

use super::model::{LatencyFigures, Progress};
use super::names::distinct;
use crate::sample::Sample;
use fslab_stats::{Latency, Summary};

/// Returns the figures of each kind of operation, in the order of recording. Percentiles are
/// medians over the samples; the maximum is taken over all samples.
pub(super) fn figures(samples: &[&Sample]) -> Vec<LatencyFigures> {
    let all = samples.iter().flat_map(|sample| &sample.latencies);
    let kinds = distinct(all.map(|latency| latency.operation.as_str()));
    kinds.into_iter().map(|kind| of_kind(kind, samples)).collect()
}

fn of_kind(kind: &str, samples: &[&Sample]) -> LatencyFigures {
    let all: Vec<&Latency> = samples
        .iter()
        .flat_map(|sample| &sample.latencies)
        .filter(|latency| latency.operation == kind)
        .collect();
    let median = |part: fn(&Latency) -> u64| {
        let values: Vec<f64> = all.iter().map(|latency| part(latency) as f64 / 1e9).collect();
        Summary::of(&values).map_or(0.0, |summary| summary.median)
    };
    LatencyFigures {
        operation: kind.to_owned(),
        count: all.iter().map(|latency| latency.count).sum(),
        p50_seconds: median(|latency| latency.p50_ns),
        p90_seconds: median(|latency| latency.p90_ns),
        p99_seconds: median(|latency| latency.p99_ns),
        p999_seconds: median(|latency| latency.p999_ns),
        max_seconds: all.iter().map(|latency| latency.max_ns).max().unwrap_or(0) as f64 / 1e9,
    }
}

/// Returns the time per operation between the milestones of a run, as medians over the samples.
pub(super) fn along(samples: &[&Sample]) -> Vec<Progress> {
    let mut places: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    for sample in samples {
        let (mut operations, mut elapsed_ns) = (0, 0);
        for milestone in &sample.along {
            let done = milestone.operations.saturating_sub(operations).max(1);
            let took = milestone.elapsed_ns.saturating_sub(elapsed_ns);
            places.entry(milestone.operations).or_default().push(took as f64 / 1e9 / done as f64);
            (operations, elapsed_ns) = (milestone.operations, milestone.elapsed_ns);
        }
    }
    let place = |(operations, values): (u64, Vec<f64>)| {
        Some(Progress { operations, seconds_each: Summary::of(&values)?.median })
    };
    places.into_iter().filter_map(place).collect()
}

#[cfg(test)]
mod tests {
    use super::{along, figures};
    use crate::sample::Sample;
    use fslab_stats::{Latency, Milestone};

    fn sample(p50_ns: u64, max_ns: u64) -> Sample {
        let operation = "create".to_owned();
        let latency = Latency { operation, count: 10, p50_ns, max_ns, ..Latency::default() };
        let milestone = |operations, elapsed_ns| Milestone { operations, elapsed_ns };
        let along = vec![milestone(10, p50_ns * 10), milestone(20, p50_ns * 30)];
        Sample { latencies: vec![latency], along, ..Sample::default() }
    }

    #[test]
    fn latencies_are_medians_over_samples() {
        let samples = [sample(1000, 5000), sample(3000, 9000), sample(2000, 4000)];
        let samples: Vec<&Sample> = samples.iter().collect();
        let figures = figures(&samples);
        assert_eq!((figures.len(), figures[0].count), (1, 30));
        assert!((figures[0].p50_seconds - 2e-6).abs() < 1e-12);
        assert!((figures[0].max_seconds - 9e-6).abs() < 1e-12);
        let along = along(&samples);
        assert_eq!(along.iter().map(|place| place.operations).collect::<Vec<_>>(), [10, 20]);
        // The median of the first ten operations is 2 us; that of the next ten is 4 us.
        assert!((along[0].seconds_each - 2e-6).abs() < 1e-12);
        assert!((along[1].seconds_each - 4e-6).abs() < 1e-12);
    }
}
