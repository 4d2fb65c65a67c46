//! The ratio of two targets with its interval, from rounds in which both were measured.
//!
//! The estimate is the geometric mean of the rounds' ratios; its interval is the expanded BCa
//! bootstrap's of the mean of the logarithms, its p-value that of the paired t-test of the
//! logarithms (Student 1908): a bootstrap of 10,000 resamples can't tell p-values below 0.0001,
//! and Holm's correction over a large report asks for smaller ones.
//!
//! Below [`FEWEST_FOR_BOOTSTRAP`] rounds no interval made of resampled values can cover 95 %
//! (all values lie on one side of the truth with probability 2^(1-n)); there, Student's interval
//! of the logarithms is used.

use serde::Serialize;
use statrs::distribution::{ContinuousCDF, StudentsT};

use super::bootstrap::{Bootstrap, Method};
use super::summary::{mean, variance};

/// What share of intervals holds the true ratio.
pub const CONFIDENCE: f64 = 0.95;

const RESAMPLES: usize = 10_000;

const FEWEST_FOR_BOOTSTRAP: usize = 6;

/// Logarithms that differ by less are equal: the rest is rounding.
const EQUAL: f64 = 1e-12;

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
    /// How probable a mean this far from 1 is where there is no difference.
    pub p_value: f64,
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
    let logs = logarithms(pairs)?;
    let (low, high) = interval_of_mean(&logs, seed)?;
    Some(RatioInterval {
        ratio: mean(&logs).exp(),
        low: low.exp(),
        high: high.exp(),
        rounds: pairs.len(),
        p_value: p_value(&logs)?,
    })
}

/// Half the width of the 95 % interval of the mean log ratio, by Student's quantile: about the
/// share by which the ratio may be wrong either way. What a stop rule looks at.
#[must_use]
pub fn half_width(pairs: &[(f64, f64)]) -> Option<f64> {
    student_half_width(&logarithms(pairs)?)
}

fn logarithms(pairs: &[(f64, f64)]) -> Option<Vec<f64>> {
    if pairs.len() < 2 || pairs.iter().any(|(target, base)| *target <= 0.0 || *base <= 0.0) {
        return None;
    }
    Some(pairs.iter().map(|(target, base)| (target / base).ln()).collect())
}

fn interval_of_mean(values: &[f64], seed: u64) -> Option<(f64, f64)> {
    let (centre, half) = (mean(values), student_half_width(values)?);
    if half < EQUAL || values.len() < FEWEST_FOR_BOOTSTRAP {
        return Some((centre - half, centre + half));
    }
    let bootstrap = Bootstrap {
        method: Method::Bca,
        confidence: CONFIDENCE,
        expanded: true,
        resamples: RESAMPLES,
        seed,
    };
    bootstrap.interval(values, mean)
}

fn student_half_width(values: &[f64]) -> Option<f64> {
    let student = StudentsT::new(0.0, 1.0, values.len() as f64 - 1.0).ok()?;
    Some(student.inverse_cdf(f64::midpoint(1.0, CONFIDENCE)) * standard_error(values))
}

fn standard_error(values: &[f64]) -> f64 {
    (variance(values) / values.len() as f64).sqrt()
}

/// Of the two-sided t-test that the mean is 0.
fn p_value(values: &[f64]) -> Option<f64> {
    let (centre, error) = (mean(values), standard_error(values));
    if error < EQUAL {
        return Some(if centre.abs() < EQUAL { 1.0 } else { 0.0 });
    }
    let student = StudentsT::new(0.0, 1.0, values.len() as f64 - 1.0).ok()?;
    Some(2.0 * student.cdf(-(centre / error).abs()))
}

#[cfg(test)]
mod tests {
    use super::{RatioInterval, half_width, interval_of_mean, p_value, paired_ratio};

    /// Gosset's sleep data: mean 1.58, and 0.700 to 2.460 by Student's interval, p 0.002833; the
    /// bootstrap's interval is near it.
    #[test]
    fn gossets_sleep_data() {
        let hours = [1.2, 2.4, 1.3, 1.3, 0.0, 1.0, 1.8, 0.8, 4.6, 1.4];
        let (low, high) = interval_of_mean(&hours, 1).unwrap();
        assert!((0.6..1.1).contains(&low), "{low}");
        assert!((2.3..3.1).contains(&high), "{high}");
        assert!((p_value(&hours).unwrap() - 0.002_833).abs() < 1e-6, "{:?}", p_value(&hours));
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
        assert!((same.ratio - 2.0).abs() < 1e-12 && (same.high - same.low).abs() < 1e-9);
        assert!(same.shows_difference() && same.p_value == 0.0);
        assert_eq!(paired_ratio(&[(1.0, 1.0); 8], 1).unwrap().p_value, 1.0);
        assert_eq!(paired_ratio(&[(2.0, 1.0)], 1), None);
        assert_eq!(paired_ratio(&[(0.0, 1.0), (1.0, 1.0)], 1), None);
        assert_eq!(half_width(&[(2.0, 1.0)]), None);
    }

    #[test]
    fn an_interval_that_holds_1_shows_no_difference() {
        let interval =
            |low, high| RatioInterval { ratio: 1.0, low, high, rounds: 10, p_value: 0.5 };
        assert!(!interval(0.9, 1.1).shows_difference());
        assert!(!interval(1.0, 1.1).shows_difference());
        assert!(interval(1.01, 1.1).shows_difference());
        assert!(interval(0.8, 0.99).shows_difference());
    }
}
