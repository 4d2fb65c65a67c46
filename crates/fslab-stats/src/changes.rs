//! Where a series of figures over time changes its level.
//!
//! The series is cut where Student's t of the two sides' logarithms is greatest, and each side is
//! cut again, as Hunter (Fleming et al. 2023) does it. A cut is believed where drawing the order
//! of the piece anew hardly ever shows one as clear: the greatest of many t values is far more
//! often large than t's own distribution says.
//!
//! Its p-value is corrected for all that is looked at together: by the number of series
//! (Bonferroni), and within a series by the share that the piece has in it, since every side of a
//! cut is looked at again (Meinshausen 2008, hierarchical testing). A look at many series
//! without any change reports one in at most one of twenty cases.

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64;
use serde::Serialize;

use super::summary::mean;

/// Cuts of any series that chance makes more often than this, after correction, are none.
const P_MOST: f64 = 0.05;

/// Orders drawn are counted until so many show a change as clear, or until there are so many
/// times as many as the probability that is asked for needs (Besag and Clifford 1991).
const AS_CLEAR_MOST: u32 = 10;

/// Levels that differ by less are the same to who looks for regressions.
const CHANGE_LEAST: f64 = 0.02;

/// Fewer figures on one side tell nothing of its spread.
const SIDE_LEAST: usize = 3;

/// Fewer figures can't come to the probability that is asked for.
pub const FIGURES_LEAST: usize = 10;

/// Logarithms that differ by less are equal: the rest is rounding.
const EQUAL: f64 = 1e-12;

/// A change of level.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Change {
    /// The first figure of the new level.
    pub at: usize,
    /// The new level (geometric mean) divided by the one before.
    pub factor: f64,
    /// How often orders drawn at random show a change as clear, corrected.
    pub p_value: f64,
}

/// The changes in figures above 0, in order; `series` are looked at together. None in fewer figures
/// than [`FIGURES_LEAST`].
#[must_use]
pub fn changes(figures: &[f64], series: usize, seed: u64) -> Vec<Change> {
    if figures.iter().any(|figure| *figure <= 0.0 || !figure.is_finite()) {
        return Vec::new();
    }
    let logs: Vec<f64> = figures.iter().map(|figure| figure.ln()).collect();
    let mut cuts = Vec::new();
    let mut search = Search { series, length: logs.len(), random: Pcg64::seed_from_u64(seed) };
    search.cut(&logs, 0, &mut cuts);
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

/// A search for changes in one of some series.
struct Search {
    series: usize,
    /// Figures of the whole series.
    length: usize,
    random: Pcg64,
}

impl Search {
    /// Cuts a piece that begins at `offset`, and then its sides.
    fn cut(&mut self, logs: &[f64], offset: usize, cuts: &mut Vec<(usize, f64)>) {
        if logs.len() < FIGURES_LEAST {
            return;
        }
        let Some((at, clearest)) = clearest(logs) else { return };
        let correction = self.series as f64 * self.length as f64 / logs.len() as f64;
        let p_value = self.chance(logs, clearest, P_MOST / correction) * correction;
        if p_value > P_MOST {
            return;
        }
        cuts.push((offset + at, p_value));
        self.cut(&logs[..at], offset, cuts);
        self.cut(&logs[at..], offset + at, cuts);
    }

    /// How often a drawn order shows a change as clear, told well enough to compare it with `most`.
    fn chance(&mut self, logs: &[f64], found: f64, most: f64) -> f64 {
        let orders = (f64::from(AS_CLEAR_MOST) / most).ceil() as u64;
        let mut drawn = logs.to_vec();
        let mut as_clear = 0;
        for order in 1..=orders {
            drawn.shuffle(&mut self.random);
            as_clear += u32::from(clearest(&drawn).is_some_and(|(_, t)| t >= found));
            if as_clear == AS_CLEAR_MOST {
                return f64::from(as_clear) / order as f64;
            }
        }
        f64::from(as_clear + 1) / (orders + 1) as f64
    }
}

/// The place with the greatest t of the two sides (Student's, with a common variance and without
/// its sign), and that t.
fn clearest(logs: &[f64]) -> Option<(usize, f64)> {
    let last = logs.len().checked_sub(SIDE_LEAST).filter(|last| *last >= SIDE_LEAST)?;
    let centre = mean(logs);
    let (mut sum, mut squares) = (0.0, 0.0);
    let all: f64 = logs.iter().map(|log| (log - centre).powi(2)).sum();
    let mut clearest = (SIDE_LEAST, 0.0);
    for (at, log) in (1..=last).zip(logs) {
        sum += log - centre;
        squares += (log - centre).powi(2);
        let (n, m) = (at as f64, (logs.len() - at) as f64);
        // The sum of the other side is this one's with another sign.
        let difference = (sum / n + sum / m).abs();
        if at < SIDE_LEAST || difference < EQUAL {
            continue;
        }
        let within = squares - sum * sum / n + (all - squares) - sum * sum / m;
        let pooled = (within / (n + m - 2.0)).max(EQUAL * EQUAL);
        let t = difference / (pooled * (1.0 / n + 1.0 / m)).sqrt();
        if t > clearest.1 {
            clearest = (at, t);
        }
    }
    Some(clearest)
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
        let found = changes(&series, 1, 1);
        assert_eq!(places(&found), [12, 21]);
        assert!((found[0].factor - 1.10).abs() < 0.01, "{found:?}");
        assert!((found[1].factor - 0.95 / 1.10).abs() < 0.01, "{found:?}");
        assert_eq!(changes(&series, 1, 1), found, "the same seed says the same");
    }

    #[test]
    fn noise_is_seldom_a_change() {
        let is_change =
            |seed: &u64| !changes(&noisy(&[(20, 1.0)], 5.0, *seed), 1, *seed).is_empty();
        let alarms = (0..200).filter(is_change).count();
        // Ten are expected; more than 20 have a probability of one in 500.
        assert!(alarms <= 20, "{alarms} of 200");
    }

    /// A hundred series of noise are one look: it finds a change in one of twenty cases, not in
    /// each. A change that is there is found among as many series.
    #[test]
    fn many_series_of_noise_are_seldom_a_change() {
        let mut looks_with_a_change = 0;
        for look in 0..20 {
            let found = (0..100).filter(|series| {
                let seed = look * 100 + series;
                !changes(&noisy(&[(20, 1.0)], 5.0, seed), 100, seed).is_empty()
            });
            looks_with_a_change += u32::from(found.count() > 0);
        }
        // One is expected; more than four have a probability of one in 400.
        assert!(looks_with_a_change <= 4, "{looks_with_a_change} of 20");
        let series = noisy(&[(12, 1.0), (9, 1.10), (11, 0.95)], 1.5, 7);
        assert_eq!(places(&changes(&series, 100, 1)), [12, 21]);
    }

    #[test]
    fn what_is_too_short_equal_or_small_is_none() {
        assert_eq!(changes(&[1.0, 1.0, 1.0, 9.0, 9.0, 9.0], 1, 1), []);
        assert_eq!(changes(&[3.0; 40], 1, 1), []);
        assert_eq!(
            changes(&noisy(&[(20, 1.0), (20, 1.01)], 0.1, 3), 1, 1),
            [],
            "1 % is not worth it"
        );
        assert_eq!(changes(&[0.0; 40], 1, 1), []);
        let sharp = [[1.0; 5], [2.0; 5]].concat();
        assert_eq!(places(&changes(&sharp, 1, 1)), [5]);
    }
}
