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

/// Where a recall is in the queue, with its number there. Numbers are in the order of arrival.
#[derive(Clone, Copy, Debug)]
pub(super) enum Place {
    Queued(u64),
    /// Postponed until a time of the engine's clock.
    Postponed(u64, u64),
}

/// An order in which recalls are served: the key by which they are sorted.
pub trait Order: Send + Sync + std::fmt::Debug {
    /// Returns the key of a recall at a position. The recall with the lowest key above that of the
    /// recall served before, of any class and user, comes next. If there is none, the order starts
    /// again from the lowest key. Recalls with equal keys are served in the order of the requests.
    fn key(&self, position: Position) -> Position;
}

/// First come, first served. This order fits archives in which all places are equally near.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fifo;

impl Order for Fifo {
    fn key(&self, _: Position) -> Position {
        Position::default()
    }
}

/// The recall at the next position comes next, first in the same container, then in the following
/// ones. After the last position the order starts again from the first. A bundle is thus read once
/// from beginning to end, in whatever order its files were requested.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sweep;

impl Order for Sweep {
    fn key(&self, position: Position) -> Position {
        position
    }
}
