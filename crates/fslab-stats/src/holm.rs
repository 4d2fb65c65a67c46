//! Holm's correction for many comparisons in one report.

/// Returns the p-values adjusted by the step-down rule of Holm (1979), in the order given.
///
/// If each comparison with an adjusted p-value below 0.05 is reported as a difference, at most one
/// report in twenty contains any wrong difference. This holds for any dependence between the
/// comparisons.
#[must_use]
pub fn holm(p_values: &[f64]) -> Vec<f64> {
    let count = p_values.len();
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_by(|a, b| p_values[*a].total_cmp(&p_values[*b]));
    let mut adjusted = vec![0.0; count];
    let mut so_far: f64 = 0.0;
    for (rank, index) in order.into_iter().enumerate() {
        so_far = so_far.max(p_values[index] * (count - rank) as f64).min(1.0);
        adjusted[index] = so_far;
    }
    adjusted
}

#[cfg(test)]
mod tests {
    use super::holm;

    #[track_caller]
    fn check(p_values: &[f64], expected: &[f64]) {
        let adjusted = holm(p_values);
        let near = |(a, b): (&f64, &f64)| (a - b).abs() < 1e-12;
        assert!(adjusted.iter().zip(expected).all(near), "{adjusted:?}, not {expected:?}");
        assert_eq!(adjusted.len(), expected.len());
    }

    /// The usual worked example: 0.005 and 0.01 remain below 0.05, the other two do not. The
    /// largest p-value, 0.04, becomes 0.06, because an adjusted value may not be below the one
    /// before it.
    #[test]
    fn result_matches_a_worked_example() {
        check(&[0.01, 0.04, 0.03, 0.005], &[0.03, 0.06, 0.06, 0.02]);
    }

    #[test]
    fn empty_single_and_extreme_p_values_are_adjusted() {
        check(&[], &[]);
        check(&[0.2], &[0.2]);
        check(&[0.9, 0.8, 0.0], &[1.0, 1.0, 0.0]);
    }
}
