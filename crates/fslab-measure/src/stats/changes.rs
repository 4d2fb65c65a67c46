//! Where a series of figures over time changes its level.
//!
//! The series is cut where Student's t of the two sides' logarithms is greatest, and each side is
//! cut again, as Hunter (Fleming et al. 2023) does it. A cut is believed where drawing the order
//! of the piece anew hardly ever shows one as clear: the greatest of many t values is far more
//! often large than t's own distribution says.

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64;
use serde::Serialize;

use super::summary::{mean, variance};

/// Cuts that chance makes more often than this are none.
const P_MOST: f64 = 0.01;

/// Levels that differ by less are the same to who looks for regressions.
const CHANGE_LEAST: f64 = 0.02;

/// Fewer figures on one side tell nothing of its spread.
const SIDE_LEAST: usize = 3;

/// Fewer figures can't come to the probability that is asked for.
pub const FIGURES_LEAST: usize = 10;

const ORDERS: u32 = 999;

/// Logarithms that differ by less are equal: the rest is rounding.
const EQUAL: f64 = 1e-12;

/// A change of level.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Change {
    /// The first figure of the new level.
    pub at: usize,
    /// The new level (geometric mean) divided by the one before.
    pub factor: f64,
    /// How often orders drawn at random show a change as clear.
    pub p_value: f64,
}

/// The changes in figures above 0, in order. None in fewer than [`FIGURES_LEAST`].
#[must_use]
pub fn changes(figures: &[f64], seed: u64) -> Vec<Change> {
    if figures.iter().any(|figure| *figure <= 0.0 || !figure.is_finite()) {
        return Vec::new();
    }
    let logs: Vec<f64> = figures.iter().map(|figure| figure.ln()).collect();
    let mut cuts = Vec::new();
    cut(&logs, 0, &mut Pcg64::seed_from_u64(seed), &mut cuts);
    cuts.sort_by_key(|(at, _)| *at);
    let ends = cuts.iter().map(|(at, _)| *at).skip(1).chain([logs.len()]).collect::<Vec<_>>();
    let mut start = 0;
    let mut found = Vec::new();
    for ((at, p_value), end) in cuts.into_iter().zip(ends) {
        let factor = (mean(&logs[at..end]) - mean(&logs[start..at])).exp();
        start = at;
        found.push(Change { at, factor, p_value });
    }
    found.retain(|change| (change.factor - 1.0).abs() >= CHANGE_LEAST);
    found
}

/// Cuts a piece that begins at `offset`, and then its sides.
fn cut(logs: &[f64], offset: usize, random: &mut Pcg64, cuts: &mut Vec<(usize, f64)>) {
    if logs.len() < FIGURES_LEAST {
        return;
    }
    let Some((at, clearest)) = clearest(logs) else { return };
    let p_value = chance(logs, clearest, random);
    if p_value > P_MOST {
        return;
    }
    cuts.push((offset + at, p_value));
    cut(&logs[..at], offset, random, cuts);
    cut(&logs[at..], offset + at, random, cuts);
}

/// The place with the greatest t, and that t.
fn clearest(logs: &[f64]) -> Option<(usize, f64)> {
    let places = SIDE_LEAST..=logs.len().checked_sub(SIDE_LEAST)?;
    places.map(|at| (at, t(&logs[..at], &logs[at..]))).max_by(|a, b| a.1.total_cmp(&b.1))
}

/// Student's t of two samples with a common variance, without its sign.
fn t(one: &[f64], other: &[f64]) -> f64 {
    let (n, m) = (one.len() as f64, other.len() as f64);
    let difference = (mean(one) - mean(other)).abs();
    if difference < EQUAL {
        return 0.0;
    }
    let pooled = ((n - 1.0) * variance(one) + (m - 1.0) * variance(other)) / (n + m - 2.0);
    difference / (pooled.max(EQUAL * EQUAL) * (1.0 / n + 1.0 / m)).sqrt()
}

fn chance(logs: &[f64], found: f64, random: &mut Pcg64) -> f64 {
    let mut drawn = logs.to_vec();
    let as_clear = (0..ORDERS)
        .filter(|_| {
            drawn.shuffle(random);
            clearest(&drawn).is_some_and(|(_, t)| t >= found)
        })
        .count();
    (as_clear + 1) as f64 / f64::from(ORDERS + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::RngExt;

    /// Levels with noise of so many percent either way.
    fn noisy(levels: &[(usize, f64)], percent: f64, seed: u64) -> Vec<f64> {
        let mut random = Pcg64::seed_from_u64(seed);
        let points = levels.iter().flat_map(|(count, level)| vec![*level; *count]);
        points.map(|level| level * (1.0 + random.random_range(-percent..percent) / 100.0)).collect()
    }

    fn places(found: &[Change]) -> Vec<usize> {
        found.iter().map(|change| change.at).collect()
    }

    #[test]
    fn changes_are_found_where_they_are() {
        let series = noisy(&[(12, 1.0), (9, 1.10), (11, 0.95)], 1.5, 7);
        let found = changes(&series, 1);
        assert_eq!(places(&found), [12, 21]);
        assert!((found[0].factor - 1.10).abs() < 0.01, "{found:?}");
        assert!((found[1].factor - 0.95 / 1.10).abs() < 0.01, "{found:?}");
        assert_eq!(changes(&series, 1), found, "the same seed says the same");
    }

    #[test]
    fn noise_is_seldom_a_change() {
        let alarms =
            (0..100).filter(|seed| !changes(&noisy(&[(20, 1.0)], 5.0, *seed), *seed).is_empty());
        let alarms = alarms.count();
        // One in a hundred is expected; more than five has a probability of one in 2000.
        assert!(alarms <= 5, "{alarms} of 100");
    }

    #[test]
    fn what_is_too_short_equal_or_small_is_none() {
        assert_eq!(changes(&[1.0, 1.0, 1.0, 9.0, 9.0, 9.0], 1), []);
        assert_eq!(changes(&[3.0; 40], 1), []);
        assert_eq!(changes(&noisy(&[(20, 1.0), (20, 1.01)], 0.1, 3), 1), [], "1 % is not worth it");
        assert_eq!(changes(&[0.0; 40], 1), []);
        let sharp = [[1.0; 5], [2.0; 5]].concat();
        assert_eq!(places(&changes(&sharp, 1)), [5]);
    }
}
