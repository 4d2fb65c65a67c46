//! Measures whether the harness reports false differences and detects real ones. `fslab compare
//! --self-test` runs this test.
//!
//! Three copies of one target are measured. The second copy is equal to the first (A/A). Each
//! operation of the third copy takes 5 % longer. The rounds are divided into ten comparisons, and
//! in each the second and the third copy are compared with the first. In addition, 1,000
//! comparisons of equal targets are simulated. Their rounds are drawn at random from those of the
//! first two copies.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use serde::Serialize;

use crate::error::{Error, Result};
use crate::plan::{Form, Plan, TargetKind, TargetPlan};
use fslab_report::{Report, Row};
use fslab_stats::{CONFIDENCE, half_width, paired_ratio};

/// The share by which the third copy is slowed.
const DELAY: f64 = 0.05;

/// Number of measured comparisons.
pub const COMPARISONS: usize = 10;

/// Rounds of each comparison, unless the command line sets another number.
pub const ROUNDS: u32 = 12;

/// Number of simulated comparisons.
const SIMULATED: usize = 1000;

/// Allowed number of false differences in ten comparisons of equal targets. At a true rate of 7 %,
/// one in 250 self-tests exceeds it.
const MEASURED_MOST: usize = 3;

/// Allowed number of false differences among the 1,000 comparisons of the simulation: the nominal
/// 5 %, and 2 % that the stop rule may add.
const SIMULATED_MOST: usize = 70;

/// Minimum number of the ten delays that must be detected. At a true rate of 95 %, one in 90
/// self-tests detects fewer.
const FOUND_LEAST: usize = 8;

/// The phase that is judged. It overwrites existing data, so its time includes no allocation.
const PHASE: &str = "overwrite";

const WORKLOAD: &str = "[[workload]]\nname = \"stream\"\nsize = \"32 MiB\"\nrequest = \"4 KiB\"\n";

/// The result of a self-test.
#[derive(Clone, Debug, Serialize, PartialEq)]
pub struct Found {
    /// The target.
    pub target: String,
    /// Rounds of each comparison.
    pub rounds: usize,
    /// Seed of the run and of the simulation.
    pub seed: u64,
    /// Number of measured comparisons of each kind: equal and slowed.
    pub comparisons: usize,
    /// Number of measured comparisons of equal targets that show a difference.
    pub false_differences: usize,
    /// Allowed maximum of `false_differences`.
    pub false_differences_most: usize,
    /// Number of simulated comparisons of equal targets.
    pub simulated: usize,
    /// Number of simulated comparisons that show a difference.
    pub simulated_false_differences: usize,
    /// Allowed maximum of `simulated_false_differences`.
    pub simulated_false_differences_most: usize,
    /// Number of comparisons in which the delay was detected.
    pub delays_found: usize,
    /// Required minimum of `delays_found`.
    pub delays_found_least: usize,
    /// The delay, as a share of each operation's time.
    pub delay: f64,
    /// The delay measured over all rounds.
    pub delay_measured: f64,
    /// Median half width of the intervals between equal targets.
    pub half_width: f64,
}

/// Returns the plan: three copies of a target. The first is the baseline and the third is slowed.
///
/// # Errors
/// Fails if the built-in plan text is invalid, which would be a bug.
pub fn plan(target: &TargetPlan, image_size: u64) -> Result<Plan> {
    let text = format!(
        "name = \"self-test\"\nnoise_floor = false\n[[target]]\nname = \"first\"\n\
         in_process = \"mem:\"\n{WORKLOAD}"
    );
    let mut plan = Plan::parse("the self-test", &text, Form::Full)?;
    let copy = |name: &str, share| TargetPlan {
        name: name.to_owned(),
        slowed: Some(share),
        margin: None,
        ..target.clone()
    };
    plan.targets = vec![copy("first", 0.0), copy("second", 0.0), copy("slowed", DELAY)];
    if matches!(target.kind, TargetKind::Image { .. }) {
        plan.image_size = image_size;
    }
    Ok(plan)
}

