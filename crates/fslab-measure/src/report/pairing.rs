//! Targets against baselines: which samples are paired, and what their ratios show.

use std::collections::BTreeMap;

use super::merge::Merged;
use super::model::{Against, Group, Verdict};
use crate::sample::Sample;
use crate::stats::{CONFIDENCE, holm, paired_ratio};

/// A target's samples against a baseline's of the same rounds.
pub(super) fn against(
    samples: &[&Sample],
    base: &[&Sample],
    is_baseline: bool,
    merged: &Merged<'_>,
) -> Against {
    let partners: Vec<Option<&Sample>> =
        samples.iter().map(|sample| partner(sample, base, merged)).collect();
    let seconds = samples.iter().zip(&partners);
    let pairs: Vec<(f64, f64)> = seconds
        .clone()
        .filter_map(|(sample, partner)| Some((sample.seconds(), (*partner)?.seconds())))
        .collect();
    let ratios = seconds
        .map(|(sample, partner)| Some(sample.seconds() / (*partner)?.seconds()))
        .map(|ratio| ratio.filter(|_| !is_baseline))
        .collect();
    let ratio = paired_ratio(&pairs, merged.provenance.seed).filter(|_| !is_baseline);
    let verdict = if is_baseline { Verdict::Baseline } else { Verdict::TooFew };
    Against { verdict, ratio, p_adjusted: None, ratios, why: Vec::new() }
}

/// The baseline's sample of the same round: of the same run, or where that run has none, of
/// another run of the same campaign.
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

/// Corrects p-values and gives the verdicts: phases of the whole report are one family of
/// comparisons, and so are the points of each sweep.
pub(super) fn judge(groups: &mut [Group], baselines: usize) {
    for baseline in 0..baselines {
        let mut families: BTreeMap<Option<(String, String)>, Vec<&mut Against>> = BTreeMap::new();
        for group in groups.iter_mut() {
            let sweep = group.size_bytes.map(|_| (group.workload.clone(), group.phase.clone()));
            let members = group.rows.iter_mut().filter_map(|row| row.against.get_mut(baseline));
            families.entry(sweep).or_default().extend(members);
        }
        for family in families.values_mut() {
            judge_family(family);
        }
    }
}

fn judge_family(family: &mut [&mut Against]) {
    let p_values: Vec<f64> =
        family.iter().filter_map(|against| Some(against.ratio?.p_value)).collect();
    let mut adjusted = holm(&p_values).into_iter();
    for against in family.iter_mut() {
        let Some(ratio) = against.ratio else { continue };
        against.p_adjusted = adjusted.next();
        let significant = against.p_adjusted.is_some_and(|p| p < 1.0 - CONFIDENCE);
        against.verdict = match (ratio.shows_difference(), significant) {
            (false, _) => Verdict::NotShown,
            (true, false) => Verdict::Alone,
            (true, true) if ratio.ratio > 1.0 => Verdict::Slower,
            (true, true) => Verdict::Faster,
        };
    }
}
