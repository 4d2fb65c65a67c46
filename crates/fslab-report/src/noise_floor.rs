//! The noise floor: how far a hidden second copy of the baseline is from the baseline.
//!
//! Both copies are made alike and run in the same rounds, so that whatever tells them apart is
//! noise: of the machine, of the order of runs, of where blocks come to lie.

use super::merge::Merged;
use super::model::{Group, MetricFloor, NoiseFloor};
use super::pairing;
use crate::sample::Sample;

/// A figure of a sample; `None` where the sample has none.
type Figure = fn(&Sample) -> Option<u64>;

/// Figures other than the time.
const METRICS: [(&str, Figure); 4] = [
    ("processor time", |sample| {
        Some(sample.user_ns + sample.system_ns + sample.daemon_cpu_ns.unwrap_or(0))
    }),
    ("sectors read", |sample| Some(sample.device?.sectors_read)),
    ("sectors written", |sample| Some(sample.device?.sectors_written)),
    ("bytes in use", |sample| sample.used_bytes),
];

/// The noise floor of the samples of one group; `None` where no second copy was run.
pub(super) fn of(samples: &[&Sample], merged: &Merged<'_>) -> Option<NoiseFloor> {
    let all = samples.iter().copied();
    let (copies, others): (Vec<&Sample>, Vec<&Sample>) =
        all.partition(|sample| merged.is_second_copy(sample));
    let is_base = |sample: &&Sample| sample.target == merged.provenance.baseline;
    let base: Vec<&Sample> = others.into_iter().filter(is_base).collect();
    let ratio =
        |figure: &dyn Fn(&Sample) -> Option<f64>| pairing::ratio_of(&copies, &base, merged, figure);
    let metric = |(metric, figure): (&'static str, Figure)| {
        let ratio = ratio(&|sample| figure(sample).map(|value| value as f64))?;
        Some(MetricFloor { metric, ratio })
    };
    Some(NoiseFloor {
        ratio: ratio(&|sample| Some(sample.seconds()))?,
        metrics: METRICS.into_iter().filter_map(metric).collect(),
    })
}

/// Marks the ratios of a group that lie within its noise floor.
pub(super) fn mark(group: &mut Group) {
    let Some(floor) = group.noise_floor.as_ref().map(|floor| floor.ratio) else { return };
    for against in group.rows.iter_mut().flat_map(|row| &mut row.against) {
        let within = |ratio: f64| (floor.low..=floor.high).contains(&ratio);
        against.within_noise_floor = against.ratio.is_some_and(|ratio| within(ratio.ratio));
    }
}
