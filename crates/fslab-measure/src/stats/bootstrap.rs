//! The ratio of two targets with its interval, from rounds in which both were measured.
//!
//! The estimate is the geometric mean of the rounds' ratios. Its interval is found from the
//! logarithms by the bias-corrected and accelerated bootstrap (Efron 1987), with Hesterberg's
//! expansion for small samples (2015): a plain bootstrap's intervals are too narrow for them by
//! a factor of sqrt((n - 1) / n) and by what the normal quantile lacks of Student's.
//!
//! Below [`FEWEST_FOR_BOOTSTRAP`] rounds no interval made of resampled values can cover 95 %
//! (all values lie on one side of the truth with probability 2^(1-n)); there, Student's interval
//! of the logarithms is used.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use serde::Serialize;
use statrs::distribution::{ContinuousCDF, Normal, StudentsT};

use super::summary::{mean, variance};

/// What share of intervals holds the true ratio.
pub const CONFIDENCE: f64 = 0.95;

const RESAMPLES: usize = 10_000;

const FEWEST_FOR_BOOTSTRAP: usize = 6;

/// How a target's values relate to the baseline's, over rounds in which both were measured.
#[derive(Clone, Copy, Debug, Serialize, PartialEq)]
pub struct RatioInterval {
    /// Geometric mean of the rounds' ratios; above 1 the target took more.
    pub ratio: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
    /// Rounds it is made of.
    pub rounds: usize,
}

impl RatioInterval {
    /// Whether the interval leaves out 1. Where it does not, no difference is shown, which is not
    /// to say that there is none.
    #[must_use]
    pub fn shows_difference(&self) -> bool {
        self.high < 1.0 || self.low > 1.0
    }
}

/// The ratio of paired values, target and baseline of one round. `None` for fewer than two pairs,
/// which tell nothing of the spread, and for values that are not above 0.
#[must_use]
pub fn paired_ratio(pairs: &[(f64, f64)], seed: u64) -> Option<RatioInterval> {
    if pairs.len() < 2 || pairs.iter().any(|(target, base)| *target <= 0.0 || *base <= 0.0) {
        return None;
    }
    let logs: Vec<f64> = pairs.iter().map(|(target, base)| (target / base).ln()).collect();
    let (low, high) = interval_of_mean(&logs, seed)?;
    let ratio = mean(&logs).exp();
    Some(RatioInterval { ratio, low: low.exp(), high: high.exp(), rounds: pairs.len() })
}

fn interval_of_mean(values: &[f64], seed: u64) -> Option<(f64, f64)> {
    let (count, centre) = (values.len() as f64, mean(values));
    let error = (variance(values) / count).sqrt();
    if error < 1e-12 {
        return Some((centre, centre));
    }
    let student = StudentsT::new(0.0, 1.0, count - 1.0).ok()?;
    let quantile = student.inverse_cdf(f64::midpoint(1.0, CONFIDENCE));
    if values.len() < FEWEST_FOR_BOOTSTRAP {
        return Some((centre - quantile * error, centre + quantile * error));
    }
    let means = resampled_means(values, seed);
    let expanded = quantile * (count / (count - 1.0)).sqrt();
    let low = corrected_level(values, &means, -expanded)?;
    let high = corrected_level(values, &means, expanded)?;
    Some((at_level(&means, low), at_level(&means, high)))
}

/// Means of samples drawn with replacement, sorted.
fn resampled_means(values: &[f64], seed: u64) -> Vec<f64> {
    let mut random = Pcg64::seed_from_u64(seed);
    let mut draw = || {
        let sum: f64 =
            (0..values.len()).map(|_| values[random.random_range(0..values.len())]).sum();
        sum / values.len() as f64
    };
    let mut means: Vec<f64> = (0..RESAMPLES).map(|_| draw()).collect();
    means.sort_by(f64::total_cmp);
    means
}

/// The share of the resampled means below the end of the interval that belongs to a normal
/// quantile, corrected for bias and for a variance that changes with the mean.
fn corrected_level(values: &[f64], means: &[f64], quantile: f64) -> Option<f64> {
    let normal = Normal::new(0.0, 1.0).ok()?;
    let centre = mean(values);
    let below = means.partition_point(|value| *value < centre) as f64;
    let equal = means.partition_point(|value| *value <= centre) as f64 - below;
    let share = (below + equal / 2.0) / means.len() as f64;
    let bias = normal.inverse_cdf(share.clamp(1e-9, 1.0 - 1e-9));
    let sum_of = |power| values.iter().map(|value| (centre - value).powi(power)).sum::<f64>();
    // For the mean, the jackknife's acceleration in closed form.
    let acceleration = -sum_of(3) / (6.0 * sum_of(2).powf(1.5));
    let shifted = bias + quantile;
    Some(normal.cdf(bias + shifted / (1.0 - acceleration * shifted)))
}

