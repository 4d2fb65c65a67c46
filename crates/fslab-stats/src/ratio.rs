//! Computes the ratio of two targets and its interval, from rounds in which both were measured.
//!
//! The estimate is the geometric mean of the rounds' ratios. Its interval is the expanded BCa
//! bootstrap interval of the mean of the logarithms. Its p-value is that of the paired t-test of
//! the logarithms (Student 1908). The bootstrap gives no p-value here, because 10,000 resamples
//! can't distinguish p-values below 0.0001. Holm's correction of a large report needs smaller ones.
//!
//! With fewer than [`FEWEST_FOR_BOOTSTRAP`] rounds, Student's interval of the logarithms is used
//! instead. A bootstrap interval can't cover 95 % with so few values: with probability 2^(1-n), all
//! n values lie on one side of the true ratio.

use serde::Serialize;
use statrs::distribution::{ContinuousCDF, StudentsT};

use super::bootstrap::{Bootstrap, Method};
use super::summary::{mean, variance};

/// Share of intervals that contain the true ratio.
pub const CONFIDENCE: f64 = 0.95;

const RESAMPLES: usize = 10_000;

const FEWEST_FOR_BOOTSTRAP: usize = 6;

/// Logarithms that differ by less than this are equal: the difference is a rounding error.
const EQUAL: f64 = 1e-12;

/// The ratio of a target's values to the baseline's, over rounds in which both were measured.
#[derive(Clone, Copy, Debug, Serialize, PartialEq)]
pub struct RatioInterval {
    /// Geometric mean of the rounds' ratios. Above 1, the target's values are greater.
    pub ratio: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
    /// Number of rounds.
    pub rounds: usize,
    /// Probability of a mean ratio at least this far from 1 if the targets do not differ.
    pub p_value: f64,
}

impl RatioInterval {
    /// Whether the interval excludes 1. An interval that contains 1 does not prove that there is no
    /// difference.
    #[must_use]
    pub fn shows_difference(&self) -> bool {
        self.high < 1.0 || self.low > 1.0
    }
}

/// Returns the ratio of paired values: target and baseline of one round. Returns `None` for fewer
/// than two pairs, which do not show the spread, and if a value is not positive.
#[must_use]
pub fn paired_ratio(pairs: &[(f64, f64)], seed: u64) -> Option<RatioInterval> {
    stratified_ratio(&[pairs.to_vec()], seed)
}

/// Returns the geometric mean of the ratios of several strata, such as machines. A stratum's ratio
/// comes from its own pairs. Each stratum has the same weight, for any number of pairs. A stratum
/// with fewer than two pairs does not show its spread and is left out. Returns `None` if no stratum
/// is left, or if a value is not positive.
///
/// The interval is a bootstrap interval; each stratum is resampled separately. If a stratum has
/// fewer than `FEWEST_FOR_BOOTSTRAP` pairs, Student's interval is used. The p-value is that of a
/// t-test with the degrees of freedom of Satterthwaite (1946).
#[must_use]
pub fn stratified_ratio(strata: &[Vec<(f64, f64)>], seed: u64) -> Option<RatioInterval> {
    let usable: Vec<&Vec<(f64, f64)>> = strata.iter().filter(|pairs| pairs.len() >= 2).collect();
    let rounds = usable.iter().map(|pairs| pairs.len()).sum();
    let logs: Vec<Vec<f64>> =
        usable.into_iter().map(|pairs| logarithms(pairs, 2)).collect::<Option<_>>()?;
    interval_of_logs(&logs, rounds, seed)
}

/// Returns the ratio that is expected on further clusters of this kind, such as machines: the
/// geometric mean of the clusters' ratios. Each cluster has the same weight, for any number of
/// pairs. With a single cluster, the result is that of [`paired_ratio`]. Returns `None` if a value
/// is not positive, or if no cluster has pairs.
///
/// The interval is a bootstrap interval of whole clusters (Davison and Hinkley 1997, section 3.8).
/// Its width depends on the spread of the clusters' ratios. In contrast, the interval of
/// [`stratified_ratio`] is valid only for the measured clusters. With fewer than
/// `FEWEST_FOR_BOOTSTRAP` clusters, Student's interval of the clusters' means is used. The
/// p-value is that of a t-test of these means.
#[must_use]
pub fn clustered_ratio(clusters: &[Vec<(f64, f64)>], seed: u64) -> Option<RatioInterval> {
    let usable: Vec<&Vec<(f64, f64)>> = clusters.iter().filter(|pairs| !pairs.is_empty()).collect();
    if let [only] = usable[..] {
        return paired_ratio(only, seed);
    }
    let of_cluster = |pairs: &&Vec<(f64, f64)>| logarithms(pairs, 1).map(|logs| mean(&logs));
    let means: Vec<f64> = usable.iter().map(of_cluster).collect::<Option<_>>()?;
    let rounds = usable.iter().map(|pairs| pairs.len()).sum();
    interval_of_logs(&[means], rounds, seed)
}

