//! The columns of a workload file, which `docs/formats/workload.md` describes.

use crate::table::{Kind, Number, row};

/// The kinds of operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum OperationKind {
    /// Makes a directory.
    #[default]
    MakeDirectory = 1,
    /// Makes an empty regular file.
    Create = 2,
    /// Writes bytes; a write past the end extends the file.
    Write = 3,
    /// Sets the size.
    Truncate = 4,
    /// Removes a file or symbolic link.
    Remove = 5,
    /// Removes an empty directory.
    RemoveDirectory = 6,
    /// Changes the name of a file or directory, moves it to another directory, or both.
    Rename = 7,
    /// Makes a symbolic link.
    Symlink = 8,
}

impl OperationKind {
    /// All kinds, in the order of their numbers.
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

    /// Returns the name of the kind.
    #[must_use]
    pub fn name(self) -> &'static str {
        const NAMES: [&str; OperationKind::ALL.len()] =
            ["mkdir", "create", "write", "truncate", "remove", "rmdir", "rename", "symlink"];
        NAMES[self as usize - 1]
    }

    /// Whether the operation adds a name.
    #[must_use]
    pub fn makes(self) -> bool {
        matches!(self, Self::MakeDirectory | Self::Create | Self::Symlink)
    }

    /// Whether operations on other files may depend on this operation. A write, truncation or
    /// removal of a file affects only that file.
    #[must_use]
    pub fn is_structural(self) -> bool {
        matches!(self, Self::MakeDirectory | Self::RemoveDirectory | Self::Rename)
    }

    /// Whether the operation may free space.
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
        found.ok_or("its kind is not from 1 to 8")
    }
}

row! {
    /// One operation.
    Operation: "workload" 1, mode 0o666, Operation::fit;
    // Each line contains the column's type, whether it has delta encoding, and the format version
    // that introduced it.
    numbers {
        /// The time in nanoseconds since the workload began; it never decreases.
        time_ns: u64, true, 1;
        /// The kind of operation.
        kind: OperationKind, false, 1;
        /// The number of the file or directory, which is unique in the workload; the root is 0.
        file: u64, true, 1;
        /// The directory in which the file or directory is made, or to which it is moved.
        directory: u64, false, 1;
        /// The offset of a write in bytes.
        offset: u64, false, 1;
        /// For `write`, the number of bytes; for `truncate`, the new size; for `symlink`, the
        /// length of the target.
        length: u64, true, 1;
        /// Permissions of a new file or directory.
        mode: u32, false, 1;
        /// User ID of the owner of a new file or directory.
        uid: u32, false, 1;
        /// Group ID of a new file or directory.
        gid: u32, false, 1;
    }
    texts {
        /// The name of the file or directory, or the new name for `rename`. If it is empty,
        /// [`Operation::name_of`] makes a name from the number. A name is never reused in its
        /// directory, even after its file was removed.
        name, 1;
    }
}

impl Operation {
    /// Returns the name of the file that this operation makes or renames, because
    /// [`Operation::name`] may be empty.
    #[must_use]
    pub fn name_of(&self) -> Vec<u8> {
        if !self.name.is_empty() {
            return self.name.bytes().to_vec();
        }
        let letter = if self.kind == OperationKind::MakeDirectory { 'd' } else { 'f' };
        format!("{letter}{:x}", self.file).into_bytes()
    }

    /// Checks the values of this operation, independently of other operations.
    fn fit(self) -> Result<Self, &'static str> {
        let name = self.name.bytes();
        let wrong = [
            (self.file == 0, "it would change the root"),
            (name.len() > 255, "its name has more than 255 bytes"),
            (name == b"." || name == b"..", "its name is '.' or '..'"),
            (
                name.iter().any(|byte| matches!(byte, b'/' | 0)),
                "its name contains a slash or a NUL byte",
            ),
            (
                self.offset.checked_add(self.length).is_none(),
                "its offset plus its length exceeds 64 bits",
            ),
            (
                self.offset.saturating_add(self.length) > i64::MAX as u64,
                "its offset plus its length exceeds 63 bits",
            ),
            (
                self.kind == OperationKind::Symlink && !(1..=4095).contains(&self.length),
                "it makes a symbolic link whose target does not have from 1 to 4095 bytes",
            ),
            (self.mode > 0o7777, "its mode contains bits other than permissions"),
        ];
        wrong.into_iter().find(|(is_so, _)| *is_so).map_or(Ok(self), |(_, what)| Err(what))
    }
}