fn at_level(sorted: &[f64], level: f64) -> f64 {
    let place = level * (sorted.len() - 1) as f64;
    let below = sorted[place.floor() as usize];
    below + (sorted[place.ceil() as usize] - below) * place.fract()
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg64;

    use super::{RatioInterval, interval_of_mean, paired_ratio};

    fn seed() -> u64 {
        let seed = std::env::var("FSLAB_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(7);
        eprintln!("FSLAB_SEED={seed}");
        seed
    }

    /// Sum of twelve uniform numbers: near enough to normal.
    fn noise(random: &mut Pcg64) -> f64 {
        (0..12).map(|_| random.random::<f64>()).sum::<f64>() - 6.0
    }

    /// Gosset's sleep data: mean 1.58, and 0.700 to 2.460 by Student's interval; the bootstrap's
    /// is near it.
    #[test]
    fn gossets_sleep_data() {
        let hours = [1.2, 2.4, 1.3, 1.3, 0.0, 1.0, 1.8, 0.8, 4.6, 1.4];
        let (low, high) = interval_of_mean(&hours, 1).unwrap();
        assert!((0.6..1.1).contains(&low), "{low}");
        assert!((2.3..3.1).contains(&high), "{high}");
    }

    /// Four values: mean 5, standard error 1, Student's quantile 3.182.
    #[test]
    fn few_rounds_use_students_interval() {
        let error = (20.0_f64 / 3.0 / 4.0).sqrt();
        let (low, high) = interval_of_mean(&[2.0, 4.0, 6.0, 8.0], 1).unwrap();
        assert!((low - (5.0 - 3.182_446 * error)).abs() < 1e-3, "{low}");
        assert!((high - (5.0 + 3.182_446 * error)).abs() < 1e-3, "{high}");
    }

    #[test]
    fn equal_values_have_no_spread_and_one_pair_no_interval() {
        let same = paired_ratio(&[(2.0, 1.0); 8], 1).unwrap();
        assert!((same.ratio - 2.0).abs() < 1e-12 && same.low == same.high);
        assert!(same.shows_difference());
        assert_eq!(paired_ratio(&[(2.0, 1.0)], 1), None);
        assert_eq!(paired_ratio(&[(0.0, 1.0), (1.0, 1.0)], 1), None);
    }

    #[test]
    fn an_interval_that_holds_1_shows_no_difference() {
        let interval = |low, high| RatioInterval { ratio: 1.0, low, high, rounds: 10 };
        assert!(!interval(0.9, 1.1).shows_difference());
        assert!(!interval(1.0, 1.1).shows_difference());
        assert!(interval(1.01, 1.1).shows_difference());
        assert!(interval(0.8, 0.99).shows_difference());
    }

    /// How many of `trials` comparisons show a difference, where the true ratio is `ratio` and
    /// values vary by 3 % within a round and 10 % between rounds.
    fn shown(trials: usize, rounds: usize, ratio: f64, random: &mut Pcg64) -> usize {
        let mut trial = |trial: usize| {
            let pairs: Vec<(f64, f64)> = (0..rounds)
                .map(|_| {
                    let level = (0.1 * noise(random)).exp();
                    let mut one = |ratio: f64| ratio * level * (0.03 * noise(random)).exp();
                    (one(ratio), one(1.0))
                })
                .collect();
            paired_ratio(&pairs, trial as u64).is_some_and(|ratio| ratio.shows_difference())
        };
        (0..trials).filter(|index| trial(*index)).count()
    }

    /// At most a tenth of comparisons of equal things shows a difference, for few rounds and many;
    /// nineteen of twenty find one of 5 %.
    #[test]
    fn simulated_comparisons_alarm_rarely_and_find_a_difference() {
        let mut random = Pcg64::seed_from_u64(seed());
        for rounds in [3, 6, 10, 20] {
            let false_alarms = shown(200, rounds, 1.0, &mut random);
            assert!(false_alarms <= 20, "{rounds} rounds: {false_alarms} of 200 false alarms");
        }
        let found = shown(200, 10, 1.05, &mut random);
        assert!(found >= 170, "{found} of 200 found at 10 rounds");
        let found = shown(200, 20, 1.05, &mut random);
        assert!(found >= 190, "{found} of 200 found at 20 rounds");
    }
}
