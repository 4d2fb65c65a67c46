//! Simulates comparisons and counts wrong verdicts, with and without the stop rule.
//!
//! All values of a round share one variation of 10 %. In addition, each value varies by 3 %.

use fslab_vfs_testing::environment::seed;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

use super::verdict;
use crate::provenance::Provenance;
use crate::sample::{Record, Sample};
use crate::{Report, Verdict};
use fslab_stats::{CONFIDENCE, Margin, half_width, paired_ratio, stratified_ratio};

/// Minimum and maximum number of rounds.
type Rounds = (u32, u32);

/// A plan with a stop rule, which is the usual case.
const STOPPED: Rounds = (10, 30);

/// The half width at which the stop rule stops, as in plans by default.
const NARROW: f64 = 0.025;

/// Returns the sum of twelve uniform numbers, which is nearly normal.
fn noise(random: &mut Pcg64) -> f64 {
    (0..12).map(|_| random.random::<f64>()).sum::<f64>() - 6.0
}

/// Returns the values of target and baseline in one round.
fn pair(ratio: f64, random: &mut Pcg64) -> (f64, f64) {
    let level = (0.1 * noise(random)).exp();
    let mut one = |ratio: f64| ratio * level * (0.03 * noise(random)).exp();
    (one(ratio), one(1.0))
}

/// Counts how many of `trials` comparisons of a true ratio get one of these verdicts.
fn count(
    trials: u64,
    (least, most): Rounds,
    ratio: f64,
    margin: Option<&str>,
    wanted: &[Verdict],
) -> usize {
    let mut random = Pcg64::seed_from_u64(seed() ^ ratio.to_bits() ^ u64::from(most));
    let margin: Option<Margin> = margin.map(|text| text.parse().unwrap());
    let mut trial = |number: u64| {
        let mut pairs: Vec<_> = (0..least).map(|_| pair(ratio, &mut random)).collect();
        while pairs.len() < most as usize && half_width(&pairs).is_some_and(|half| half > NARROW) {
            pairs.push(pair(ratio, &mut random));
        }
        let found = paired_ratio(&pairs, number).unwrap();
        wanted.contains(&verdict(&found, found.p_value < 1.0 - CONFIDENCE, margin))
    };
    (0..trials).filter(|number| trial(*number)).count()
}

const DIFFERENT: [Verdict; 2] = [Verdict::Faster, Verdict::Slower];

/// With the stop rule, at most 7 % of 1,000 comparisons of equal targets show a difference. A fixed
/// number of rounds would give 5 %.
#[test]
fn equal_targets_are_rarely_called_different() {
    let found = count(1000, STOPPED, 1.0, None, &DIFFERENT);
    assert!(found <= 70, "{found} of 1,000 false differences");
    for rounds in [(3, 3), (6, 6), (10, 10), (20, 20)] {
        let found = count(200, rounds, 1.0, None, &DIFFERENT);
        assert!(found <= 20, "{rounds:?} rounds: {found} of 200 false differences");
    }
}

#[test]
fn a_difference_of_5_percent_is_found() {
    for rounds in [(20, 20), STOPPED] {
        let found = count(200, rounds, 1.05, None, &DIFFERENT);
        assert!(found >= 190, "{found} of 200 found at {rounds:?} rounds");
    }
}

/// If the true ratio lies on the margin, at most 5 % (plus two standard errors) of 1,000
/// comparisons find the targets equal, or fast enough.
#[test]
fn targets_at_the_edge_of_a_margin_are_rarely_called_equal() {
    const FEW: usize = 50 + 13;
    for rounds in [(6, 6), (10, 10), (20, 20), STOPPED] {
        for ratio in [1.05, 1.0 / 1.05] {
            let found = count(1000, rounds, ratio, Some("5 %"), &[Verdict::Equal]);
            assert!(found <= FEW, "{found} of 1,000 falsely equal, {rounds:?} rounds");
        }
        let wanted = [Verdict::AtMostSlower, Verdict::Faster];
        let found = count(1000, rounds, 1.05, Some("at most 5 % slower"), &wanted);
        assert!(found <= FEW, "{found} of 1,000 falsely fast enough, {rounds:?} rounds");
    }
}

/// Equal targets are found equal with enough rounds, and are not decided with too few.
#[test]
fn equal_targets_are_called_equal_or_not_decided() {
    let found = count(200, (20, 20), 1.0, Some("5 %"), &[Verdict::Equal]);
    assert!(found >= 170, "{found} of 200 equal");
    let found = count(200, (3, 3), 1.0, Some("2 %"), &[Verdict::NotDecided]);
    assert!(found >= 170, "{found} of 200 not decided");
}

/// Makes the samples of one phase with `targets` equal targets in ten rounds.
fn equal_targets(targets: usize, random: &mut Pcg64) -> Vec<Record> {
    let mut records = vec![Record::Provenance(Box::new(Provenance {
        run: "r".to_owned(),
        baseline: "t0".to_owned(),
        ..Provenance::default()
    }))];
    for round in 0..10 {
        let level = (0.1 * noise(random)).exp();
        for target in 0..targets {
            let seconds = level * (0.03 * noise(random)).exp();
            records.push(Record::Sample(Sample {
                run: "r".to_owned(),
                target: format!("t{target}"),
                workload: "w".to_owned(),
                phase: "p".to_owned(),
                round,
                elapsed_ns: (seconds * 1e9) as u64,
                ..Sample::default()
            }));
        }
    }
    records
}

/// With any number of baselines, at most 7 % of 1,000 reports on equal targets show a difference,
/// because all rows and baselines share one correction.
#[test]
fn several_baselines_do_not_add_false_alarms() {
    for baselines in [1, 2, 4] {
        let mut random = Pcg64::seed_from_u64(seed() ^ baselines as u64);
        let names: Vec<String> = (0..baselines).map(|index| format!("t{index}")).collect();
        let mut is_alarm = || {
            let records = equal_targets(5, &mut random);
            let report = Report::against(&records, &names, None).unwrap();
            let mut rows = report.groups.iter().flat_map(|group| &group.rows);
            rows.any(|row| row.against.iter().any(|against| DIFFERENT.contains(&against.verdict)))
        };
        let found = (0..1000).filter(|_| is_alarm()).count();
        assert!(found <= 70, "{baselines} baselines: {found} of 1,000 reports show a difference");
    }
}

/// Two machines differ in rounds, levels and noise. At most 7 % of 1,000 ratios of equal targets
/// exclude 1.
#[test]
fn strata_do_not_add_false_alarms() {
    for rounds in [(10, 25), (4, 12), (6, 7)] {
        let mut random = Pcg64::seed_from_u64(seed() ^ u64::from(rounds.1 as u32));
        let mut machine = |rounds: usize, level: f64, spread: f64| -> Vec<(f64, f64)> {
            let mut one = || level * (spread * noise(&mut random)).exp();
            (0..rounds).map(|_| (one(), one())).collect()
        };
        let mut is_alarm = |number: &u64| {
            let strata = [machine(rounds.0, 1.0, 0.03), machine(rounds.1, 20.0, 0.06)];
            stratified_ratio(&strata, *number).unwrap().shows_difference()
        };
        let found = (0..1000).filter(&mut is_alarm).count();
        assert!(found <= 70, "{rounds:?} rounds: {found} of 1,000 false differences");
    }
}
