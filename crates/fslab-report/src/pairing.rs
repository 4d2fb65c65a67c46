//! Pairs samples of targets with samples of baselines, and judges their ratios.

use std::collections::BTreeMap;

use super::merge::Merged;
use super::model::{Against, Group, Ratios, Verdict};
use crate::sample::Sample;
use fslab_stats::{CONFIDENCE, Margin, RatioInterval, holm};

/// A function that returns a figure of a sample, or `None` if the sample does not have it.
pub(super) type Figure<'a> = dyn Fn(&Sample) -> Option<f64> + 'a;

/// Returns the ratio of a target's figures to a baseline's figures in the same rounds, and the
/// ratio in each sample's round.
pub(super) fn ratios(
    samples: &[&Sample],
    base: &[&Sample],
    merged: &Merged<'_>,
    figure: &Figure<'_>,
) -> Ratios {
    let in_round = |sample: &&Sample| {
        let ratio = figure(sample)? / figure(partner(sample, base, merged)?)?;
        ratio.is_finite().then_some(ratio)
    };
    (ratio_of(samples, base, merged, figure), samples.iter().map(in_round).collect())
}

/// Returns the ratio of the samples' figures to a baseline's figures in the same rounds.
pub(super) fn ratio_of(
    samples: &[&Sample],
    base: &[&Sample],
    merged: &Merged<'_>,
    figure: &Figure<'_>,
) -> Option<RatioInterval> {
    ratio_of_pairs(samples, base, merged, &|own, base| Some((figure(own)?, figure(base)?)))
}

/// A function that returns two figures to compare, for a sample and the baseline's sample.
pub(super) type PairOfFigures<'a> = dyn Fn(&Sample, &Sample) -> Option<(f64, f64)> + 'a;

/// Returns the ratio of the two figures that `figures` returns for each pair of samples. Only
/// samples of the same machine and round are paired, and each machine is a stratum or a cluster.
/// Machines with the same boot ID are one cluster. Figures of different machines are never
/// combined, only their ratios.
pub(super) fn ratio_of_pairs(
    samples: &[&Sample],
    base: &[&Sample],
    merged: &Merged<'_>,
    figures: &PairOfFigures<'_>,
) -> Option<RatioInterval> {
    let pair = |sample: &&Sample| figures(sample, partner(sample, base, merged)?);
    let of_machine = |machine: usize| -> Vec<(f64, f64)> {
        let own = samples.iter().filter(|sample| merged.machine(sample) == machine);
        own.filter_map(pair).collect()
    };
    merged.pooling.ratio(&merged.kernels, of_machine, merged.provenance.seed)
}

/// Returns the baseline's sample of the same round. It is from the same run or, if that run has no
/// baseline, from another run of the same campaign.
fn partner<'a>(sample: &Sample, base: &[&'a Sample], merged: &Merged<'_>) -> Option<&'a Sample> {
    let mut in_round = base.iter().copied().filter(|base| base.round == sample.round);
    let same_run = in_round.clone().find(|base| base.run == sample.run);
    same_run.or_else(|| {
        let campaign = merged.campaign(&sample.run)?;
        let own_has_baseline = base.iter().any(|base| base.run == sample.run);
        in_round
            .find(|base| merged.campaign(&base.run) == Some(campaign))
            .filter(|_| !own_has_baseline)
    })
}

/// Corrects p-values and assigns the verdicts. P-values are corrected within families of
/// comparisons. The families are: the rows of all phases against all baselines, the points of each
/// sweep, and all metrics. All baselines share a family, because separate families for two
/// baselines would double the false alarms.
///
/// Differences are corrected by Holm's method. Verdicts on margins are not corrected. The statement
/// that all rows are within their margins requires that verdict for every row. It is therefore
/// wrong at most as often as a single verdict (an intersection-union test, Berger 1982).
pub(super) fn judge(groups: &mut [Group]) {
    let mut families: BTreeMap<Family, Vec<&mut Against>> = BTreeMap::new();
    for group in groups {
        let sweep = group.size_bytes.map(|_| (group.workload.clone(), group.phase.clone()));
        let (mut times, mut metrics) = (Vec::new(), Vec::new());
        for row in &mut group.rows {
            times.extend(&mut row.against);
            metrics.extend(row.metrics.iter_mut().flat_map(|metric| &mut metric.against));
        }
        families.entry(sweep.map_or(Family::Phases, Family::Sweep)).or_default().extend(times);
        families.entry(Family::Metrics).or_default().extend(metrics);
    }
    for family in families.values_mut() {
        judge_family(family);
    }
}

