//! Summary of a set of measured values. Outliers are included.

use serde::Serialize;

/// Summary of at least one value.
#[derive(Clone, Copy, Debug, Default, Serialize, PartialEq)]
pub struct Summary {
    /// Number of values.
    pub count: usize,
    /// Arithmetic mean.
    pub mean: f64,
    /// Standard deviation of the sample (divisor n - 1); 0 for a single value.
    pub standard_deviation: f64,
    /// Coefficient of variation: standard deviation divided by mean.
    pub variation: f64,
    /// The middle value, or the mean of the two middle ones.
    pub median: f64,
    /// The smallest value.
    pub minimum: f64,
    /// The largest value.
    pub maximum: f64,
}

impl Summary {
    /// Summarises the values; `None` if there are none.
    #[must_use]
    pub fn of(values: &[f64]) -> Option<Self> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (minimum, maximum) = (*sorted.first()?, *sorted.last()?);
        let mean = mean(values);
        let standard_deviation = variance(values).sqrt();
        Some(Self {
            count: values.len(),
            mean,
            standard_deviation,
            variation: if mean == 0.0 { 0.0 } else { standard_deviation / mean },
            median: median_of_sorted(&sorted),
            minimum,
            maximum,
        })
    }
}

/// Returns the arithmetic mean; NaN if there are no values.
pub(super) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Returns the sample variance; 0 for a single value.
pub(super) fn variance(values: &[f64]) -> f64 {
    let mean = mean(values);
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    squares / (values.len().max(2) - 1) as f64
}

/// Returns the middle value, or the mean of the two middle ones; `None` if there are no values.
pub(super) fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    (!sorted.is_empty()).then(|| median_of_sorted(&sorted))
}

fn median_of_sorted(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    if sorted.len().is_multiple_of(2) {
        f64::midpoint(sorted[middle - 1], sorted[middle])
    } else {
        sorted[middle]
    }
}

#[cfg(test)]
mod tests {
    use super::Summary;

    /// A textbook example: mean 5, sum of squares 32.
    #[test]
    fn result_matches_a_worked_example() {
        let summary = Summary::of(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]).unwrap();
        assert_eq!((summary.count, summary.mean, summary.median), (8, 5.0, 4.5));
        assert!((summary.standard_deviation - (32.0_f64 / 7.0).sqrt()).abs() < 1e-12);
        assert!((summary.variation - summary.standard_deviation / 5.0).abs() < 1e-12);
        assert_eq!((summary.minimum, summary.maximum), (2.0, 9.0));
    }

    #[test]
    fn summary_handles_few_values() {
        assert_eq!(Summary::of(&[]), None);
        let one = Summary::of(&[3.0]).unwrap();
        assert_eq!((one.mean, one.standard_deviation, one.median), (3.0, 0.0, 3.0));
        assert_eq!(Summary::of(&[3.0, 1.0, 2.0]).unwrap().median, 2.0);
    }
}