fn interval_of_logs(logs: &[Vec<f64>], rounds: usize, seed: u64) -> Option<RatioInterval> {
    let spread = Spread::of(logs)?;
    let (low, high) = spread.interval(logs, seed)?;
    let p_value = spread.p_value()?;
    let [ratio, low, high] = [spread.centre, low, high].map(f64::exp);
    Some(RatioInterval { ratio, low, high, rounds, p_value })
}

/// The mean of the strata's means, and its standard error.
struct Spread {
    centre: f64,
    error: f64,
    degrees: f64,
}

impl Spread {
    /// Computes the mean and its standard error, or `None` if there are no strata.
    fn of(strata: &[Vec<f64>]) -> Option<Self> {
        let count = strata.len() as f64;
        let centre = strata.iter().map(|values| mean(values)).sum::<f64>() / count;
        let squares = strata.iter().map(|values| variance(values) / values.len() as f64);
        let error = squares.clone().sum::<f64>().sqrt() / count;
        let weights = squares.zip(strata);
        let below = weights
            .map(|(square, values)| square.powi(2) / (values.len() as f64 - 1.0))
            .sum::<f64>();
        let least = strata.iter().map(|values| values.len() as f64 - 1.0).reduce(f64::min)?;
        let is_known = strata.len() == 1 || below == 0.0;
        let degrees = if is_known { least } else { (error * count).powi(4) / below };
        Some(Self { centre, error, degrees })
    }

    /// Returns half the width of Student's interval.
    fn half_width(&self) -> Option<f64> {
        let student = StudentsT::new(0.0, 1.0, self.degrees).ok()?;
        Some(student.inverse_cdf(f64::midpoint(1.0, CONFIDENCE)) * self.error)
    }

    fn interval(&self, strata: &[Vec<f64>], seed: u64) -> Option<(f64, f64)> {
        let half = self.half_width()?;
        let is_small = strata.iter().any(|values| values.len() < FEWEST_FOR_BOOTSTRAP);
        if half < EQUAL || is_small {
            return Some((self.centre - half, self.centre + half));
        }
        let bootstrap = Bootstrap {
            method: Method::Bca,
            confidence: CONFIDENCE,
            expanded: true,
            resamples: RESAMPLES,
            seed,
        };
        match strata {
            [values] => bootstrap.interval(values, mean),
            _ => bootstrap.interval_of_strata(strata, self.degrees),
        }
    }

    /// Returns the p-value of the two-sided t-test that the mean is 0.
    fn p_value(&self) -> Option<f64> {
        if self.error < EQUAL {
            return Some(if self.centre.abs() < EQUAL { 1.0 } else { 0.0 });
        }
        let student = StudentsT::new(0.0, 1.0, self.degrees).ok()?;
        Some(2.0 * student.cdf(-(self.centre / self.error).abs()))
    }
}

/// Returns half the width of Student's 95 % interval of the mean log ratio. The ratio may be wrong
/// by about this share in either direction. The stop rule adds rounds until this value is small
/// enough.
#[must_use]
pub fn half_width(pairs: &[(f64, f64)]) -> Option<f64> {
    Spread::of(&[logarithms(pairs, 2)?])?.half_width()
}

/// Returns the logarithms of the ratios; `None` for fewer than `least` pairs or a figure that is
/// not positive.
fn logarithms(pairs: &[(f64, f64)], least: usize) -> Option<Vec<f64>> {
    if pairs.len() < least || pairs.iter().any(|(target, base)| *target <= 0.0 || *base <= 0.0) {
        return None;
    }
    Some(pairs.iter().map(|(target, base)| (target / base).ln()).collect())
}

#[cfg(test)]
mod tests {
    use super::{
        RatioInterval, Spread, clustered_ratio, half_width, paired_ratio, stratified_ratio,
    };

    fn interval_of_mean(values: &[f64], seed: u64) -> Option<(f64, f64)> {
        let one = [values.to_vec()];
        Spread::of(&one)?.interval(&one, seed)
    }

    fn p_value(values: &[f64]) -> Option<f64> {
        Spread::of(&[values.to_vec()])?.p_value()
    }

    /// Returns pairs with this mean ratio and a variation of 1 %.
    fn pairs(count: usize, ratio: f64, base: f64) -> Vec<(f64, f64)> {
        let swing = |index: usize| 1.0 + 0.01 * (index % 3) as f64 - 0.01;
        (0..count).map(|index| (base * ratio * swing(index), base)).collect()
    }

