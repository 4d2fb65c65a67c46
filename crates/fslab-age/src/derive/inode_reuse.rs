//! Numbers of files in a workload: an inode's, while it stands for the first thing that it is, and
//! a fresh one when it is used again.

use std::collections::{HashMap, HashSet};

/// Fresh numbers begin here: no inode number is as large.
const FRESH: u64 = 1 << 63;

/// Which number stands for which inode. An inode may be that of a directory and of a file at once,
/// where within one interval the one goes and the other comes.
#[derive(Default)]
pub struct Numbers {
    /// Files whose number is a fresh one, by inode.
    files: HashMap<u64, u64>,
    /// Inodes of which something is gone, so that whatever comes next needs a fresh number.
    used: HashSet<u64>,
    fresh: u64,
    /// Directories that there are, by inode: their numbers, and the inodes they are in.
    directories: HashMap<u64, (u64, u64)>,
    /// Directories that stand for many inodes each.
    flat: HashMap<u64, u64>,
    /// Whether the first snapshot is done.
    is_populated: bool,
    /// Directories in which something happened, and how often.
    active: HashMap<u64, u64>,
}

impl Numbers {
    /// The number of a file that there is.
    pub fn of_file(&self, inode: u64) -> u64 {
        self.files.get(&inode).copied().unwrap_or(inode)
    }

    /// The number of a new file.
    pub fn begin_file(&mut self, inode: u64) -> u64 {
        if self.used.contains(&inode) {
            let number = self.fresh();
            self.files.insert(inode, number);
        }
        self.of_file(inode)
    }

    /// The number of a file that goes.
    pub fn end_file(&mut self, inode: u64) -> u64 {
        self.used.insert(inode);
        self.files.remove(&inode).unwrap_or(inode)
    }

    /// The number of a new directory in the one of the inode `parent`. Directories are told of
    /// before files: whether a file that has the inode still will go is not known then, so that
    /// after the first snapshot they all get fresh numbers.
    pub fn begin_directory(&mut self, inode: u64, parent: u64) -> u64 {
        let number = if self.is_populated { self.fresh() } else { inode };
        // A damaged snapshot may have a file of the same inode.
        self.used.insert(inode);
        self.directories.insert(inode, (number, parent));
        number
    }

    /// The number of a directory that goes; `None` for one that is not there.
    pub fn end_directory(&mut self, inode: u64) -> Option<u64> {
        self.used.insert(inode);
        self.directories.remove(&inode).map(|(number, _parent)| number)
    }

    /// The number of a directory that is moved into the one of the inode `parent`; `None` for one
    /// that is not there.
    pub fn move_directory(&mut self, inode: u64, parent: u64) -> Option<u64> {
        let (number, place) = self.directories.get_mut(&inode)?;
        *place = parent;
        Some(*number)
    }

    /// The inode that a directory is in; `None` for one that is not there.
    pub fn parent(&self, inode: u64) -> Option<u64> {
        self.directories.get(&inode).map(|(_number, parent)| *parent)
    }

    /// The number of a directory; `None` for one that is not there.
    pub fn directory(&self, inode: u64) -> Option<u64> {
        if inode == 0 { Some(0) } else { self.directories.get(&inode).map(|(number, _)| *number) }
    }

    /// The number of the directory that stands for a range of inodes, and whether it is new.
    pub fn flat_directory(&mut self, range: u64) -> (u64, bool) {
        if let Some(known) = self.flat.get(&range) {
            return (*known, false);
        }
        let number = self.fresh();
        self.flat.insert(range, number);
        (number, true)
    }

    /// Says that the first snapshot is done.
    pub fn set_populated(&mut self) {
        self.is_populated = true;
    }

    /// A number that nothing has.
    pub fn fresh(&mut self) -> u64 {
        self.fresh += 1;
        FRESH + self.fresh
    }

    /// Notes that something happened in a directory, by its number.
    pub fn note_active(&mut self, directory: u64) {
        *self.active.entry(directory).or_default() += 1;
    }

    /// The directories noted since the last call and how often each was, the one noted most often
    /// first.
    pub fn take_active(&mut self) -> Vec<(u64, u64)> {
        let mut order: Vec<_> = std::mem::take(&mut self.active).into_iter().collect();
        order.sort_unstable_by_key(|(directory, count)| (std::cmp::Reverse(*count), *directory));
        order
    }
}

/// A name for a file of the workload: its own, cut where it must be, with its number.
pub fn unique_name(own: &[u8], number: u64) -> Vec<u8> {
    let suffix = format!("~{number:x}");
    let fits = own.len().min(255 - suffix.len());
    let mut name: Vec<u8> = own[..fits].to_vec();
    name.iter_mut().filter(|byte| matches!(byte, b'/' | 0)).for_each(|byte| *byte = b'_');
    name.extend(suffix.into_bytes());
    name
}
