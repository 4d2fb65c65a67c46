//! Bootstrap confidence intervals of any statistic.
//!
//! The statistic is computed for many resamples, which are drawn from the values with replacement.
//! The sorted results are then cut at both ends. Both methods of cutting are Efron's. The
//! *percentile* interval cuts the same share from both ends. *BCa* (bias-corrected and accelerated,
//! 1987) shifts the two cuts. It corrects for the bias of the resampled statistics, and for a
//! variance that changes with the statistic's value.
//!
//! For small samples, both intervals can be *expanded* as proposed by Hesterberg (2015). Plain
//! bootstrap intervals are too narrow for two reasons. They lack a factor of sqrt(n / (n - 1)), and
//! they use the quantile of the normal distribution instead of Student's.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use statrs::distribution::{ContinuousCDF, Normal, StudentsT};

use super::summary::mean;

/// The rule for cutting the sorted resampled statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Cuts the same share from both ends.
    Percentile,
    /// Corrects the cuts for bias and for a variance that changes with the statistic.
    Bca,
}

/// Settings for the computation of an interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bootstrap {
    /// The rule for cutting the sorted resampled statistics.
    pub method: Method,
    /// Confidence level: the share of such intervals that contain the true value.
    pub confidence: f64,
    /// Whether to widen the interval for small samples.
    pub expanded: bool,
    /// Number of resamples.
    pub resamples: usize,
    /// Seed of the random draws.
    pub seed: u64,
}

impl Bootstrap {
    /// Returns the confidence interval of a statistic, or `None` if there are fewer than two
    /// values, no resamples, or a confidence outside 0 to 1.
    #[must_use]
    pub fn interval(
        &self,
        values: &[f64],
        statistic: impl Fn(&[f64]) -> f64,
    ) -> Option<(f64, f64)> {
        let quantile = self.quantile(values.len())?;
        let resampled = self.resample(values, &statistic);
        let correction = match self.method {
            Method::Percentile => Correction::default(),
            Method::Bca => Correction::of(values, &statistic, &resampled)?,
        };
        correction.ends(&resampled, quantile)
    }

    /// Returns the BCa interval of the mean of the strata's means. A resample draws each stratum's
    /// values only from that stratum. `degrees` is the number of degrees of freedom of the mean.
    /// Returns `None` if there are no strata, or if a stratum has fewer than two values.
    ///
    /// The acceleration is computed by the formula for several samples (Davison and Hinkley 1997,
    /// section 5.4). The deviations of a stratum with n values are multiplied by sqrt(n / (n - 1)).
    #[must_use]
    pub fn interval_of_strata(&self, strata: &[Vec<f64>], degrees: f64) -> Option<(f64, f64)> {
        if strata.is_empty() || strata.iter().any(|values| values.len() < 2) {
            return None;
        }
        let level = f64::midpoint(1.0, self.confidence);
        let quantile = StudentsT::new(0.0, 1.0, degrees).ok()?.inverse_cdf(level);
        let centres: Vec<f64> = strata.iter().map(|values| mean(values)).collect();
        let mut random = Pcg64::seed_from_u64(self.seed);
        let mut draw = || {
            let of = |(values, centre): (&Vec<f64>, &f64)| {
                let count = values.len();
                let drawn = |_| values[random.random_range(0..count)];
                let own = (0..count).map(drawn).sum::<f64>() / count as f64;
                centre + (own - centre) * (count as f64 / (count as f64 - 1.0)).sqrt()
            };
            strata.iter().zip(&centres).map(of).sum::<f64>() / strata.len() as f64
        };
        let mut resampled: Vec<f64> = (0..self.resamples).map(|_| draw()).collect();
        resampled.sort_by(f64::total_cmp);
        let bias = Correction::bias(mean(&centres), &resampled)?;
        let correction = Correction { bias, acceleration: acceleration_of_strata(strata) };
        correction.ends(&resampled, quantile)
    }

    /// Returns the distance of the interval's ends from the estimate, in standard errors.
    fn quantile(&self, count: usize) -> Option<f64> {
        let usable = count >= 2 && self.resamples > 0 && self.confidence > 0.0;
        if !usable || self.confidence >= 1.0 {
            return None;
        }
        let level = f64::midpoint(1.0, self.confidence);
        if !self.expanded {
            return Some(Normal::new(0.0, 1.0).ok()?.inverse_cdf(level));
        }
        let count = count as f64;
        let student = StudentsT::new(0.0, 1.0, count - 1.0).ok()?;
        Some(student.inverse_cdf(level) * (count / (count - 1.0)).sqrt())
    }

    /// Returns the sorted statistics of the resamples.
    fn resample(&self, values: &[f64], statistic: &impl Fn(&[f64]) -> f64) -> Vec<f64> {
        let mut random = Pcg64::seed_from_u64(self.seed);
        let mut drawn = vec![0.0; values.len()];
        let mut draw = || {
            drawn.fill_with(|| values[random.random_range(0..values.len())]);
            statistic(&drawn)
        };
        let mut resampled: Vec<f64> = (0..self.resamples).map(|_| draw()).collect();
        resampled.sort_by(f64::total_cmp);
        resampled
    }
}

/// The parameters by which BCa shifts the cuts. The default does not shift them.
#[derive(Clone, Copy, Debug, Default)]
struct Correction {
    bias: f64,
    acceleration: f64,
}

impl Correction {
    fn of(values: &[f64], statistic: &impl Fn(&[f64]) -> f64, resampled: &[f64]) -> Option<Self> {
        let bias = Self::bias(statistic(values), resampled)?;
        Some(Self { bias, acceleration: acceleration(values, statistic) })
    }

