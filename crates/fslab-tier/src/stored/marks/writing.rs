//! The xattr that distinguishes trees of one tier. A tree that is rebuilt from archives has the
//! tier's identity, but is not the original tree.

use fslab_vfs::{Errno, FileSystem, Ino};

use super::{Marks, get, write_durably};
use crate::id::Id;
use crate::lower::own_request;
use crate::stored::format::WRITER_NAMES;

/// The value of the byte in the xattr that marks a tree as rebuilt from archives.
const REBUILT: u8 = 1;

/// Length of the xattr in bytes.
const LENGTH: usize = 33;

/// The identity of a tree for the archives that it writes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriterMark {
    /// The identity of the tree.
    pub id: Id,
    /// Whether the tree was rebuilt from archives. If so, another tree of the tier may still be in
    /// use.
    pub is_rebuilt: bool,
    /// The inode of the root directory. A copy of the tree has the same xattrs, and so the same
    /// value here, but another inode.
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
    /// Returns the identity of a tree; `None` if its root has no valid xattr.
    ///
    /// # Errors
    /// Errors of the lower file system.
    pub fn read_writer(self, fs: &dyn FileSystem) -> fslab_vfs::Result<Option<WriterMark>> {
        let value = get(fs, Ino::ROOT, self.choose(WRITER_NAMES))?;
        Ok(value.and_then(|value| WriterMark::decode(&value)))
    }

    /// Records the identity of a tree durably.
    ///
    /// # Errors
    /// `EPERM` if the tree belongs to another user; errors of the lower file system.
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
