//! Finds the points at which the level of a time series changes.
//!
//! As in Hunter (Fleming et al. 2023), the series is cut at the point at which the two sides differ
//! most. The difference is measured by Student's t of the logarithms. Then each side is cut in the
//! same way. A cut is accepted only if few random permutations of the segment's figures reach the
//! same t. The quantiles of the t distribution can't be used: they apply to the t of one cut, not
//! to the greatest t of many cuts.
//!
//! The p-value is multiplied by two factors, because many tests are made. The first is the number
//! of series that are examined together (Bonferroni). The second is the length of the series
//! divided by the length of the segment (Meinshausen 2008, hierarchical testing). It corrects for
//! the repeated cuts. If no series has a change, the probability that any change is reported is at
//! most 5 %.

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64;
use serde::Serialize;

use super::summary::mean;

/// A cut with a corrected p-value above this is rejected.
const P_MOST: f64 = 0.05;

/// The search stops drawing permutations when this many of them have reached the t of the real
/// order. It draws at most this number divided by the required p-value (Besag and Clifford 1991).
const AS_CLEAR_MOST: u32 = 10;

/// Smallest change of level that is reported, as a share.
const CHANGE_LEAST: f64 = 0.02;

/// Smallest number of figures on each side of a cut. Fewer figures do not show their spread.
const SIDE_LEAST: usize = 3;

/// Smallest number of figures in which a change can be found: fewer can't reach the required
/// p-value.
pub const FIGURES_LEAST: usize = 10;

/// Logarithms that differ by less than this are equal: the difference is a rounding error.
const EQUAL: f64 = 1e-12;

/// A change of level.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Change {
    /// Index of the first figure of the new level.
    pub at: usize,
    /// The new level (geometric mean) divided by the previous level.
    pub factor: f64,
    /// Corrected p-value: the probability that a random permutation reaches the same t.
    pub p_value: f64,
}

/// Returns the changes of level in a series of positive figures, in the order of time. `series` is
/// the number of series that are examined together. Returns no changes for fewer than
/// [`FIGURES_LEAST`] figures, or if a figure is not positive or not finite.
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

/// A search for changes in one of `series` series.
struct Search {
    series: usize,
    /// Number of figures in the whole series.
    length: usize,
    random: Pcg64,
}

impl Search {
    /// Cuts a segment that begins at `offset`, and then both of its sides.
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

    /// Estimates the probability that a random permutation reaches the t `found`, precisely enough
    /// to compare it with `most`.
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

/// Returns the index at which t of the two sides is greatest, and this t: the absolute value of
/// Student's t with a pooled variance.
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
        // The values are centred, so the sum of the right side is minus the sum of the left side.
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

    /// Returns figures at these levels, with random noise of at most `percent` percent up or down.
    fn noisy(levels: &[(usize, f64)], percent: f64, seed: u64) -> Vec<f64> {
        let mut random = Pcg64::seed_from_u64(seed);
        let points = levels.iter().flat_map(|(count, level)| vec![*level; *count]);
        points.map(|level| level * (1.0 + random.random_range(-percent..percent) / 100.0)).collect()
    }

    fn places(found: &[Change]) -> Vec<usize> {
        found.iter().map(|change| change.at).collect()
    }

    #[test]
    fn changes_are_found_at_their_positions() {
        let series = noisy(&[(12, 1.0), (9, 1.10), (11, 0.95)], 1.5, 7);
        let found = changes(&series, 1, 1);
        assert_eq!(places(&found), [12, 21]);
        assert!((found[0].factor - 1.10).abs() < 0.01, "{found:?}");
        assert!((found[1].factor - 0.95 / 1.10).abs() < 0.01, "{found:?}");
        assert_eq!(changes(&series, 1, 1), found, "the same seed gives the same result");
    }

    #[test]
    fn noise_is_rarely_reported_as_a_change() {
        let is_change =
            |seed: &u64| !changes(&noisy(&[(20, 1.0)], 5.0, *seed), 1, *seed).is_empty();
        let alarms = (0..200).filter(is_change).count();
        // Ten are expected. The probability of more than 20 is one in 500.
        assert!(alarms <= 20, "{alarms} of 200");
    }

    /// If 100 series of noise are examined together, only one in twenty such examinations finds a
    /// change. A real change is still found among 100 series.
    #[test]
    fn many_noisy_series_are_rarely_reported_as_changes() {
        let mut looks_with_a_change = 0;
        for look in 0..20 {
            let found = (0..100).filter(|series| {
                let seed = look * 100 + series;
                !changes(&noisy(&[(20, 1.0)], 5.0, seed), 100, seed).is_empty()
            });
            looks_with_a_change += u32::from(found.count() > 0);
        }
        // One is expected. The probability of more than four is one in 400.
        assert!(looks_with_a_change <= 4, "{looks_with_a_change} of 20");
        let series = noisy(&[(12, 1.0), (9, 1.10), (11, 0.95)], 1.5, 7);
        assert_eq!(places(&changes(&series, 100, 1)), [12, 21]);
    }

    #[test]
    fn short_or_constant_series_and_small_steps_have_no_change() {
        assert_eq!(changes(&[1.0, 1.0, 1.0, 9.0, 9.0, 9.0], 1, 1), []);
        assert_eq!(changes(&[3.0; 40], 1, 1), []);
        assert_eq!(
            changes(&noisy(&[(20, 1.0), (20, 1.01)], 0.1, 3), 1, 1),
            [],
            "a change of 1 % is not reported"
        );
        assert_eq!(changes(&[0.0; 40], 1, 1), []);
        let sharp = [[1.0; 5], [2.0; 5]].concat();
        assert_eq!(places(&changes(&sharp, 1, 1)), [5]);
    }
}