/// Returns the ratios of the second and the slowed copy to the first, in the order of rounds.
fn ratios(report: &Report) -> (Vec<f64>, Vec<f64>) {
    let group = report.groups.iter().find(|group| group.phase == PHASE);
    let of = |name: &str| {
        let row = group.and_then(|group| group.rows.iter().find(|row| row.target == name));
        row.map(in_order).unwrap_or_default()
    };
    (of("second"), of("slowed"))
}

fn in_order(row: &Row) -> Vec<f64> {
    let ratios = row.against.first().map(|against| against.ratios.as_slice()).unwrap_or_default();
    let mut ratios: Vec<(u32, f64)> = row
        .points
        .iter()
        .zip(ratios)
        .filter_map(|(point, ratio)| Some((point.round, (*ratio)?)))
        .collect();
    ratios.sort_by_key(|(round, _)| *round);
    ratios.into_iter().map(|(_, ratio)| ratio).collect()
}

/// Returns the mean of the rounds' ratios if it shows a significant difference.
fn shown(ratios: &[f64], seed: u64) -> Option<f64> {
    let pairs: Vec<(f64, f64)> = ratios.iter().map(|ratio| (*ratio, 1.0)).collect();
    let found = paired_ratio(&pairs, seed)?;
    let differs = found.shows_difference() && found.p_value < 1.0 - CONFIDENCE;
    differs.then_some(found.ratio)
}

impl Found {
    /// Judges the report of the plan's run, whose comparisons have `rounds` rounds each.
    ///
    /// # Errors
    /// Fails if rounds are missing.
    pub fn new(report: &Report, target: &str, rounds: u32, seed: u64) -> Result<Self> {
        let (second, slowed) = ratios(report);
        Self::of(target, rounds as usize, seed, &second, &slowed)
    }

    fn of(target: &str, rounds: usize, seed: u64, second: &[f64], slowed: &[f64]) -> Result<Self> {
        let needed = COMPARISONS * rounds;
        if rounds < 2 || second.len() != needed || slowed.len() != needed {
            return Err(Error::Failed(format!(
                "self-test: the equal copy has {} rounds and the slowed copy has {}, but each \
                 needs {needed} rounds ({COMPARISONS} comparisons of at least 2 rounds)",
                second.len(),
                slowed.len()
            )));
        }
        let alarms = second.chunks(rounds).filter(|ratios| shown(ratios, seed).is_some());
        let slower = |ratios: &&[f64]| shown(ratios, seed).is_some_and(|ratio| ratio > 1.0);
        let logs = slowed.iter().map(|ratio| ratio.ln()).sum::<f64>();
        Ok(Self {
            target: target.to_owned(),
            rounds,
            seed,
            comparisons: COMPARISONS,
            false_differences: alarms.count(),
            false_differences_most: MEASURED_MOST,
            simulated: SIMULATED,
            simulated_false_differences: simulate(second, rounds, seed),
            simulated_false_differences_most: SIMULATED_MOST,
            delays_found: slowed.chunks(rounds).filter(slower).count(),
            delays_found_least: FOUND_LEAST,
            delay: DELAY,
            delay_measured: (logs / slowed.len() as f64).exp() - 1.0,
            half_width: median_half_width(second, rounds),
        })
    }

    /// Returns the rates and their limits as text.
    #[must_use]
    pub fn text(&self) -> String {
        format!(
            "self-test of {}: {} comparisons of {} rounds, seed {}\n\
             equal targets found different, measured:    {:>4} of {:>4}  at most {}\n\
             equal targets found different, simulated:   {:>4} of {:>4}  at most {}\n\
             delay of {:.0} % found:                        {:>4} of {:>4}  at least {}\n\
             The delay was measured as {:.1} %. An interval of {} rounds is \u{b1}{:.1} % wide.\n",
            self.target,
            self.comparisons,
            self.rounds,
            self.seed,
            self.false_differences,
            self.comparisons,
            self.false_differences_most,
            self.simulated_false_differences,
            self.simulated,
            self.simulated_false_differences_most,
            self.delay * 100.0,
            self.delays_found,
            self.comparisons,
            self.delays_found_least,
            self.delay_measured * 100.0,
            self.rounds,
            self.half_width * 100.0
        )
    }

