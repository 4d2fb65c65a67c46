//! The order in which recalls are served. Within one class and user, an [`Order`] picks the next
//! one.

use crate::id::Id;

/// How urgent a recall is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// A program waits for the block.
    Waiting,
    /// The block was requested in advance.
    Bulk,
    /// The block is read ahead and may be needed soon.
    Ahead,
}

impl Class {
    /// Returns the name of the class.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Bulk => "bulk",
            Self::Ahead => "ahead",
        }
    }
}

/// The position of a block, as far as its archive reports it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The archive.
    pub archive: Id,
    /// The medium that must be loaded, for example a cartridge.
    pub medium: u64,
    /// The place on the medium. Blocks are assumed to lie in the order of their file.
    pub place: u64,
}

/// An order in which recalls are served.
pub trait Order: Send + Sync + std::fmt::Debug {
    /// Returns the index of the next recall among `waiting`, which is not empty and in the order of
    /// the requests. `last` is the position of the recall served before, of any class and user.
    fn next(&self, waiting: &mut dyn Iterator<Item = Position>, last: Option<Position>) -> usize;
}

/// First come, first served. This order fits archives in which all places are equally near.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fifo;

impl Order for Fifo {
    fn next(&self, _: &mut dyn Iterator<Item = Position>, _: Option<Position>) -> usize {
        0
    }
}

/// The recall at the next position comes next, first in the same container, then in the following
/// ones. After the last position the order starts again from the first. A bundle is thus read once
/// from beginning to end, in whatever order its files were requested.
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

    /// Returns all positions in the order in which they are served.
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
    fn sweep_serves_positions_in_order_from_the_last_position() {
        let at =
            |archive: u8, medium, place| Position { archive: Id([archive; 16]), medium, place };
        let asked = vec![at(2, 1, 5), at(1, 7, 9), at(1, 3, 8), at(1, 7, 2), at(1, 3, 4)];
        let sorted = [at(1, 3, 4), at(1, 3, 8), at(1, 7, 2), at(1, 7, 9), at(2, 1, 5)];
        assert_eq!(served(asked.clone(), None), sorted);
        let turned = [at(1, 7, 9), at(2, 1, 5), at(1, 3, 4), at(1, 3, 8), at(1, 7, 2)];
        assert_eq!(served(asked, Some(at(1, 7, 5))), turned);
    }
}
