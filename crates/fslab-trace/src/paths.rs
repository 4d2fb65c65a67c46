//! Paths of inodes, learnt from the records that were read so far.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use fslab_vfs::{Ino, InodePaths, Operation, RenameMode};

use crate::escape::escape;
use crate::record::Record;

/// The known names of inodes.
#[derive(Debug, Default)]
pub struct Paths(InodePaths);

impl Paths {
    /// Updates the known names from a record.
    pub fn learn(&mut self, record: &Record) {
        if record.errno != 0 {
            return;
        }
        let (place, new_place) =
            (place(record.parent, &record.name), place(record.new_parent, &record.new_name));
        match (record.operation, place, new_place) {
            (Operation::Forget, ..) => {
                if let (Some(ino), Some(lookups)) = (record.inode, record.size) {
                    self.0.forget(Ino(ino), lookups);
                }
            }
            (Operation::Rename, Some(from), Some(to)) => {
                let mode = RenameMode::from_bits_retain(record.flags.unwrap_or(0));
                self.0.renamed(from, to, mode.contains(RenameMode::EXCHANGE));
            }
            (Operation::Unlink | Operation::Rmdir, Some(place), _) => self.0.removed(place),
            (_, place, new_place) => {
                if let (Some(ino), Some(place)) = (record.result_inode, new_place.or(place)) {
                    self.0.learn(Ino(ino), Some(place));
                }
            }
        }
    }

    /// Returns the path of an inode from the root; `None` if no record has shown it.
    #[must_use]
    pub fn of(&self, ino: u64) -> Option<String> {
        self.bytes_of(ino).map(|path| escape(&path))
    }

    /// Like [`Self::of`], but returns the path as bytes.
    pub(crate) fn bytes_of(&self, ino: u64) -> Option<Vec<u8>> {
        self.0.of(Ino(ino))
    }
}

fn place(parent: Option<u64>, name: &Option<Vec<u8>>) -> Option<(Ino, &OsStr)> {
    Some((Ino(parent?), OsStr::from_bytes(name.as_deref()?)))
}
