//! The columns of a workload file; described in `docs/formats/workload.md`.

use crate::table::{Kind, Number, row};

/// What is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum OperationKind {
    /// A directory is made.
    #[default]
    MakeDirectory = 1,
    /// An empty regular file is made.
    Create = 2,
    /// Bytes are written; behind its end, a file grows.
    Write = 3,
    /// The size is set.
    Truncate = 4,
    /// The file, or the symbolic link, is removed.
    Remove = 5,
    /// An empty directory is removed.
    RemoveDirectory = 6,
    /// The file or directory gets another name, another directory, or both.
    Rename = 7,
    /// A symbolic link is made.
    Symlink = 8,
}

impl OperationKind {
    /// Every kind, by number.
    pub const ALL: [Self; 8] = [
        Self::MakeDirectory,
        Self::Create,
        Self::Write,
        Self::Truncate,
        Self::Remove,
        Self::RemoveDirectory,
        Self::Rename,
        Self::Symlink,
    ];

    /// The word for it.
    #[must_use]
    pub fn name(self) -> &'static str {
        const NAMES: [&str; OperationKind::ALL.len()] =
            ["mkdir", "create", "write", "truncate", "remove", "rmdir", "rename", "symlink"];
        NAMES[self as usize - 1]
    }

    /// Whether it makes a name.
    #[must_use]
    pub fn makes(self) -> bool {
        matches!(self, Self::MakeDirectory | Self::Create | Self::Symlink)
    }

    /// Whether operations on other files may depend on it: those on its files do not.
    #[must_use]
    pub fn is_structural(self) -> bool {
        matches!(self, Self::MakeDirectory | Self::RemoveDirectory | Self::Rename)
    }

    /// Whether space may become free by it.
    #[must_use]
    pub fn may_free(self) -> bool {
        matches!(self, Self::Truncate | Self::Remove | Self::RemoveDirectory)
    }
}

impl Number for OperationKind {
    const KIND: Kind = Kind::U32;

    fn to_cell(self) -> i64 {
        self as i64
    }

    fn from_cell(cell: i64) -> Result<Self, &'static str> {
        let found = Self::ALL.into_iter().find(|kind| kind.to_cell() == cell);
        found.ok_or("its kind is none of 1 to 8")
    }
}

row! {
    /// One operation.
    Operation: "workload" 1, mode 0o666, Operation::fit;
    // Whether it rises, and since which version.
    numbers {
        /// When, in nanoseconds since the workload began; never less than before.
        time_ns: u64, true, 1;
        /// What is done.
        kind: OperationKind, false, 1;
        /// The file or directory, by a number that no other of the workload has; the root is 0.
        file: u64, true, 1;
        /// Where it is made or moved to.
        directory: u64, false, 1;
        /// Where a write begins, in bytes.
        offset: u64, false, 1;
        /// Bytes written; the new size, of `truncate`; the length of what a link says.
        length: u64, true, 1;
        /// Permissions of what is made.
        mode: u32, false, 1;
        /// Owner of what is made.
        uid: u32, false, 1;
        /// Its group.
        gid: u32, false, 1;
    }
    texts {
        /// Its name, or the new one of `rename`; where empty, [`Operation::name_of`] makes one of
        /// the number. No name is ever used for two files of a directory.
        name, 1;
    }
}

impl Operation {
    /// The name of what this operation makes or renames, for [`Operation::name`] may be empty.
    #[must_use]
    pub fn name_of(&self) -> Vec<u8> {
        if !self.name.is_empty() {
            return self.name.bytes().to_vec();
        }
        let letter = if self.kind == OperationKind::MakeDirectory { 'd' } else { 'f' };
        format!("{letter}{:x}", self.file).into_bytes()
    }

    /// If nothing is wrong with it, whatever the operations before.
    fn fit(self) -> Result<Self, &'static str> {
        let name = self.name.bytes();
        let wrong = [
            (self.file == 0, "it is about the root, which stays as it is"),
            (name.len() > 255, "its name has more than 255 bytes"),
            (name == b"." || name == b"..", "its name is a dot or two"),
            (name.iter().any(|byte| matches!(byte, b'/' | 0)), "its name holds a slash or a zero"),
            (self.offset.checked_add(self.length).is_none(), "it ends beyond 64 bits"),
            (self.offset.saturating_add(self.length) > i64::MAX as u64, "it ends beyond 63 bits"),
            (
                self.kind == OperationKind::Symlink && !(1..=4095).contains(&self.length),
                "it makes a symbolic link that does not say from 1 to 4095 bytes",
            ),
            (self.mode > 0o7777, "its mode has more than permissions"),
        ];
        wrong.into_iter().find(|(is_so, _)| *is_so).map_or(Ok(self), |(_, what)| Err(what))
    }
}
