//! Directories that are created, moved and removed between two snapshots.

use std::collections::{HashMap, HashSet};

use super::inode_reuse::{Numbers, unique_name};
use crate::diff::Change;
use crate::snapshot::Entry;
use crate::workload::{Operation, OperationKind};

/// The changes of directories in an interval.
#[derive(Default)]
pub struct TreeChanges {
    /// New and moved directories by inode; `true` means new.
    placed: HashMap<u64, (Entry, bool)>,
    /// Removed directories, with their numbers once [`open`](Self::open) has looked them up.
    gone: Vec<(Entry, Option<u64>)>,
}

impl TreeChanges {
    pub fn add(&mut self, change: Change) {
        match change {
            Change::Created(entry) => {
                self.placed.insert(entry.inode, (entry, true));
            }
            Change::Deleted(entry) => self.gone.push((entry, None)),
            Change::Changed { after, what, .. } if what.renamed => {
                self.placed.insert(after.inode, (after, false));
            }
            Change::Changed { .. } => {}
        }
    }

    /// Discards all changes, for workloads that do not use the real directories.
    pub fn forget(&mut self) {
        *self = Self::default();
    }

    /// Returns the operations that create and move directories, and the number of directories
    /// without a parent. Parents come first, so that no directory is moved into itself.
    ///
    /// # Errors
    /// Returns the inode of a directory that contains itself, which is possible only in a damaged
    /// snapshot.
    pub fn open(
        &mut self,
        numbers: &mut Numbers,
        time_ns: u64,
    ) -> Result<(Vec<Operation>, u64), u64> {
        // Removed directories are processed first, because a new directory may have the inode of a
        // removed one.
        for (entry, number) in &mut self.gone {
            *number = numbers.end_directory(entry.inode);
        }
        let mut rows = Vec::new();
        let mut orphans = 0;
        let mut inodes: Vec<u64> = self.placed.keys().copied().collect();
        inodes.sort_unstable();
        let mut done = HashSet::new();
        for inode in inodes {
            for inode in self.chain(inode, &done, numbers)? {
                done.insert(inode);
                let Some((entry, is_new)) = self.placed.get(&inode) else { continue };
                let parent = numbers.directory(entry.directory);
                orphans += u64::from(parent.is_none());
                rows.push(place(entry, *is_new, parent.unwrap_or_default(), numbers, time_ns));
            }
        }
        Ok((rows, orphans))
    }

    /// Returns a directory and its ancestors that have not been processed yet, topmost first. The
    /// list includes directories that are not moved themselves, because an ancestor of them may be
    /// moved.
    ///
    /// # Errors
    /// Returns the inode at which the chain of parents becomes a cycle.
    fn chain(&self, inode: u64, done: &HashSet<u64>, numbers: &Numbers) -> Result<Vec<u64>, u64> {
        let mut chain = Vec::new();
        let (mut at, mut seen) = (inode, HashSet::new());
        while at != 0 && !done.contains(&at) {
            if !seen.insert(at) {
                return Err(at);
            }
            let placed = self.placed.get(&at).map(|(entry, _)| entry.directory);
            let Some(above) = placed.or_else(|| numbers.parent(at)) else { break };
            chain.push(at);
            at = above;
        }
        chain.reverse();
        Ok(chain)
    }

    /// Returns the operations that remove directories, children first.
    pub fn close(&self, time_ns: u64) -> Vec<Operation> {
        let parents: HashMap<u64, u64> =
            self.gone.iter().map(|(entry, _)| (entry.inode, entry.directory)).collect();
        let depth = |entry: &Entry| {
            let (mut at, mut depth) = (entry.inode, 0_usize);
            while let Some(parent) = parents.get(&at).filter(|_| depth <= parents.len()) {
                (at, depth) = (*parent, depth + 1);
            }
            depth
        };
        // A directory that the workload never created has no number.
        let numbered = self.gone.iter().filter_map(|(entry, number)| Some((entry, (*number)?)));
        let mut gone: Vec<_> = numbered.map(|(entry, number)| (depth(entry), number)).collect();
        gone.sort_by_key(|(depth, number)| (std::cmp::Reverse(*depth), *number));
        let mut rows = Vec::new();
        for (_, file) in gone {
            let kind = OperationKind::RemoveDirectory;
            rows.push(Operation { time_ns, kind, file, ..Operation::default() });
        }
        rows
    }
}

fn place(
    entry: &Entry,
    is_new: bool,
    directory: u64,
    numbers: &mut Numbers,
    time_ns: u64,
) -> Operation {
    let moved = if is_new { None } else { numbers.move_directory(entry.inode, entry.directory) };
    let (kind, file) = match moved {
        None => {
            let number = numbers.begin_directory(entry.inode, entry.directory);
            (OperationKind::MakeDirectory, number)
        }
        Some(known) => (OperationKind::Rename, known),
    };
    let is_new = moved.is_none();
    let name = unique_name(entry.name.bytes(), file).into();
    let (mode, uid, gid) = if is_new { (entry.mode, entry.uid, entry.gid) } else { (0, 0, 0) };
    Operation { time_ns, kind, file, directory, mode, uid, gid, name, ..Operation::default() }
}
