//! The order in which recalls are served. Within one class and user, an [`Order`] chooses the next
//! recall.

use crate::id::Id;

/// The urgency of a recall, from most to least urgent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// A program waits for the block in a system call, such as a read.
    Waiting,
    /// The block was requested by a command or by the engine itself.
    Bulk,
    /// The block is read ahead, because a program may need it soon.
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
    /// The address on the medium. If the archive does not know addresses, this is the offset in the
    /// container.
    pub place: u64,
}

/// The entry of a recall in the queue. Entries are numbered in the order of their arrival.
#[derive(Clone, Copy, Debug)]
pub(super) enum Place {
    Queued(u64),
    /// Postponed until a time of the engine's clock in nanoseconds; the second value is the number.
    Postponed(u64, u64),
}

/// An order in which recalls are served, defined by a sort key.
pub trait Order: Send + Sync + std::fmt::Debug {
    /// Returns the sort key of a recall at a position. The next recall is the one with the lowest
    /// key above that of the last served recall, which may have another class or user. If no key is
    /// above it, the lowest key comes next. Recalls with equal keys are served in the order of
    /// their requests.
    fn key(&self, position: Position) -> Position;
}

/// First come, first served. This order fits archives in which all positions are equally fast to
/// access.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fifo;

impl Order for Fifo {
    fn key(&self, _: Position) -> Position {
        Position::default()
    }
}

/// Serves recalls by ascending position. After the highest position, the lowest one comes next. So
/// a bundle is read once from beginning to end, regardless of the order of the requests.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sweep;

impl Order for Sweep {
    fn key(&self, position: Position) -> Position {
        position
    }
}
