//! Candidates for release, the least recently used first, in bounded memory.

use std::collections::BinaryHeap;

use fslab_vfs::{Ino, Timestamp};

/// A file whose bytes may go. The one that was used last is the greatest.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Candidate {
    pub(super) used: Timestamp,
    pub(super) ino: Ino,
    pub(super) path: Vec<u8>,
    /// What that would free, in bytes of space.
    pub(super) space: u64,
}

/// The next files of a tree, however many it has: each round takes those that were used longest
/// ago of what no round before has taken, and another walk finds those behind them.
#[derive(Debug)]
pub(super) struct Candidates {
    /// So many at once.
    most: usize,
    next: BinaryHeap<Candidate>,
    /// What was taken reaches as far as this one.
    behind: Option<Candidate>,
    /// There are more than are remembered.
    has_more: bool,
}

impl Candidates {
    pub(super) fn of(most: usize) -> Self {
        Self { most, next: BinaryHeap::new(), behind: None, has_more: false }
    }

    pub(super) fn add(&mut self, candidate: Candidate) {
        if self.behind.as_ref().is_some_and(|behind| candidate <= *behind) {
            return;
        }
        self.next.push(candidate);
        if self.next.len() > self.most {
            self.next.pop();
            self.has_more = true;
        }
    }

    /// Those that are next, in their order, and whether another walk finds more behind them.
    pub(super) fn take(&mut self) -> (Vec<Candidate>, bool) {
        let taken = std::mem::take(&mut self.next).into_sorted_vec();
        self.behind = taken.last().cloned().or_else(|| self.behind.take());
        (taken, std::mem::take(&mut self.has_more))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_come_in_their_order_however_few_are_remembered() {
        let candidate = |number: u64| Candidate {
            used: Timestamp { seconds: (number * 7 % 10) as i64, nanoseconds: 0 },
            ino: Ino(number),
            path: Vec::new(),
            space: 1,
        };
        let (mut candidates, mut order, mut walks) = (Candidates::of(3), Vec::new(), 0);
        loop {
            (0..10).map(candidate).for_each(|candidate| candidates.add(candidate));
            let (taken, has_more) = candidates.take();
            assert!(taken.len() <= 3);
            order.extend(taken.into_iter().map(|taken| taken.used.seconds));
            walks += 1;
            if !has_more {
                break;
            }
        }
        assert_eq!((order, walks), (Vec::from_iter(0..10), 4));
    }
}
