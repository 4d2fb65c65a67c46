//! What plugs into the queue: in which order recalls of one class and one user are served.

use crate::id::Id;

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
