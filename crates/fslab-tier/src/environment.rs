//! The inputs that callers pass to the engine: clocks, random identities, and the kind of trusted
//! xattrs.

use std::sync::Arc;

use fslab_vfs::{Attr, Clock};

pub use crate::calendar::Calendar;
use crate::id::Id;
pub use crate::id::Identities;
use crate::stored::Marks;

/// A function that returns the identity of an inode. It differs from those of all other inodes,
/// including later ones with the same number.
pub type InodeIdentity = fn(&Attr) -> Id;

/// Clocks, a source of random identities, and the kind of xattrs that the engine trusts.
#[derive(Clone)]
pub struct Environment {
    /// The monotonic clock for waits and time limits.
    pub clock: Arc<dyn Clock>,
    /// The calendar for dates in archives, and for ages and delays that are counted in days.
    pub calendar: Arc<dyn Calendar>,
    /// The source of new identities.
    pub identities: Arc<dyn Identities>,
    /// The function that identifies an inode: [`inode_by_number_and_birth`], except in tests that
    /// move trees.
    pub inode_identity: InodeIdentity,
    /// The xattrs that are trusted as residencies and marks.
    pub marks: Marks,
}

impl Environment {
    /// Returns whether a recorded identity is that of the inode with these attributes.
    #[must_use]
    pub fn is_of(&self, written: Id, attr: &Attr) -> bool {
        written == (self.inode_identity)(attr)
    }

    /// Returns whether a recorded identity is that of a tree's root directory with these
    /// attributes. If the birth time is known, only the birth time decides, because some file
    /// systems do not keep the inode numbers of directories. A copy of the tree has a later birth
    /// time.
    #[must_use]
    pub fn is_root(&self, written: Id, attr: &Attr) -> bool {
        let born = birth(written);
        self.is_of(written, attr) || (born != 0 && born == birth((self.inode_identity)(attr)))
    }
}

/// Identifies an inode by its number, which the lower file system keeps between sessions, and its
/// birth time. The birth time distinguishes it from earlier inodes with this number.
#[must_use]
pub fn inode_by_number_and_birth(attr: &Attr) -> Id {
    let born = attr.created.unwrap_or_default();
    let moment = born.seconds.wrapping_mul(1_000_000_000).wrapping_add(born.nanoseconds.into());
    let mut id = [0; 16];
    id[..8].copy_from_slice(&attr.number.to_le_bytes());
    id[8..].copy_from_slice(&moment.to_le_bytes());
    Id(id)
}

/// Returns the birth time in an identity; 0 if unknown.
fn birth(id: Id) -> u64 {
    (u128::from_le_bytes(id.0) >> 64) as u64
}
