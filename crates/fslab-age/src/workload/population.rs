//! The tree that a workload has produced so far, in memory: names, sizes and owners.

use std::collections::HashMap;

use super::format::{Operation, OperationKind};
use crate::error::{Error, Result};
use crate::profile::DAY_NS;
use crate::table::Text;

/// Files and directories by their numbers.
#[derive(Clone, Debug, Default)]
pub struct Population {
    members: HashMap<u64, Member>,
    operations: u64,
    last_ns: u64,
}

/// A file, symbolic link or directory of a workload.
#[derive(Clone, Debug, PartialEq)]
pub struct Member {
    /// The number of the parent directory.
    pub directory: u64,
    /// The name in the operation, which may be empty.
    pub name: Text,
    /// The kind of the operation that created the file.
    pub kind: OperationKind,
    /// Size in bytes; 0 for directories.
    pub size: u64,
    /// ID of the owning user.
    pub uid: u32,
    /// ID of the owning group.
    pub gid: u32,
    /// Time of the last write, truncation or creation, in nanoseconds.
    pub modified_ns: u64,
    /// For a directory, the number of names in it.
    pub names: u32,
}

impl Population {
    /// Applies an operation.
    ///
    /// # Errors
    /// Fails if it is inconsistent with earlier operations.
    pub fn apply(&mut self, operation: &Operation) -> Result<()> {
        let index = self.operations;
        self.operations += 1;
        let late = operation.time_ns < self.last_ns;
        self.last_ns = operation.time_ns;
        if late {
            return Err(Error::Operation {
                index,
                what: "it is earlier than the previous operation",
            });
        }
        self.try_apply(operation).map_err(|what| Error::Operation { index, what })
    }

