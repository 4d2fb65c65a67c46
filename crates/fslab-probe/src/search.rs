//! Binary search for a change, and the majority value of counts.

use std::io;

/// Returns the smallest `x` in `low + 1 ..= high` for which `ask` returns true. `ask` must be
/// monotonic and return false for `low`. Returns `None` if `ask` also returns false for `high`.
///
/// # Errors
/// Returns errors of `ask`.
pub(super) fn first_true(
    low: u64,
    high: u64,
    mut ask: impl FnMut(u64) -> io::Result<bool>,
) -> io::Result<Option<u64>> {
    if high <= low || !ask(high)? {
        return Ok(None);
    }
    let (mut no, mut yes) = (low, high);
    while yes - no > 1 {
        let middle = no + (yes - no) / 2;
        if ask(middle)? {
            yes = middle;
        } else {
            no = middle;
        }
    }
    Ok(Some(yes))
}

/// Returns the value that more than half of the counts have.
pub(super) fn most_common(counts: impl IntoIterator<Item = u64>) -> Option<u64> {
    let mut counts: Vec<u64> = counts.into_iter().collect();
    counts.sort_unstable();
    let middle = counts.get(counts.len() / 2).copied()?;
    let agreeing = counts.iter().filter(|count| **count == middle).count();
    (2 * agreeing > counts.len()).then_some(middle)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_common_value_needs_a_majority() {
        assert_eq!(most_common([1, 1, 1, 2]), Some(1));
        assert_eq!(most_common([1, 1, 2, 2]), None);
        assert_eq!(most_common([0, 1, 2, 3]), None);
        assert_eq!(most_common([]), None);
    }

    fn first_above(limit: u64, low: u64, high: u64) -> Option<u64> {
        first_true(low, high, |x| Ok(x > limit)).unwrap()
    }

    #[test]
    fn first_true_value_is_found_at_every_position() {
        for limit in 0..20 {
            assert_eq!(first_above(limit, 0, 20), Some(limit + 1));
        }
        assert_eq!(first_above(20, 0, 20), None);
        assert_eq!(first_above(0, 5, 5), None);
        assert_eq!(first_above(u64::MAX - 1, 0, u64::MAX), Some(u64::MAX));
    }
}