    /// Returns the share of the resampled statistics below the estimate, as a quantile of the
    /// normal distribution.
    fn bias(estimate: f64, resampled: &[f64]) -> Option<f64> {
        let below = resampled.partition_point(|value| *value < estimate) as f64;
        let equal = resampled.partition_point(|value| *value <= estimate) as f64 - below;
        let share = (below + equal / 2.0) / resampled.len() as f64;
        Some(Normal::new(0.0, 1.0).ok()?.inverse_cdf(share.clamp(1e-9, 1.0 - 1e-9)))
    }

    /// Returns both ends of the interval. `quantile` is their distance from the estimate in
    /// standard errors.
    fn ends(self, resampled: &[f64], quantile: f64) -> Option<(f64, f64)> {
        let normal = Normal::new(0.0, 1.0).ok()?;
        let end = |quantile: f64| {
            let shifted = self.bias + quantile;
            let shifted = self.bias + shifted / (1.0 - self.acceleration * shifted);
            at_level(resampled, normal.cdf(shifted))
        };
        Some((end(-quantile), end(quantile)))
    }
}

/// Returns the acceleration, from the statistic with each value left out in turn (the jackknife).
fn acceleration(values: &[f64], statistic: &impl Fn(&[f64]) -> f64) -> f64 {
    let without = |index: usize| {
        let mut left = values.to_vec();
        left.remove(index);
        statistic(&left)
    };
    let left_out: Vec<f64> = (0..values.len()).map(without).collect();
    let centre = left_out.iter().sum::<f64>() / left_out.len() as f64;
    let sum_of = |power| left_out.iter().map(|value| (centre - value).powi(power)).sum::<f64>();
    let squares = sum_of(2);
    if squares > 0.0 { sum_of(3) / (6.0 * squares.powf(1.5)) } else { 0.0 }
}

/// Returns the acceleration of the mean of the strata's means. A value's influence is its
/// difference from the mean of its stratum, divided by the number of strata.
fn acceleration_of_strata(strata: &[Vec<f64>]) -> f64 {
    let share = strata.len() as f64;
    let sum = |power: i32| {
        let of = |values: &Vec<f64>| {
            let (centre, count) = (mean(values), values.len() as f64);
            let moments = values.iter().map(|value| ((value - centre) / share).powi(power));
            moments.sum::<f64>() / count.powi(power)
        };
        strata.iter().map(of).sum::<f64>()
    };
    let squares = sum(2);
    if squares > 0.0 { sum(3) / (6.0 * squares.powf(1.5)) } else { 0.0 }
}

fn at_level(sorted: &[f64], level: f64) -> f64 {
    let place = level.clamp(0.0, 1.0) * (sorted.len() - 1) as f64;
    let below = sorted[place.floor() as usize];
    below + (sorted[place.ceil() as usize] - below) * place.fract()
}

#[cfg(test)]
mod tests {
    use super::{Bootstrap, Method, acceleration};

    /// Efron and Tibshirani (1993), chapter 14: the spatial test data, test A.
    const SPATIAL_TEST: [f64; 26] = [
        48.0, 36.0, 20.0, 29.0, 42.0, 42.0, 20.0, 42.0, 22.0, 41.0, 45.0, 14.0, 6.0, 0.0, 33.0,
        28.0, 34.0, 4.0, 32.0, 24.0, 47.0, 41.0, 24.0, 26.0, 30.0, 41.0,
    ];

    /// The statistic of that example: the variance with divisor n.
    fn variance(values: &[f64]) -> f64 {
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / values.len() as f64
    }

    fn ninety_percent(method: Method) -> (f64, f64) {
        let bootstrap =
            Bootstrap { method, confidence: 0.9, expanded: false, resamples: 40_000, seed: 3 };
        bootstrap.interval(&SPATIAL_TEST, variance).unwrap()
    }

    #[track_caller]
    fn check((low, high): (f64, f64), expected: (f64, f64)) {
        // The book's intervals come from 2,000 resamples, so an end varies by about 3.
        assert!((low - expected.0).abs() < 5.0 && (high - expected.1).abs() < 7.0, "{low}, {high}");
    }

    /// Table 14.2 of the book: estimate 171.5, acceleration 0.061, percentile interval 100.8 to
    /// 233.9, BCa interval 115.8 to 259.6.
    #[test]
    fn bootstrap_matches_the_spatial_test_data() {
        assert!((variance(&SPATIAL_TEST) - 171.5).abs() < 0.1);
        assert!((acceleration(&SPATIAL_TEST, &variance) - 0.061).abs() < 0.001);
        check(ninety_percent(Method::Percentile), (100.8, 233.9));
        check(ninety_percent(Method::Bca), (115.8, 259.6));
    }

    #[test]
    fn expanded_interval_is_wider_and_one_value_gives_none() {
        let plain = Bootstrap {
            method: Method::Percentile,
            confidence: 0.95,
            expanded: false,
            resamples: 4000,
            seed: 1,
        };
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
        let values = [1.0, 2.0, 3.0, 4.0, 7.0, 9.0];
        let (low, high) = plain.interval(&values, mean).unwrap();
        let expanded = Bootstrap { expanded: true, ..plain };
        let (lower, higher) = expanded.interval(&values, mean).unwrap();
        assert!(lower < low && higher > high);
        assert_eq!(plain.interval(&values, mean), Some((low, high)), "the seed decides");
        assert_eq!(plain.interval(&[1.0], mean), None);
        assert_eq!(Bootstrap { confidence: 1.0, ..plain }.interval(&values, mean), None);
    }
}
