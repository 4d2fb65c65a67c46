//! The columns of a snapshot; described in `docs/formats/snapshot.md`.

use super::ExtentList;
use crate::table::{Layout, NumberColumn, NumberKind, Numbers, Row, Text, TextColumn, Texts};

/// What a snapshot is like.
pub const SNAPSHOT: Layout = Layout {
    name: "snapshot",
    version: 2,
    numbers: &[
        column("inode", NumberKind::U64, true),
        column("directory", NumberKind::U64, false),
        column("kind", NumberKind::U32, false),
        column("size", NumberKind::U64, true),
        column("stored", NumberKind::U64, true),
        column("modified_ns", NumberKind::I64, true),
        column("changed_ns", NumberKind::I64, true),
        column("born_ns", NumberKind::I64, true),
        column("mode", NumberKind::U32, false),
        column("uid", NumberKind::U32, false),
        column("gid", NumberKind::U32, false),
        column("links", NumberKind::U32, false),
        column("blocks", NumberKind::U64, false),
        column("breaks", NumberKind::U64, false),
        NumberColumn { since: 2, ..column("generation", NumberKind::U32, false) },
    ],
    texts: &[TextColumn { name: "name", since: 1 }, TextColumn { name: "extents", since: 2 }],
    // Names of others' files: for who took it alone.
    mode: 0o600,
};

const fn column(name: &'static str, kind: NumberKind, rising: bool) -> NumberColumn {
    NumberColumn { name, kind, rising, since: 1 }
}

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

/// A file or directory at the time of a snapshot.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Entry {
    /// Its inode number; not 0, which stands for the root.
    pub inode: u64,
    /// The inode number of its directory, 0 for the root.
    pub directory: u64,
    /// What it is.
    pub kind: EntryKind,
    /// Size in bytes.
    pub size: u64,
    /// Space it takes, in bytes.
    pub stored: u64,
    /// Last change of the contents, in nanoseconds since 1970.
    pub modified_ns: i64,
    /// Last change of the inode.
    pub changed_ns: i64,
    /// Creation; 0 where nobody knows.
    pub born_ns: i64,
    /// Permissions.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Names.
    pub links: u32,
    /// Blocks that have a place; 0 where nobody looked.
    pub blocks: u64,
    /// Those of them that do not follow their predecessor.
    pub breaks: u64,
    /// The generation of its inode, which is another when the inode is used again; 0 where the file
    /// system does not tell.
    pub generation: u32,
    /// Its name.
    pub name: Text,
    /// Where it lies, where that was asked for: see [`ExtentList`].
    pub extents: Text,
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
}

impl Row for Entry {
    const LAYOUT: &'static Layout = &SNAPSHOT;

    fn to_cells(&self) -> (Numbers, Texts) {
        let mut numbers = [0; crate::table::NUMBERS_MAX];
        let cells = [
            self.inode.cast_signed(),
            self.directory.cast_signed(),
            self.kind as i64,
            self.size.cast_signed(),
            self.stored.cast_signed(),
            self.modified_ns,
            self.changed_ns,
            self.born_ns,
            self.mode.into(),
            self.uid.into(),
            self.gid.into(),
            self.links.into(),
            self.blocks.cast_signed(),
            self.breaks.cast_signed(),
            self.generation.into(),
        ];
        numbers[..cells.len()].copy_from_slice(&cells);
        (numbers, [self.name.clone(), self.extents.clone()])
    }

    fn text_bytes(&self) -> usize {
        self.name.bytes().len() + self.extents.bytes().len()
    }

    fn from_cells(numbers: &Numbers, [name, extents]: Texts) -> Result<Self, &'static str> {
        let [inode, directory, kind, size, stored, modified, changed, born, rest @ ..] = *numbers;
        let [mode, uid, gid, links, blocks, breaks, generation, ..] = rest;
        let kind = match kind {
            1 => EntryKind::Directory,
            2 => EntryKind::File,
            3 => EntryKind::Symlink,
            4 => EntryKind::Other,
            _ => return Err("its kind is none of 1 to 4"),
        };
        if inode <= 0 || directory < 0 || size < 0 {
            return Err("an inode number or the size is beyond 63 bits, or the inode is 0");
        }
        if !extents.is_empty() && ExtentList::parse(&extents).is_none() {
            return Err("its extents are no list of LOGICAL:PHYSICAL:LENGTH:FLAGS in their order");
        }
        Ok(Self {
            inode: inode.cast_unsigned(),
            directory: directory.cast_unsigned(),
            kind,
            size: size.cast_unsigned(),
            stored: stored.cast_unsigned(),
            modified_ns: modified,
            changed_ns: changed,
            born_ns: born,
            mode: mode as u32 & 0o7777,
            uid: uid as u32,
            gid: gid as u32,
            links: links as u32,
            blocks: blocks.cast_unsigned(),
            breaks: breaks.cast_unsigned(),
            generation: generation as u32,
            name,
            extents,
        })
    }
}