    /// Returns descriptions of the limits that are missed.
    #[must_use]
    pub fn missed(&self) -> Vec<&'static str> {
        let limits = [
            (
                self.false_differences > self.false_differences_most,
                "equal targets are found different too often",
            ),
            (
                self.simulated_false_differences > self.simulated_false_differences_most,
                "simulated equal targets with the measured noise are found different too often",
            ),
            (
                self.delays_found < self.delays_found_least,
                "the delay is not found often enough; reduce other work on the machine, or \
                 increase --rounds",
            ),
        ];
        limits.into_iter().filter(|(missed, _)| *missed).map(|(_, what)| what).collect()
    }
}

/// Returns the number of simulated comparisons of equal targets that show a difference. Their
/// rounds are drawn from the measured ones. A random draw also decides for each round which copy is
/// the baseline, so that neither is favoured.
fn simulate(ratios: &[f64], rounds: usize, seed: u64) -> usize {
    let mut random = Pcg64::seed_from_u64(seed);
    let mut one = |number: u64| {
        let mut draw = || {
            let ratio = ratios[random.random_range(0..ratios.len())];
            if random.random::<bool>() { ratio } else { 1.0 / ratio }
        };
        let drawn: Vec<f64> = (0..rounds).map(|_| draw()).collect();
        shown(&drawn, number).is_some()
    };
    (0..SIMULATED as u64).filter(|number| one(*number)).count()
}

fn median_half_width(ratios: &[f64], rounds: usize) -> f64 {
    let width =
        |ratios: &[f64]| half_width(&ratios.iter().map(|ratio| (*ratio, 1.0)).collect::<Vec<_>>());
    let mut widths: Vec<f64> = ratios.chunks(rounds).filter_map(width).collect();
    widths.sort_by(f64::total_cmp);
    widths.get(widths.len() / 2).copied().unwrap_or(f64::INFINITY)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes ratios around a level, with noise of this standard deviation.
    fn noisy(level: f64, spread: f64, seed: u64) -> Vec<f64> {
        let mut random = Pcg64::seed_from_u64(seed);
        let mut noise = || (0..12).map(|_| random.random::<f64>()).sum::<f64>() - 6.0;
        (0..COMPARISONS * 12).map(|_| level * (spread * noise()).exp()).collect()
    }

    fn missed(second: &[f64], slowed: &[f64]) -> Vec<&'static str> {
        Found::of("t", 12, 7, second, slowed).unwrap().missed()
    }

    /// A correct harness passes. Four faults are reported: one copy is favoured, the delay has no
    /// effect, the slowed copy is faster, or noise hides the delay.
    #[test]
    fn missed_limits_are_named() {
        let (second, slowed) = (noisy(1.0, 0.02, 1), noisy(1.05, 0.02, 2));
        assert_eq!(missed(&second, &slowed), [""; 0]);
        let unfair = missed(&noisy(1.05, 0.02, 3), &slowed);
        assert_eq!(unfair, ["equal targets are found different too often"]);
        for missing in [noisy(1.0, 0.02, 4), noisy(0.95, 0.02, 5), noisy(1.05, 0.2, 6)] {
            let found = missed(&second, &missing);
            assert!(
                found.len() == 1 && found[0].starts_with("the delay is not found"),
                "{found:?}"
            );
        }
    }

    #[test]
    fn equal_targets_are_rarely_called_different_at_any_noise() {
        for spread in [0.001, 0.02, 0.3] {
            let found = simulate(&noisy(1.0, spread, 8), 12, 9);
            assert!((10..=SIMULATED_MOST).contains(&found), "{spread}: {found} of {SIMULATED}");
        }
        // One copy is always slower here, but each copy is the baseline equally often.
        let found = simulate(&noisy(1.1, 0.01, 8), 12, 9);
        assert!(found <= SIMULATED_MOST, "{found}");
    }

    #[test]
    fn missing_rounds_are_an_error() {
        let rounds = noisy(1.0, 0.02, 1);
        let error = Found::of("t", 12, 7, &rounds[1..], &rounds).unwrap_err().to_string();
        assert!(error.contains("119 rounds and the slowed copy has 120"), "{error}");
    }
}
