//! Assigns the file numbers of a workload. The first file with an inode gets the inode number as
//! its file number. If the inode is reused, the next file gets a fresh number.

use std::collections::{HashMap, HashSet};

/// Fresh numbers are larger than this; inode numbers are smaller.
const FRESH: u64 = 1 << 63;

/// Maps inodes to file numbers. An inode may belong to a directory and a file at the same time,
/// because one may be removed and the other created in the same interval.
#[derive(Default)]
pub struct Numbers {
    /// Files with a fresh number, by inode.
    files: HashMap<u64, u64>,
    /// Inodes of removed files and of all directories. The next file with such an inode needs a
    /// fresh number.
    used: HashSet<u64>,
    fresh: u64,
    /// Existing directories by inode, each with its number and the inode of its parent.
    directories: HashMap<u64, (u64, u64)>,
    /// With `inodes_per_directory`: the number of the directory for each range of inodes.
    flat: HashMap<u64, u64>,
    /// Whether the first snapshot has been processed.
    is_populated: bool,
    /// Number of created and changed files in each directory since the last
    /// [`take_active`](Self::take_active).
    active: HashMap<u64, u64>,
}

impl Numbers {
    /// Returns the number of an existing file.
    pub fn of_file(&self, inode: u64) -> u64 {
        self.files.get(&inode).copied().unwrap_or(inode)
    }

    /// Adds a new file and returns its number.
    pub fn begin_file(&mut self, inode: u64) -> u64 {
        if self.used.contains(&inode) {
            let number = self.fresh();
            self.files.insert(inode, number);
        }
        self.of_file(inode)
    }

    /// Removes a file and returns its number.
    pub fn end_file(&mut self, inode: u64) -> u64 {
        self.used.insert(inode);
        self.files.remove(&inode).unwrap_or(inode)
    }

    /// Adds a new directory and returns its number; `parent` is the inode of its parent.
    /// Directories are processed before files, so this inode number may still be the number of a
    /// file that is removed in the same interval. Therefore, after the first snapshot, all new
    /// directories get fresh numbers.
    pub fn begin_directory(&mut self, inode: u64, parent: u64) -> u64 {
        let number = if self.is_populated { self.fresh() } else { inode };
        // A damaged snapshot may contain a file with the same inode.
        self.used.insert(inode);
        self.directories.insert(inode, (number, parent));
        number
    }

    /// Removes a directory and returns its number; `None` if it does not exist.
    pub fn end_directory(&mut self, inode: u64) -> Option<u64> {
        self.used.insert(inode);
        self.directories.remove(&inode).map(|(number, _parent)| number)
    }

    /// Moves a directory and returns its number; `parent` is the inode of the new parent. `None` if
    /// the directory does not exist.
    pub fn move_directory(&mut self, inode: u64, parent: u64) -> Option<u64> {
        let (number, place) = self.directories.get_mut(&inode)?;
        *place = parent;
        Some(*number)
    }

    /// Returns the inode of a directory's parent; `None` if the directory does not exist.
    pub fn parent(&self, inode: u64) -> Option<u64> {
        self.directories.get(&inode).map(|(_number, parent)| *parent)
    }

    /// Returns the number of a directory; `None` if it does not exist.
    pub fn directory(&self, inode: u64) -> Option<u64> {
        if inode == 0 { Some(0) } else { self.directories.get(&inode).map(|(number, _)| *number) }
    }

    /// Returns the number of the directory for a range of inodes, and whether it is new.
    pub fn flat_directory(&mut self, range: u64) -> (u64, bool) {
        if let Some(known) = self.flat.get(&range) {
            return (*known, false);
        }
        let number = self.fresh();
        self.flat.insert(range, number);
        (number, true)
    }

    /// Records that the first snapshot has been processed.
    pub fn set_populated(&mut self) {
        self.is_populated = true;
    }

    pub fn fresh(&mut self) -> u64 {
        self.fresh += 1;
        FRESH + self.fresh
    }

    /// Counts a created or changed file in a directory; `directory` is the directory's number.
    pub fn note_active(&mut self, directory: u64) {
        *self.active.entry(directory).or_default() += 1;
    }

    /// Returns the directories in which files were created or changed since the last call, each
    /// with the number of these files, busiest first.
    pub fn take_active(&mut self) -> Vec<(u64, u64)> {
        let mut order: Vec<_> = std::mem::take(&mut self.active).into_iter().collect();
        order.sort_unstable_by_key(|(directory, count)| (std::cmp::Reverse(*count), *directory));
        order
    }
}

/// Returns a unique name for a file of the workload: its own name, shortened if necessary, followed
/// by its number.
pub fn unique_name(own: &[u8], number: u64) -> Vec<u8> {
    let suffix = format!("~{number:x}");
    let fits = own.len().min(255 - suffix.len());
    let mut name: Vec<u8> = own[..fits].to_vec();
    name.iter_mut().filter(|byte| matches!(byte, b'/' | 0)).for_each(|byte| *byte = b'_');
    name.extend(suffix.into_bytes());
    name
}
