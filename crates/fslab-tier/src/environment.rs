//! What the engine may not fetch itself: clocks, random numbers, and whose program it is.

use std::sync::Arc;

use fslab_vfs::{Attr, Clock};

pub use crate::calendar::Calendar;
use crate::id::Id;
pub use crate::id::Identities;
use crate::stored::Marks;

/// What tells an inode below from every other one and from later uses of its number.
pub type InodeIdentity = fn(&Attr) -> Id;

/// Clocks, random numbers, and whose program this is.
#[derive(Clone)]
pub struct Environment {
    /// For waiting.
    pub clock: Arc<dyn Clock>,
    /// For dates in archives, ages and delays.
    pub calendar: Arc<dyn Calendar>,
    /// For new identities.
    pub identities: Arc<dyn Identities>,
    /// What an inode is known by: [`inode_by_number_and_birth`], but in tests that move trees.
    pub inode_identity: InodeIdentity,
    /// Whose xattrs tell where bytes are.
    pub marks: Marks,
}

impl Environment {
    /// Whether an identity that was written down is that of an inode.
    #[must_use]
    pub fn is_of(&self, written: Id, attr: &Attr) -> bool {
        written == (self.inode_identity)(attr)
    }

    /// The same of the root of a tree. Where its birth is known, that decides alone, as there are
    /// file systems on which numbers of directories don't last: a copy is born later.
    #[must_use]
    pub fn is_root(&self, written: Id, attr: &Attr) -> bool {
        let born = birth(written);
        self.is_of(written, attr) || (born != 0 && born == birth((self.inode_identity)(attr)))
    }
}

/// An inode is the number that the file system below knows it by in every session, and its time of
/// birth, which tells it from who had the number before.
#[must_use]
pub fn inode_by_number_and_birth(attr: &Attr) -> Id {
    let born = attr.created.unwrap_or_default();
    let moment = born.seconds.wrapping_mul(1_000_000_000).wrapping_add(born.nanoseconds.into());
    let mut id = [0; 16];
    id[..8].copy_from_slice(&attr.number.to_le_bytes());
    id[8..].copy_from_slice(&moment.to_le_bytes());
    Id(id)
}

/// The birth in an identity.
fn birth(id: Id) -> u64 {
    (u128::from_le_bytes(id.0) >> 64) as u64
}
