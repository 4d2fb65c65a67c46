//! The columns of a workload file; described in `docs/formats/workload.md`.

use crate::table::{Layout, NumberColumn, NumberKind, Numbers, Row, Text, TextColumn, Texts};

/// What a workload file is like.
pub const WORKLOAD: Layout = Layout {
    name: "workload",
    version: 1,
    numbers: &[
        column("time_ns", NumberKind::U64, true),
        column("kind", NumberKind::U32, false),
        column("file", NumberKind::U64, true),
        column("directory", NumberKind::U64, false),
        column("offset", NumberKind::U64, false),
        column("length", NumberKind::U64, true),
        column("mode", NumberKind::U32, false),
        column("uid", NumberKind::U32, false),
        column("gid", NumberKind::U32, false),
    ],
    texts: &[TextColumn { name: "name", since: 1 }],
    mode: 0o666,
};

const fn column(name: &'static str, kind: NumberKind, rising: bool) -> NumberColumn {
    NumberColumn { name, kind, rising, since: 1 }
}

/// One operation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Operation {
    /// When, in nanoseconds since the workload began; never less than before.
    pub time_ns: u64,
    /// What is done.
    pub kind: OperationKind,
    /// The file or directory, by a number that no other of the workload has; the root is 0.
    pub file: u64,
    /// Where it is made or moved to.
    pub directory: u64,
    /// Where a write begins, in bytes.
    pub offset: u64,
    /// Bytes written; the new size, of `truncate`; the length of what a link says.
    pub length: u64,
    /// Permissions of what is made.
    pub mode: u32,
    /// Owner of what is made.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Its name, or the new one of `rename`; where empty, [`Operation::name_of`] makes one of the
    /// number. No name is ever used for two files of a directory.
    pub name: Text,
}

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
        match self {
            Self::MakeDirectory => "mkdir",
            Self::Create => "create",
            Self::Write => "write",
            Self::Truncate => "truncate",
            Self::Remove => "remove",
            Self::RemoveDirectory => "rmdir",
            Self::Rename => "rename",
            Self::Symlink => "symlink",
        }
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

    fn from_number(number: i64) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as i64 == number)
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

    /// What is wrong with it, whatever the operations before.
    fn check(&self) -> Result<(), &'static str> {
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
        wrong.into_iter().find(|(is_so, _)| *is_so).map_or(Ok(()), |(_, what)| Err(what))
    }
}

impl Row for Operation {
    const LAYOUT: &'static Layout = &WORKLOAD;

    fn to_cells(&self) -> (Numbers, Texts) {
        let mut numbers = [0; crate::table::NUMBERS_MAX];
        let cells = [
            self.time_ns.cast_signed(),
            self.kind as i64,
            self.file.cast_signed(),
            self.directory.cast_signed(),
            self.offset.cast_signed(),
            self.length.cast_signed(),
            self.mode.into(),
            self.uid.into(),
            self.gid.into(),
        ];
        numbers[..cells.len()].copy_from_slice(&cells);
        (numbers, [self.name.clone(), Text::EMPTY])
    }

    fn text_bytes(&self) -> usize {
        self.name.bytes().len()
    }

    fn from_cells(numbers: &Numbers, [name, _]: Texts) -> Result<Self, &'static str> {
        let [time, kind, file, directory, offset, length, mode, uid, gid, ..] = *numbers;
        let operation = Self {
            time_ns: time.cast_unsigned(),
            kind: OperationKind::from_number(kind).ok_or("its kind is none of 1 to 8")?,
            file: file.cast_unsigned(),
            directory: directory.cast_unsigned(),
            offset: offset.cast_unsigned(),
            length: length.cast_unsigned(),
            mode: mode as u32,
            uid: uid as u32,
            gid: gid as u32,
            name,
        };
        operation.check()?;
        Ok(operation)
    }
}
