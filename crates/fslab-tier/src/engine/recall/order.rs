//! The order in which recalls are served: within one class and user, an [`Order`] picks the next
//! one.

use crate::id::Id;

/// How urgent a recall is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// A program waits for it.
    Waiting,
    /// It was asked for in advance.
    Bulk,
    /// It may be wanted soon.
    Ahead,
}

impl Class {
    /// Its word.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Bulk => "bulk",
            Self::Ahead => "ahead",
        }
    }
}

/// Where a block lies, as far as its archive tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The archive.
    pub archive: Id,
    /// What of it must be at hand: a cartridge.
    pub medium: u64,
    /// Where on that. Blocks are taken to lie behind each other as they are in their file.
    pub place: u64,
}

/// An order of recalls.
pub trait Order: Send + Sync + std::fmt::Debug {
    /// Which of those that wait comes next, from 0. They come as they were asked for, and there is
    /// one at least; `last` is where the one before them lay, of whatever class and user.
    fn next(&self, waiting: &mut dyn Iterator<Item = Position>, last: Option<Position>) -> usize;
}

/// What was asked for first comes first: right where all places are equally near.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fifo;

impl Order for Fifo {
    fn next(&self, _: &mut dyn Iterator<Item = Position>, _: Option<Position>) -> usize {
        0
    }
}

/// What lies behind the last one comes next, then the next container, and so on from the beginning
/// again: a bundle is read once from its beginning to its end, in whatever order its files were
/// asked for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sweep;

impl Order for Sweep {
    fn next(&self, waiting: &mut dyn Iterator<Item = Position>, last: Option<Position>) -> usize {
        let is_passed = |position: Position| Some(position) <= last;
        let nearest =
            waiting.enumerate().min_by_key(|(_, position)| (is_passed(*position), *position));
        nearest.map_or(0, |(index, _)| index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All in the order in which they are served.
    fn served(mut waiting: Vec<Position>, mut last: Option<Position>) -> Vec<Position> {
        let mut served = Vec::new();
        while !waiting.is_empty() {
            let next = waiting.remove(Sweep.next(&mut waiting.iter().copied(), last));
            last = Some(next);
            served.push(next);
        }
        served
    }

    #[test]
    fn a_sweep_reads_each_container_once_and_begins_where_the_last_one_was() {
        let at =
            |archive: u8, medium, place| Position { archive: Id([archive; 16]), medium, place };
        let asked = vec![at(2, 1, 5), at(1, 7, 9), at(1, 3, 8), at(1, 7, 2), at(1, 3, 4)];
        let sorted = [at(1, 3, 4), at(1, 3, 8), at(1, 7, 2), at(1, 7, 9), at(2, 1, 5)];
        assert_eq!(served(asked.clone(), None), sorted);
        let turned = [at(1, 7, 9), at(2, 1, 5), at(1, 3, 4), at(1, 3, 8), at(1, 7, 2)];
        assert_eq!(served(asked, Some(at(1, 7, 5))), turned);
    }
}
