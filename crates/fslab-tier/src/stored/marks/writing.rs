//! The xattr by which trees of one tier are told from each other: a tree that is made again of
//! archives has the tier's identity, and is another one than the tree that was there before.

use fslab_vfs::{Errno, FileSystem, Ino};

use super::{Marks, get, write_durably};
use crate::id::Id;
use crate::lower::own_request;
use crate::stored::format::WRITER_NAMES;

/// The tree was made of archives.
const REBUILT: u8 = 1;

/// Bytes of the xattr.
const LENGTH: usize = 33;

/// What a tree is known by to the archives that it writes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriterMark {
    /// Its identity.
    pub id: Id,
    /// Whether it was made of archives: another tree of the tier may be alive.
    pub is_rebuilt: bool,
    /// The inode of its root: who copies a tree with its xattrs copies this too, and has another.
    pub root: Id,
}

impl WriterMark {
    fn encode(self) -> [u8; LENGTH] {
        let mut value = [0; LENGTH];
        value[..16].copy_from_slice(&self.id.0);
        value[16] = if self.is_rebuilt { REBUILT } else { 0 };
        value[17..].copy_from_slice(&self.root.0);
        value
    }

    fn decode(value: &[u8]) -> Option<Self> {
        let value: &[u8; LENGTH] = value.try_into().ok()?;
        let (id, rest) = value.split_first_chunk()?;
        let (made, root) = rest.split_first()?;
        Some(Self { id: Id(*id), is_rebuilt: *made == REBUILT, root: Id(root.try_into().ok()?) })
    }
}

impl Marks {
    /// What a tree is known by; none if its root says nothing that can be read.
    ///
    /// # Errors
    /// Errors of the file system below.
    pub fn read_writer(self, fs: &dyn FileSystem) -> fslab_vfs::Result<Option<WriterMark>> {
        let value = get(fs, Ino::ROOT, self.choose(WRITER_NAMES))?;
        Ok(value.and_then(|value| WriterMark::decode(&value)))
    }

    /// Records durably what a tree is known by.
    ///
    /// # Errors
    /// `EPERM` where the tree belongs to another user; errors of the file system below.
    pub fn write_writer(self, fs: &dyn FileSystem, mark: WriterMark) -> fslab_vfs::Result<()> {
        if !self.are_believed(&fs.getattr(&own_request(), Ino::ROOT, None)?) {
            return Err(Errno::PERM.into());
        }
        write_durably(fs, self.choose(WRITER_NAMES), &mark.encode())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writer_mark_round_trips() {
        for is_rebuilt in [false, true] {
            let mark = WriterMark { id: Id([7; 16]), is_rebuilt, root: Id([9; 16]) };
            assert_eq!(WriterMark::decode(&mark.encode()), Some(mark));
        }
        for wrong in [&[][..], &[7; 32], &[7; 34]] {
            assert_eq!(WriterMark::decode(wrong), None, "{wrong:?}");
        }
    }
}
