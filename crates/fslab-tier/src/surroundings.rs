//! What the engine may not fetch itself: clocks, random numbers, and whose program it is.

use std::sync::Arc;

use fslab_vfs::{Attr, Clock, Timestamp};

use crate::id::Id;
use crate::stored::Marks;

/// Tells the time of day. Monotonic time comes from a [`Clock`].
pub trait Calendar: Send + Sync {
    /// Now.
    fn now(&self) -> Timestamp;
}

/// Makes identities that nobody else has.
pub trait Identities: Send + Sync {
    /// A new one.
    fn make(&self) -> Id;
}

/// What tells an inode below from every other one and from later uses of its number.
pub type Tell = fn(&Attr) -> Id;

/// Clocks, random numbers, and whose program this is.
#[derive(Clone)]
pub struct Surroundings {
    /// For waiting.
    pub clock: Arc<dyn Clock>,
    /// For dates in archives, ages and delays.
    pub calendar: Arc<dyn Calendar>,
    /// For new identities.
    pub identities: Arc<dyn Identities>,
    /// What an inode is known by: [`by_number_and_birth`], but in tests that move trees.
    pub tell: Tell,
    /// Whose xattrs tell where bytes are.
    pub marks: Marks,
}

impl std::fmt::Debug for Surroundings {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Surroundings").finish_non_exhaustive()
    }
}

/// An inode is its number and its time of birth, the generation that every `getattr` tells.
#[must_use]
pub fn by_number_and_birth(attr: &Attr) -> Id {
    let born = attr.created.unwrap_or_default();
    let mut id = [0; 16];
    id[..8].copy_from_slice(&attr.ino.0.to_le_bytes());
    let moment = born.seconds.wrapping_mul(1_000_000_000).wrapping_add(born.nanoseconds.into());
    id[8..].copy_from_slice(&moment.to_le_bytes());
    Id(id)
}
