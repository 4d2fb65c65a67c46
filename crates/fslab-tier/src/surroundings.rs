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
pub struct Surroundings {
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

impl std::fmt::Debug for Surroundings {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Surroundings").finish_non_exhaustive()
    }
}

impl Surroundings {
    /// Whether an identity that was written down is that of an inode.
    #[must_use]
    pub fn is_of(&self, written: Id, attr: &Attr) -> bool {
        let present = (self.inode_identity)(attr);
        written == present || is_earlier_form(written, present)
    }
}

impl Surroundings {
    /// The same of the root of a tree. Where its birth is known, that decides alone, as there are
    /// file systems on which numbers of directories don't last: a copy is born later.
    #[must_use]
    pub fn is_root(&self, written: Id, attr: &Attr) -> bool {
        let ((_, born), (_, present)) = (halves(written), halves((self.inode_identity)(attr)));
        self.is_of(written, attr) || (born != 0 && born == present)
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

/// Whether an identity is one that earlier versions wrote of an inode that has another one now.
///
/// They took the number that a session shows, which on devices other than the root's tells the
/// order in which these were met, and bit 63. There the birth decides alone: what a residency is
/// copied to is born after the file was archived.
fn is_earlier_form(written: Id, present: Id) -> bool {
    const OF_A_SESSION: u64 = 1 << 63;
    let ((number, born), (_, present_born)) = (halves(written), halves(present));
    number & OF_A_SESSION != 0 && born != 0 && born == present_born
}

/// Number and birth.
fn halves(id: Id) -> (u64, u64) {
    let both = u128::from_le_bytes(id.0);
    (both as u64, (both >> 64) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u64, born: u64) -> Id {
        Id((u128::from(born) << 64 | u128::from(number)).to_le_bytes())
    }

    #[test]
    fn inode_identity_of_earlier_versions_is_recognised() {
        let other = 1 << 48 | 77;
        let composed = |device: u64, number: u64| 1 << 63 | device << 48 | number;
        for (written, present, is_same) in [
            (id(composed(1, 77), 5), id(other, 5), true),
            // A volume of a number above 65535 lies over all bits.
            (id(composed(9, 77), 5), id(300 << 48 | 78, 5), true),
            (id(composed(1, 77), 6), id(other, 5), false),
            // On the root's device numbers were always the own ones.
            (id(77, 5), id(other, 5), false),
            (id(0xffff << 48 | 3, 5), id(77, 5), true),
            (id(0xffff << 48 | 3, 6), id(77, 5), false),
            (id(0xffff << 48 | 3, 0), id(77, 0), false),
        ] {
            assert_eq!(is_earlier_form(written, present), is_same, "{written} {present}");
        }
    }
}
