//! The columns of a snapshot file, which `docs/formats/snapshot.md` describes.

use super::ExtentList;
use crate::table::{Kind, Number, row};

/// The kinds of entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EntryKind {
    /// A directory.
    Directory = 1,
    /// A regular file.
    #[default]
    File = 2,
    /// A symbolic link.
    Symlink = 3,
    /// A device, pipe or socket.
    Other = 4,
}

impl Number for EntryKind {
    const KIND: Kind = Kind::U32;

    fn to_cell(self) -> i64 {
        self as i64
    }

    fn from_cell(cell: i64) -> Result<Self, &'static str> {
        let all = [Self::Directory, Self::File, Self::Symlink, Self::Other];
        let found = all.into_iter().find(|kind| kind.to_cell() == cell);
        found.ok_or("its kind is not from 1 to 4")
    }
}

row! {
    /// The state of a file or directory in a snapshot. Only its owner may read a new snapshot file,
    /// because it contains names of other users' files.
    Entry: "snapshot" 2, mode 0o600, Entry::fit;
    // Each line contains the column's type, whether it has delta encoding, and the format version
    // that introduced it.
    numbers {
        /// The inode number; never 0, which means the root.
        inode: u64, true, 1;
        /// The inode number of its directory; 0 for the root.
        directory: u64, false, 1;
        /// The kind of entry.
        kind: EntryKind, false, 1;
        /// Size in bytes.
        size: u64, true, 1;
        /// Allocated space in bytes.
        stored: u64, true, 1;
        /// Time of the last change of the content, in nanoseconds since 1970.
        modified_ns: i64, true, 1;
        /// Time of the last change of the inode.
        changed_ns: i64, true, 1;
        /// Time of creation; 0 if unknown.
        born_ns: i64, true, 1;
        /// Permissions.
        mode: u32, false, 1;
        /// User ID of the owner.
        uid: u32, false, 1;
        /// Group ID.
        gid: u32, false, 1;
        /// Number of names (hard links).
        links: u32, false, 1;
        /// Number of allocated blocks; 0 if the layout was not recorded.
        blocks: u64, false, 1;
        /// Number of these blocks that do not follow their predecessor.
        breaks: u64, false, 1;
        /// The generation of the inode, which changes when the inode is reused; 0 if the file
        /// system does not report it.
        generation: u32, false, 2;
    }
    texts {
        /// The name of the file or directory.
        name, 1;
        /// The extents of the file, if they were recorded; see [`ExtentList`].
        extents, 2;
    }
}

impl Entry {
    /// Returns the sort key of snapshots: directories come first, then entries are sorted by inode.
    #[must_use]
    pub fn key(&self) -> (bool, u64) {
        (self.kind != EntryKind::Directory, self.inode)
    }

    /// Whether an entry of a later snapshot with the same inode is the same file. The inode was
    /// reused if its creation time or generation differs.
    #[must_use]
    pub fn is_same_file(&self, later: &Self) -> bool {
        let (generation, later_one) = (self.generation, later.generation);
        self.kind == later.kind
            && (self.born_ns == later.born_ns || self.born_ns == 0 || later.born_ns == 0)
            && (generation == later_one || generation == 0 || later_one == 0)
    }

    /// Checks the values of the entry and masks its mode.
    pub(super) fn fit(self) -> Result<Self, &'static str> {
        let beyond = |number: u64| number > i64::MAX as u64;
        if self.inode == 0 || [self.inode, self.directory, self.size].into_iter().any(beyond) {
            return Err("an inode number or the size exceeds 63 bits, or the inode is 0");
        }
        if !self.extents.is_empty() && ExtentList::parse(&self.extents).is_none() {
            return Err("its extents are not an ordered list of LOGICAL:PHYSICAL:LENGTH:FLAGS");
        }
        Ok(Self { mode: self.mode & 0o7777, ..self })
    }
}
