//! Tests whether a device has reached a steady state, following SNIA's Solid State Storage
//! Performance Test Specification.
//!
//! Over the last five rounds, the largest and smallest figure may differ by at most 20 % of the
//! mean. The least-squares line of the figures may rise or fall by at most 10 % of the mean.
//!
//! A fresh or trimmed flash device is fast until it has to erase blocks. Rounds before that do not
//! show its lasting speed. Paired ratios do not reveal this, because all targets drift alike.

use serde::Serialize;

/// Number of rounds that the test examines.
pub const WINDOW: usize = 5;

/// Maximum range and drift, as shares of the mean.
const RANGE_MOST: f64 = 0.20;
const DRIFT_MOST: f64 = 0.10;

/// The range and drift of the figures over the last rounds, as shares of their mean.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Steadiness {
    /// Greatest figure minus smallest figure.
    pub range: f64,
    /// Change of the fitted line from the first to the last round; negative if it falls.
    pub drift: f64,
}

impl Steadiness {
    /// Computes range and drift of the last [`WINDOW`] figures, one per round in order. Returns
    /// `None` if there are fewer, or if their mean is not a positive number.
    #[must_use]
    pub fn of(figures: &[f64]) -> Option<Self> {
        let last = figures.len().checked_sub(WINDOW).map(|start| &figures[start..])?;
        let count = WINDOW as f64;
        let mean = last.iter().sum::<f64>() / count;
        if !mean.is_finite() || mean <= 0.0 {
            return None;
        }
        let middle = (count - 1.0) / 2.0;
        let offsets = || (0..WINDOW).map(|round| round as f64 - middle);
        let covariance: f64 = offsets().zip(last).map(|(x, y)| x * (y - mean)).sum();
        let slope = covariance / offsets().map(|x| x * x).sum::<f64>();
        let greatest = last.iter().copied().fold(f64::MIN, f64::max);
        let smallest = last.iter().copied().fold(f64::MAX, f64::min);
        let drift = slope * (count - 1.0) / mean;
        Some(Self { range: (greatest - smallest) / mean, drift })
    }

    /// Whether the device is in the steady state that the specification requires before a
    /// measurement.
    #[must_use]
    pub fn is_steady(self) -> bool {
        self.range <= RANGE_MOST && self.drift.abs() <= DRIFT_MOST
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steadiness_needs_five_rounds_and_uses_the_last() {
        assert_eq!(Steadiness::of(&[1.0; 4]), None);
        assert_eq!(Steadiness::of(&[0.0; 5]), None);
        let after_a_slow_start = [9.0, 7.0, 2.0, 2.0, 2.0, 2.0, 2.0];
        let steady = Steadiness::of(&after_a_slow_start).unwrap();
        assert_eq!(steady, Steadiness { range: 0.0, drift: 0.0 });
        assert!(steady.is_steady());
    }

    #[test]
    fn range_and_drift_decide_steadiness() {
        // The figures 96, 98 ... 104 lie on a line, so range and drift are both 8 %.
        let rising = Steadiness::of(&[96.0, 98.0, 100.0, 102.0, 104.0]).unwrap();
        assert!((rising.range - 0.08).abs() < 1e-12 && (rising.drift - 0.08).abs() < 1e-12);
        assert!(rising.is_steady());
        let falling = Steadiness::of(&[106.0, 103.0, 100.0, 97.0, 94.0]).unwrap();
        assert!((falling.drift + 0.12).abs() < 1e-12);
        assert!(!falling.is_steady(), "drifts by 12 %");
        let jumping = Steadiness::of(&[100.0, 112.0, 88.0, 112.0, 88.0]).unwrap();
        assert!(!jumping.is_steady(), "ranges over 24 %: {jumping:?}");
    }
}
