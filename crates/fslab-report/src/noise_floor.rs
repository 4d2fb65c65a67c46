//! The noise floor: the difference between the baseline and a hidden second copy of it.
//!
//! Both copies are made in the same way and run in the same rounds. Any difference between them is
//! noise from the machine, the order of runs or block placement.

use super::merge::Merged;
use super::metrics::Metric;
use super::model::{Against, Group, MetricFloor, NoiseFloor};
use super::pairing;
use crate::sample::Sample;
use fslab_stats::RatioInterval;

/// Computes the noise floor of a group's samples; `None` if no second copy was run.
pub(super) fn of(
    samples: &[&Sample],
    metrics: &[Metric],
    merged: &Merged<'_>,
) -> Option<NoiseFloor> {
    let all = samples.iter().copied();
    let (copies, others): (Vec<&Sample>, Vec<&Sample>) =
        all.partition(|sample| merged.is_second_copy(sample));
    let is_base = |sample: &&Sample| sample.target == merged.provenance.baseline;
    let base: Vec<&Sample> = others.into_iter().filter(is_base).collect();
    let ratio = |figure: &pairing::Figure<'_>| pairing::ratio_of(&copies, &base, merged, figure);
    let metric = |metric: &Metric| {
        let ratio = ratio(&|sample| metric.of(sample))?;
        Some(MetricFloor { metric: metric.name.clone(), ratio })
    };
    Some(NoiseFloor {
        ratio: ratio(&|sample| Some(sample.seconds()))?,
        metrics: metrics.iter().filter_map(metric).collect(),
    })
}

/// Marks the ratios of a group that lie within its noise floor.
pub(super) fn mark(group: &mut Group) {
    let Some(floor) = &group.noise_floor else { return };
    for row in &mut group.rows {
        row.against.iter_mut().for_each(|against| mark_one(against, &floor.ratio));
        for metric in &mut row.metrics {
            let own = floor.metrics.iter().find(|floor| floor.metric == metric.metric);
            let Some(floor) = own.map(|own| &own.ratio) else { continue };
            metric.against.iter_mut().for_each(|against| mark_one(against, floor));
        }
    }
}

fn mark_one(against: &mut Against, floor: &RatioInterval) {
    let within = |ratio: f64| (floor.low..=floor.high).contains(&ratio);
    against.within_noise_floor = against.ratio.is_some_and(|ratio| within(ratio.ratio));
}
