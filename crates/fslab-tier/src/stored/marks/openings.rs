//! The xattr that distinguishes copies of one tree. A clone of the tree's volume has all xattrs of
//! the tree, and the same inode of the root. This is also true of a tree that was rolled back to a
//! snapshot.
//!
//! Each opening of an archive for writing has a random identity, which both the tree and the
//! archive store. The tree also stores the previous one, because after a crash the archive may have
//! either.

use fslab_vfs::{FileSystem, Ino};

use super::{Marks, get, write_durably};
use crate::id::Id;
use crate::stored::format::{COPIES_MAX, OPENINGS_NAMES};

/// Length of the entry of one archive in bytes.
const LENGTH: usize = 48;

/// A tree's record of an archive that it opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opening {
    /// The archive.
    pub archive: Id,
    /// The identity of the opening before the last one. After a crash, the archive may still store
    /// it.
    pub before: Id,
    /// The identity of the last opening.
    pub last: Id,
}

impl Opening {
    fn encode(self) -> [u8; LENGTH] {
        let mut value = [0; LENGTH];
        for (place, id) in value.chunks_exact_mut(16).zip([self.archive, self.before, self.last]) {
            place.copy_from_slice(&id.0);
        }
        value
    }

    fn decode(value: &[u8; LENGTH]) -> Self {
        let (ids, _) = value.as_chunks::<16>();
        Self { archive: Id(ids[0]), before: Id(ids[1]), last: Id(ids[2]) }
    }
}

impl Marks {
    /// Returns a tree's records of the archives that it opened; empty if there is no valid xattr.
    ///
    /// # Errors
    /// Errors of the lower file system.
    pub fn read_openings(self, fs: &dyn FileSystem) -> fslab_vfs::Result<Vec<Opening>> {
        let value = get(fs, Ino::ROOT, self.choose(OPENINGS_NAMES))?.unwrap_or_default();
        let (entries, rest) = value.as_chunks::<LENGTH>();
        let is_whole = rest.is_empty();
        Ok(entries.iter().filter(|_| is_whole).map(Opening::decode).collect())
    }

    /// Records durably that a tree opens an archive. If there are too many archives, the records of
    /// the least recently opened ones are dropped.
    ///
    /// # Errors
    /// Errors of the lower file system.
    pub fn write_opening(self, fs: &dyn FileSystem, opening: Opening) -> fslab_vfs::Result<()> {
        let mut known = self.read_openings(fs)?;
        known.retain(|other| other.archive != opening.archive);
        known.push(opening);
        let surplus = known.len().saturating_sub(COPIES_MAX);
        let value: Vec<u8> = known[surplus..].iter().flat_map(|known| known.encode()).collect();
        write_durably(fs, self.choose(OPENINGS_NAMES), &value)
    }
}

#[cfg(test)]
mod tests {
    use fslab_vfs::MemFs;

    use super::*;

    fn opening(number: u8) -> Opening {
        Opening { archive: Id([number; 16]), before: Id([7; 16]), last: Id([8; 16]) }
    }

    #[test]
    fn latest_openings_are_stored_up_to_a_limit() {
        let (fs, marks) = (MemFs::default(), Marks::Trusted);
        let write = |opening| marks.write_opening(&fs, opening).unwrap();
        let read = || marks.read_openings(&fs).unwrap();
        assert_eq!(read(), []);
        [opening(1), opening(2)].into_iter().for_each(write);
        let again = Opening { last: Id([9; 16]), ..opening(1) };
        write(again);
        assert_eq!(read(), [opening(2), again]);
        (0..COPIES_MAX as u8).for_each(|number| write(opening(10 + number)));
        assert_eq!(read()[0], opening(10));
        assert_eq!(read().len(), COPIES_MAX);
    }
}