    fn try_apply(&mut self, operation: &Operation) -> Result<(), &'static str> {
        match operation.kind {
            kind if kind.makes() => self.make(operation),
            OperationKind::Remove | OperationKind::RemoveDirectory => self.remove(operation),
            OperationKind::Rename => self.rename(operation),
            _ => self.change(operation),
        }
    }

    fn make(&mut self, operation: &Operation) -> Result<(), &'static str> {
        self.count_names(operation.directory, 1)?;
        let is_link = operation.kind == OperationKind::Symlink;
        let member = Member {
            directory: operation.directory,
            name: operation.name.clone(),
            kind: operation.kind,
            size: if is_link { operation.length } else { 0 },
            uid: operation.uid,
            gid: operation.gid,
            modified_ns: operation.time_ns,
            names: 0,
        };
        match self.members.insert(operation.file, member) {
            None => Ok(()),
            Some(_) => Err("it creates a file that exists already"),
        }
    }

    fn remove(&mut self, operation: &Operation) -> Result<(), &'static str> {
        let member =
            self.members.remove(&operation.file).ok_or("it removes a file that does not exist")?;
        let is_directory = member.kind == OperationKind::MakeDirectory;
        if is_directory != (operation.kind == OperationKind::RemoveDirectory) {
            return Err("it removes a directory as a file, or a file as a directory");
        }
        if member.names > 0 {
            return Err("it removes a directory that is not empty");
        }
        self.count_names(member.directory, -1)
    }

    fn rename(&mut self, operation: &Operation) -> Result<(), &'static str> {
        self.count_names(operation.directory, 1)?;
        let member =
            self.members.get_mut(&operation.file).ok_or("it renames a file that does not exist")?;
        let old = std::mem::replace(&mut member.directory, operation.directory);
        member.name = operation.name.clone();
        self.count_names(old, -1)?;
        if self.is_within(operation.directory, operation.file) {
            return Err("it moves a directory into itself");
        }
        Ok(())
    }

    /// Whether the directory `inner` is `outer` or is inside it.
    fn is_within(&self, inner: u64, outer: u64) -> bool {
        let mut at = inner;
        for _ in 0..=self.members.len() {
            if at == outer {
                return true;
            }
            match self.members.get(&at) {
                Some(member) => at = member.directory,
                None => return false,
            }
        }
        true
    }

    fn change(&mut self, operation: &Operation) -> Result<(), &'static str> {
        let member =
            self.members.get_mut(&operation.file).ok_or("it changes a file that does not exist")?;
        if member.kind != OperationKind::Create {
            return Err("it writes to something other than a regular file");
        }
        member.modified_ns = operation.time_ns;
        member.size = match operation.kind {
            OperationKind::Truncate => operation.length,
            _ if operation.length == 0 => member.size,
            _ => member.size.max(operation.offset + operation.length),
        };
        Ok(())
    }

    fn count_names(&mut self, directory: u64, change: i32) -> Result<(), &'static str> {
        if directory == 0 {
            return Ok(());
        }
        match self.members.get_mut(&directory) {
            Some(member) if member.kind == OperationKind::MakeDirectory => {
                member.names = member.names.saturating_add_signed(change);
                Ok(())
            }
            Some(_) => Err("its parent is not a directory"),
            None => Err("its directory does not exist"),
        }
    }

    /// Returns an existing file or directory.
    #[must_use]
    pub fn get(&self, file: u64) -> Option<&Member> {
        self.members.get(&file)
    }

    /// Returns all files and directories in arbitrary order.
    pub fn members(&self) -> impl Iterator<Item = (u64, &Member)> {
        self.members.iter().map(|(file, member)| (*file, member))
    }

    /// Returns the number of files and directories.
    #[must_use]
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether there are no files and directories.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Returns the number of operations applied.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.operations
    }

    /// Returns the time of the last operation in nanoseconds.
    #[must_use]
    pub fn last_ns(&self) -> u64 {
        self.last_ns
    }

    /// Returns the sorted paths of the hot files: nonempty files that changed in the last `days`
    /// days.
    #[must_use]
    pub fn hot_paths(&self, days: u32) -> Vec<Vec<u8>> {
        let since = self.last_ns().saturating_sub(u64::from(days) * DAY_NS);
        let is_hot = |member: &Member| {
            member.kind == OperationKind::Create && member.size > 0 && member.modified_ns >= since
        };
        let hot = self.members().filter(|(_, member)| is_hot(member));
        let mut paths: Vec<_> = hot.filter_map(|(file, _)| self.path(file)).collect();
        paths.sort();
        paths
    }

    /// Returns the path of a file or directory from the root, without a leading slash. `None` if it
    /// does not exist. After a refused operation, also `None` if its directory does not exist or if
    /// it is in a cycle of directories.
    #[must_use]
    pub fn path(&self, file: u64) -> Option<Vec<u8>> {
        let mut parts = Vec::new();
        let mut at = file;
        while at != 0 {
            let member = self.members.get(&at).filter(|_| parts.len() < self.members.len())?;
            parts.push(member.name_of(at));
            at = member.directory;
        }
        parts.reverse();
        Some(parts.join(&b'/'))
    }

    /// Returns a checksum of the final tree. It covers every path, sorted, with its kind, size and
    /// owner.
    ///
    /// # Errors
    /// Returns [`Error::NoPath`], which is possible only after a refused operation.
    pub fn checksum(&self) -> Result<String> {
        let line = |(file, member): (u64, &Member)| {
            let path = self.path(file).ok_or(Error::NoPath { file })?;
            Ok(tree_line(&path, member.letter(), member.size, (member.uid, member.gid)))
        };
        Ok(checksum_of_lines(self.members().map(line).collect::<Result<_>>()?))
    }
}

impl Member {
    /// Returns the name of the file. If [`name`](Self::name) is empty, makes a name from the number
    /// `file`.
    #[must_use]
    pub fn name_of(&self, file: u64) -> Vec<u8> {
        let (name, kind) = (self.name.clone(), self.kind);
        Operation { file, name, kind, ..Operation::default() }.name_of()
    }

    fn letter(&self) -> char {
        match self.kind {
            OperationKind::MakeDirectory => 'd',
            OperationKind::Symlink => 'l',
            _ => 'f',
        }
    }
}

/// Returns a line for [`checksum_of_lines`]. The size of a directory is ignored.
pub(crate) fn tree_line(path: &[u8], letter: char, size: u64, owner: (u32, u32)) -> Vec<u8> {
    let size = if letter == 'd' { 0 } else { size };
    let mut line = path.to_vec();
    line.extend(format!("\0{letter} {size} {} {}\n", owner.0, owner.1).into_bytes());
    line
}

/// Returns the BLAKE3 hash of the sorted lines, in hexadecimal.
pub(crate) fn checksum_of_lines(mut lines: Vec<Vec<u8>>) -> String {
    lines.sort_unstable();
    let mut hasher = blake3::Hasher::new();
    for line in &lines {
        hasher.update(line);
    }
    hasher.finalize().to_hex().to_string()
}
