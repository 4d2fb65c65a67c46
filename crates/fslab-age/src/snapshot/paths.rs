//! Assigns numbers to the directories of a tree that is known only from paths.

use std::collections::BTreeMap;

use super::{Entry, EntryKind, SnapshotWriter};
use crate::error::Result;

/// Directories by path, without a leading or trailing slash.
#[derive(Default)]
pub struct Directories {
    numbers: BTreeMap<Vec<u8>, u64>,
}

impl Directories {
    /// Returns the number of the directory that contains a path, and the last name of the path. New
    /// directories get their numbers from `number`.
    pub fn place<'a>(
        &mut self,
        path: &'a [u8],
        number: &mut dyn FnMut(&[u8]) -> u64,
    ) -> (u64, &'a [u8]) {
        let Some(slash) = path.iter().rposition(|byte| *byte == b'/') else { return (0, path) };
        let (directory, name) = (&path[..slash], &path[slash + 1..]);
        if let Some(known) = self.numbers.get(directory) {
            return (*known, name);
        }
        self.place(directory, number);
        let made = number(directory);
        self.numbers.insert(directory.to_vec(), made);
        (made, name)
    }

    /// Writes the directories for which `wanted` returns `true`.
    pub fn write(
        &self,
        writer: &mut SnapshotWriter,
        entry: &Entry,
        wanted: impl Fn(&[u8]) -> bool,
    ) -> Result<()> {
        for (path, inode) in self.numbers.iter().filter(|(path, _)| wanted(path)) {
            let slash = path.iter().rposition(|byte| *byte == b'/');
            let directory = slash.and_then(|slash| self.numbers.get(&path[..slash]));
            let name = &path[slash.map_or(0, |slash| slash + 1)..];
            writer.push(Entry {
                inode: *inode,
                directory: directory.copied().unwrap_or_default(),
                kind: EntryKind::Directory,
                mode: 0o755,
                name: name.to_vec().into(),
                ..entry.clone()
            })?;
        }
        Ok(())
    }
}
