//! The columns of a snapshot; described in `docs/formats/snapshot.md`.

use super::ExtentList;
use crate::table::{Kind, Number, row};

/// What something is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EntryKind {
    /// A directory.
    Directory = 1,
    /// A regular file.
    #[default]
    File = 2,
    /// A symbolic link.
    Symlink = 3,
    /// A device, a pipe, a socket.
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
        found.ok_or("its kind is none of 1 to 4")
    }
}

row! {
    /// A file or directory at the time of a snapshot. A snapshot has names of others' files, so
    /// only its owner may read it.
    Entry: "snapshot" 2, mode 0o600, Entry::fit;
    // Whether it rises, and since which version.
    numbers {
        /// Its inode number; not 0, which stands for the root.
        inode: u64, true, 1;
        /// The inode number of its directory, 0 for the root.
        directory: u64, false, 1;
        /// What it is.
        kind: EntryKind, false, 1;
        /// Size in bytes.
        size: u64, true, 1;
        /// Space it takes, in bytes.
        stored: u64, true, 1;
        /// Last change of the contents, in nanoseconds since 1970.
        modified_ns: i64, true, 1;
        /// Last change of the inode.
        changed_ns: i64, true, 1;
        /// Creation; 0 where nobody knows.
        born_ns: i64, true, 1;
        /// Permissions.
        mode: u32, false, 1;
        /// Owner.
        uid: u32, false, 1;
        /// Group.
        gid: u32, false, 1;
        /// Names.
        links: u32, false, 1;
        /// Blocks that have a place; 0 where nobody looked.
        blocks: u64, false, 1;
        /// Those of them that do not follow their predecessor.
        breaks: u64, false, 1;
        /// The generation of its inode, which is another when the inode is used again; 0 where the
        /// file system does not tell.
        generation: u32, false, 2;
    }
    texts {
        /// Its name.
        name, 1;
        /// Where it lies, where that was asked for: see [`ExtentList`].
        extents, 2;
    }
}

impl Entry {
    /// What snapshots are sorted by: directories first, then the inode.
    #[must_use]
    pub fn key(&self) -> (bool, u64) {
        (self.kind != EntryKind::Directory, self.inode)
    }

    /// Whether this and an entry of a later snapshot with the same inode are one file: an inode
    /// whose birth or generation is another is used again.
    #[must_use]
    pub fn is_same_file(&self, later: &Self) -> bool {
        let (generation, later_one) = (self.generation, later.generation);
        self.kind == later.kind
            && (self.born_ns == later.born_ns || self.born_ns == 0 || later.born_ns == 0)
            && (generation == later_one || generation == 0 || later_one == 0)
    }

    /// As far as a file may have it.
    fn fit(self) -> Result<Self, &'static str> {
        let beyond = |number: u64| number > i64::MAX as u64;
        if self.inode == 0 || [self.inode, self.directory, self.size].into_iter().any(beyond) {
            return Err("an inode number or the size is beyond 63 bits, or the inode is 0");
        }
        if !self.extents.is_empty() && ExtentList::parse(&self.extents).is_none() {
            return Err("its extents are no list of LOGICAL:PHYSICAL:LENGTH:FLAGS in their order");
        }
        Ok(Self { mode: self.mode & 0o7777, ..self })
    }
}
