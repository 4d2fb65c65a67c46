//! A set of numbers as ranges.

use std::collections::BTreeMap;
use std::ops::Range;

/// A set of numbers, stored as ranges that neither overlap nor touch. So inserting the same numbers
/// again adds no range.
#[derive(Debug, Default)]
pub struct Ranges {
    /// The end of each range, by its start.
    ends: BTreeMap<u64, u64>,
}

impl Ranges {
    pub fn insert(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let Range { mut start, mut end } = range;
        while let Some((known, until)) = self.last_up_to(end).filter(|(_, until)| *until >= start) {
            self.ends.remove(&known);
            (start, end) = (start.min(known), end.max(until));
        }
        self.ends.insert(start, end);
    }

    pub fn contains(&self, number: u64) -> bool {
        self.last_up_to(number).is_some_and(|(_, end)| number < end)
    }

    fn last_up_to(&self, start: u64) -> Option<(u64, u64)> {
        self.ends.range(..=start).next_back().map(|(start, end)| (*start, *end))
    }
}

#[cfg(test)]
mod tests {
    use fslab_vfs_testing::environment::cases;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(cases(256))]
        #[test]
        fn ranges_are_a_set(inserted in prop::collection::vec((0..60_u64, 0..12_u64), 0..40)) {
            let (mut ranges, mut set) = (Ranges::default(), [false; 80]);
            for (start, length) in inserted {
                ranges.insert(start..start + length);
                set[start as usize..(start + length) as usize].fill(true);
            }
            for (number, is_in) in (0..).zip(set) {
                prop_assert_eq!(ranges.contains(number), is_in);
            }
            let runs = set.chunk_by(|one, other| one == other).filter(|run| run[0]).count();
            prop_assert_eq!(ranges.ends.len(), runs);
        }
    }

    /// A walk over a crafted file may insert millions of overlapping ranges, one for each frame.
    #[test]
    fn overlapping_ranges_are_stored_as_one() {
        let mut ranges = Ranges::default();
        for start in (0..1000).chain((0..1000).rev()) {
            ranges.insert(start..u64::MAX);
        }
        assert_eq!(ranges.ends.len(), 1);
    }
}
