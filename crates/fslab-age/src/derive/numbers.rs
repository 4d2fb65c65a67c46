//! Numbers of files in a workload: an inode's, while it stands for its first file, and a fresh one
//! when it is used again.

use std::collections::{HashMap, HashSet};

/// Fresh numbers begin here: no inode number is as large.
const FRESH: u64 = 1 << 63;

/// Directories that are remembered as active.
const ACTIVE_MAX: usize = 4096;

/// Which number stands for which inode.
#[derive(Default)]
pub struct Numbers {
    /// Inodes whose number is a fresh one.
    other: HashMap<u64, u64>,
    /// Inodes whose file is gone, so that the next one needs a fresh number.
    gone: HashSet<u64>,
    fresh: u64,
    /// Directories that there are, by inode.
    directories: HashSet<u64>,
    active: Vec<u64>,
}

impl Numbers {
    /// The number of a file that there is.
    pub fn of(&self, inode: u64) -> u64 {
        self.other.get(&inode).copied().unwrap_or(inode)
    }

    /// The number of a new file.
    pub fn begin(&mut self, inode: u64) -> u64 {
        if self.gone.remove(&inode) || self.other.contains_key(&inode) {
            let number = self.fresh();
            self.other.insert(inode, number);
        }
        self.of(inode)
    }

    /// The number of a file that goes.
    pub fn end(&mut self, inode: u64) -> u64 {
        let number = self.of(inode);
        self.gone.insert(inode);
        number
    }

    /// A number that nothing has.
    pub fn fresh(&mut self) -> u64 {
        self.fresh += 1;
        FRESH + self.fresh
    }

    /// Notes that a directory is there.
    pub fn add_directory(&mut self, inode: u64) {
        self.directories.insert(inode);
    }

    /// Notes that a directory is gone.
    pub fn remove_directory(&mut self, inode: u64) {
        self.directories.remove(&inode);
    }

    /// The number of a directory; `None` for one that is not there.
    pub fn directory(&self, inode: u64) -> Option<u64> {
        match inode {
            0 => Some(0),
            inode => self.directories.contains(&inode).then(|| self.of(inode)),
        }
    }

    /// Notes that something happened in a directory, by its number.
    pub fn note_active(&mut self, directory: u64) {
        if self.active.len() < ACTIVE_MAX {
            self.active.push(directory);
        }
    }

    /// The directories noted since the last call.
    pub fn take_active(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.active)
    }
}