/// Comparisons whose p-values are corrected together.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Family {
    /// The times of all phases.
    Phases,
    /// The times of a sweep's points, by workload and phase.
    Sweep((String, String)),
    /// All metrics. As a separate family, they do not affect the verdicts on times.
    Metrics,
}

fn judge_family(family: &mut [&mut Against]) {
    let p_values: Vec<f64> =
        family.iter().filter_map(|against| Some(against.ratio?.p_value)).collect();
    let mut adjusted = holm(&p_values).into_iter();
    for against in family.iter_mut() {
        let Some(ratio) = against.ratio else { continue };
        against.p_adjusted = adjusted.next();
        let significant = against.p_adjusted.is_some_and(|p| p < 1.0 - CONFIDENCE);
        against.verdict = verdict(&ratio, significant, against.margin);
    }
}

/// Derives a verdict from an interval; `significant` is the result of the corrected p-value.
fn verdict(ratio: &RatioInterval, significant: bool, margin: Option<Margin>) -> Verdict {
    let direction = if ratio.ratio > 1.0 { Verdict::Slower } else { Verdict::Faster };
    let is_different = ratio.shows_difference() && significant;
    match margin {
        Some(margin) if margin.holds(ratio) && margin.is_two_sided() => Verdict::Equal,
        _ if is_different && direction == Verdict::Faster => Verdict::Faster,
        Some(margin) if margin.holds(ratio) => Verdict::AtMostSlower,
        _ if is_different => Verdict::Slower,
        Some(_) => Verdict::NotDecided,
        None if ratio.shows_difference() => Verdict::Alone,
        None => Verdict::NotShown,
    }
}

#[cfg(test)]
mod simulations;

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks each verdict for combinations of interval, corrected p-value and margin.
    #[test]
    fn verdicts_follow_from_interval_and_margin() {
        use Verdict::{Alone, AtMostSlower, Equal, Faster, NotDecided, NotShown, Slower};
        let equal = Some("5 %");
        let slower = Some("at most 5 % slower");
        for (low, high, significant, margin, expected) in [
            (0.98, 1.02, false, None, NotShown),
            (1.01, 1.06, false, None, Alone),
            (1.01, 1.06, true, None, Slower),
            (0.90, 0.97, true, None, Faster),
            (0.98, 1.02, false, equal, Equal),
            // A difference is shown, but the interval lies within the margin.
            (1.01, 1.04, true, equal, Equal),
            (0.98, 1.06, false, equal, NotDecided),
            (0.94, 1.02, false, equal, NotDecided),
            (1.01, 1.06, false, equal, NotDecided),
            (1.01, 1.06, true, equal, Slower),
            (0.90, 0.97, true, equal, Faster),
            (0.80, 1.04, false, slower, AtMostSlower),
            (1.01, 1.04, true, slower, AtMostSlower),
            (0.90, 0.97, true, slower, Faster),
            (0.98, 1.06, false, slower, NotDecided),
            (1.06, 1.08, true, slower, Slower),
        ] {
            let ratio = f64::midpoint(low, high);
            let ratio = RatioInterval { ratio, low, high, rounds: 10, p_value: 0.0 };
            let margin = margin.map(|text| text.parse().unwrap());
            let found = verdict(&ratio, significant, margin);
            assert_eq!(found, expected, "{low} to {high}, {significant}, {margin:?}");
        }
    }
}