    #[test]
    fn strata_have_equal_weight() {
        let strata = [pairs(6, 1.2, 1.0), pairs(60, 0.95, 1000.0)];
        let found = stratified_ratio(&strata, 1).unwrap();
        let expected = (1.2_f64 * 0.95).sqrt();
        assert!((found.ratio / expected - 1.0).abs() < 1e-3, "{found:?}");
        assert!(found.low < expected && expected < found.high, "{found:?}");
        assert_eq!(found.rounds, 66);
        // If each round had the same weight, the target would appear faster.
        assert!(found.low > 1.0 && found.p_value < 0.001, "{found:?}");
    }

    #[test]
    fn one_usable_stratum_equals_a_plain_ratio() {
        let one = pairs(8, 1.1, 3.0);
        let plain = paired_ratio(&one, 5);
        assert_eq!(stratified_ratio(std::slice::from_ref(&one), 5), plain);
        assert_eq!(stratified_ratio(&[one.clone(), vec![(9.0, 1.0)], Vec::new()], 5), plain);
        assert_eq!(stratified_ratio(&[vec![(1.0, 1.0)]], 5), None);
        assert_eq!(stratified_ratio(&[], 5), None);
        assert_eq!(stratified_ratio(&[one, vec![(0.0, 1.0); 3]], 5), None);
        let same = stratified_ratio(&[vec![(2.0, 1.0); 7], vec![(2.0, 1.0); 9]], 5).unwrap();
        assert!((same.ratio - 2.0).abs() < 1e-12 && same.p_value == 0.0, "{same:?}");
    }

    /// Within each cluster all ratios are equal, so the mean over strata has no error. The clusters
    /// differ, so the mean over clusters has an error. Calculated by hand for logarithms 1 and 3:
    /// mean 2, standard error 1, one degree of freedom.
    #[test]
    fn clustered_interval_reflects_the_spread_between_clusters() {
        let cluster = |log: f64, count: usize| vec![(log.exp(), 1.0); count];
        let clusters = [cluster(1.0, 9), cluster(3.0, 2)];
        let strata = stratified_ratio(&clusters, 1).unwrap();
        assert!((strata.high / strata.low - 1.0).abs() < 1e-9, "{strata:?}");
        let found = clustered_ratio(&clusters, 1).unwrap();
        assert!((found.ratio.ln() - 2.0).abs() < 1e-12 && found.rounds == 11, "{found:?}");
        assert!((found.low.ln() - (2.0 - 12.706_205)).abs() < 1e-4, "{found:?}");
        assert!((found.high.ln() - (2.0 + 12.706_205)).abs() < 1e-4, "{found:?}");
        // A single cluster gives the paired ratio, and a cluster may have only one pair.
        let one = pairs(8, 1.1, 3.0);
        assert_eq!(clustered_ratio(&[Vec::new(), one.clone()], 5), paired_ratio(&one, 5));
        assert!(clustered_ratio(&[one.clone(), cluster(0.0, 1)], 5).is_some());
        assert_eq!(clustered_ratio(&[one, vec![(0.0, 1.0)]], 5), None);
        assert_eq!(clustered_ratio(&[], 5), None);
    }

    /// For two strata of equal size and spread the test is Welch's t-test. Calculated by hand for
    /// strata with the logarithms 1, 3 and 5, 7: mean 4, standard error sqrt(1 + 1) / 2, two
    /// degrees of freedom.
    #[test]
    fn few_pairs_use_satterthwaites_interval() {
        let logs = |values: [f64; 2]| values.map(|value: f64| (value.exp(), 1.0)).to_vec();
        let found = stratified_ratio(&[logs([1.0, 3.0]), logs([5.0, 7.0])], 1).unwrap();
        let half = 4.302_653 * 0.5_f64.sqrt();
        assert!((found.low.ln() - (4.0 - half)).abs() < 1e-4, "{found:?}");
        assert!((found.high.ln() - (4.0 + half)).abs() < 1e-4, "{found:?}");
    }

    /// Gosset's sleep data: mean 1.58, Student's interval 0.700 to 2.460, p 0.002833. The
    /// bootstrap's interval is near Student's.
    #[test]
    fn interval_and_p_value_match_gossets_sleep_data() {
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
    fn interval_that_contains_1_shows_no_difference() {
        let interval =
            |low, high| RatioInterval { ratio: 1.0, low, high, rounds: 10, p_value: 0.5 };
        assert!(!interval(0.9, 1.1).shows_difference());
        assert!(!interval(1.0, 1.1).shows_difference());
        assert!(interval(1.01, 1.1).shows_difference());
        assert!(interval(0.8, 0.99).shows_difference());
    }
}
