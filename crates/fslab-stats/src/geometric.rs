//! The geometric mean of ratios. The spread is always given too, because the mean alone hides how
//! much the workloads differ.

use serde::Serialize;

use super::summary::{mean, variance};

/// The geometric mean of ratios, and their spread.
#[derive(Clone, Copy, Debug, Serialize, PartialEq)]
pub struct GeometricMean {
    /// Number of ratios.
    pub count: usize,
    /// Geometric mean of the ratios.
    pub mean: f64,
    /// Geometric standard deviation. About two thirds of the ratios lie between `mean / spread` and
    /// `mean * spread`.
    pub spread: f64,
    /// The smallest ratio.
    pub least: f64,
    /// The largest ratio.
    pub most: f64,
}

impl GeometricMean {
    /// Summarises at least two ratios above 0; `None` otherwise.
    #[must_use]
    pub fn of(ratios: &[f64]) -> Option<Self> {
        if ratios.len() < 2 || ratios.iter().any(|ratio| *ratio <= 0.0) {
            return None;
        }
        let logs: Vec<f64> = ratios.iter().map(|ratio| ratio.ln()).collect();
        Some(Self {
            count: ratios.len(),
            mean: mean(&logs).exp(),
            spread: variance(&logs).sqrt().exp(),
            least: ratios.iter().copied().fold(f64::INFINITY, f64::min),
            most: ratios.iter().copied().fold(0.0, f64::max),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::GeometricMean;

    /// Fleming and Wallace (1986): only the geometric mean gives the reciprocal when baseline and
    /// target are exchanged. The logarithms of 1/4, 1 and 4 have standard deviation ln 4.
    #[test]
    fn result_matches_a_worked_example() {
        let mean = GeometricMean::of(&[0.25, 1.0, 4.0]).unwrap();
        assert!((mean.mean - 1.0).abs() < 1e-12 && (mean.spread - 4.0).abs() < 1e-12);
        assert_eq!((mean.count, mean.least, mean.most), (3, 0.25, 4.0));
        let there = GeometricMean::of(&[2.0, 3.0, 5.0]).unwrap();
        let back = GeometricMean::of(&[1.0 / 2.0, 1.0 / 3.0, 1.0 / 5.0]).unwrap();
        assert!((there.mean * back.mean - 1.0).abs() < 1e-12);
        assert!((there.mean - 30_f64.cbrt()).abs() < 1e-12);
    }

    #[test]
    fn one_ratio_gives_no_geometric_mean() {
        assert_eq!(GeometricMean::of(&[2.0]), None);
        assert_eq!(GeometricMean::of(&[2.0, 0.0]), None);
    }
}
