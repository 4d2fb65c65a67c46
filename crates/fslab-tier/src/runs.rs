//! A set of block numbers as sorted, disjoint runs. It records which blocks of a file are offline.

use std::collections::BTreeMap;
use std::ops::Range;

/// A set of block numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Runs {
    /// Maps the first block of each run to the block after the run's last block. No two runs are
    /// adjacent.
    runs: BTreeMap<u64, u64>,
}

impl Runs {
    /// Returns an empty set.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns a set of one run.
    #[must_use]
    pub fn of(range: Range<u64>) -> Self {
        let mut runs = Self::new();
        runs.insert(range);
        runs
    }

    /// Returns whether the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Returns the number of blocks.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.iter().map(|run| run.end - run.start).sum()
    }

    /// Returns the number of runs.
    #[must_use]
    pub fn pieces(&self) -> usize {
        self.runs.len()
    }

    /// Returns the runs in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.runs.iter().map(|(start, end)| *start..*end)
    }

    /// Returns whether a block is in the set.
    #[must_use]
    pub fn contains(&self, block: u64) -> bool {
        self.runs.range(..=block).next_back().is_some_and(|(_, end)| *end > block)
    }

    /// Returns the first block of the set in a range.
    #[must_use]
    pub fn first_in(&self, range: Range<u64>) -> Option<u64> {
        if range.is_empty() {
            return None;
        }
        if self.contains(range.start) {
            return Some(range.start);
        }
        self.runs.range(range).next().map(|(start, _)| *start)
    }

    /// Returns whether any block of a range is in the set.
    #[must_use]
    pub fn meets(&self, range: Range<u64>) -> bool {
        self.first_in(range).is_some()
    }

    /// Returns the first block at or after `block` that is not in the set.
    #[must_use]
    pub fn end_of_run(&self, block: u64) -> u64 {
        let run = self.runs.range(..=block).next_back();
        run.map_or(block, |(_, end)| (*end).max(block))
    }

    /// Adds the blocks of a range.
    pub fn insert(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let (mut start, mut end) = (range.start, range.end);
        for (run_start, run_end) in self.take_met(start.saturating_sub(1), end.saturating_add(1)) {
            (start, end) = (start.min(run_start), end.max(run_end));
        }
        self.runs.insert(start, end);
    }

    /// Removes the blocks of a range.
    pub fn remove(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        for (run_start, run_end) in self.take_met(range.start, range.end) {
            if run_start < range.start {
                self.runs.insert(run_start, range.start);
            }
            if run_end > range.end {
                self.runs.insert(range.end, run_end);
            }
        }
    }

    /// Removes and returns the runs with blocks between `start` and `end`. `insert` widens the
    /// bounds by one, to include adjacent runs.
    fn take_met(&mut self, start: u64, end: u64) -> Vec<(u64, u64)> {
        let met = self.runs.range(..end).rev().take_while(|(_, run_end)| **run_end > start);
        let met: Vec<(u64, u64)> = met.map(|(start, end)| (*start, *end)).collect();
        for (start, _) in &met {
            self.runs.remove(start);
        }
        met
    }

    /// Keeps only blocks below `end`.
    pub fn cut(&mut self, end: u64) {
        self.remove(end..u64::MAX);
    }

    /// Returns the run with the fewest blocks.
    #[must_use]
    pub fn smallest(&self) -> Option<Range<u64>> {
        self.iter().min_by_key(|run| run.end - run.start)
    }

    /// Joins runs over the smallest gaps until at most `pieces` remain. The result contains at
    /// least the blocks of this set.
    #[must_use]
    pub fn joined(&self, pieces: usize) -> Self {
        let surplus = self.pieces().saturating_sub(pieces.max(1));
        let behind = self.iter().skip(1);
        let gaps = self.iter().zip(behind).map(|(run, next)| run.end..next.start);
        let mut gaps: Vec<_> = gaps.collect();
        gaps.sort_by_key(|gap| gap.end - gap.start);
        let mut joined = self.clone();
        gaps.into_iter().take(surplus).for_each(|gap| joined.insert(gap));
        joined
    }
}

impl FromIterator<Range<u64>> for Runs {
    fn from_iter<T: IntoIterator<Item = Range<u64>>>(ranges: T) -> Self {
        let mut runs = Self::new();
        ranges.into_iter().for_each(|range| runs.insert(range));
        runs
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rand::{RngExt, SeedableRng};

    use super::*;

    fn blocks(runs: &Runs) -> BTreeSet<u64> {
        runs.iter().flatten().collect()
    }

    #[test]
    fn runs_behave_like_a_set() {
        let mut random = rand_pcg::Pcg64::seed_from_u64(5);
        for _ in 0..200 {
            let (mut runs, mut set) = (Runs::new(), BTreeSet::new());
            for _ in 0..40 {
                let start = random.random_range(0..40_u64);
                let range = start..start + random.random_range(0..8);
                if random.random_bool(0.5) {
                    runs.insert(range.clone());
                    set.extend(range);
                } else {
                    runs.remove(range.clone());
                    set.retain(|block| !range.contains(block));
                }
                assert_eq!(blocks(&runs), set);
                let touch = runs.iter().zip(runs.iter().skip(1)).any(|(a, b)| a.end >= b.start);
                assert!(!touch, "{runs:?}");
                let probe = random.random_range(0..48);
                assert_eq!(runs.contains(probe), set.contains(&probe));
                assert_eq!(runs.first_in(probe..48), set.range(probe..48).next().copied());
                let end = (probe..).find(|block| !set.contains(block)).unwrap();
                assert_eq!(runs.end_of_run(probe), end);
            }
            assert_eq!(runs.count(), set.len() as u64);
            let joined = runs.joined(2);
            assert!(joined.pieces() <= 2 && blocks(&joined).is_superset(&set));
        }
    }
    /// A program that reads many parts of a large file can leave this many runs.
    #[test]
    fn runs_are_joined_across_their_smallest_gaps() {
        let runs: Runs = (0..200_000_u64).map(|run| run * 10..run * 10 + 5 + run % 2).collect();
        let joined = runs.joined(100_001);
        assert_eq!(joined.pieces(), 100_001);
        // Gaps after odd runs are smaller, and no gap follows the last run.
        assert_eq!(joined.count(), runs.count() + 4 * 99_999);
    }
}
