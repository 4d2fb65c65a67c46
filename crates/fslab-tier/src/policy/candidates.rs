//! Candidates for release, the least recently used first, in bounded memory.

use std::collections::BinaryHeap;

use fslab_vfs::{Ino, Timestamp};

/// A file that may be released. Candidates are ordered by their last use, the least recently used
/// first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Candidate {
    pub(super) used: Timestamp,
    pub(super) ino: Ino,
    pub(super) path: Vec<u8>,
    /// Space that a release would free, in bytes.
    pub(super) space: u64,
}

/// The next candidates of a tree with any number of files. Each walk of the tree finds the least
/// recently used files that were not taken after an earlier walk.
#[derive(Debug)]
pub(super) struct Candidates {
    /// Maximum number of candidates held at once.
    most: usize,
    next: BinaryHeap<Candidate>,
    /// The last candidate that was taken.
    behind: Option<Candidate>,
    /// Whether a walk found more candidates than are held.
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

    /// Takes the held candidates in their order. Also returns whether another walk would find more.
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
    fn candidates_are_taken_in_order_of_use_in_bounded_memory() {
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
