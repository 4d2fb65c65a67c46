//! Inodes without a name that are still open: the list that lets whoever mounts after a crash free
//! them.
//!
//! The superblock names the last one added; `i_dtime` of each names the one added before.

use std::collections::{BTreeMap, HashMap};

use crate::types::InodeNo;

/// The list, as it is on the device or will be.
#[derive(Debug, Default)]
pub(crate) struct Orphans {
    by_age: BTreeMap<u64, InodeNo>,
    ages: HashMap<InodeNo, u64>,
    next_age: u64,
    /// Those of lower ages are on the device, each with the one added before it.
    settled_age: u64,
}

impl Orphans {
    /// The one the superblock names; 0 for none.
    pub fn head(&self) -> u32 {
        self.by_age.last_key_value().map_or(0, |(_, no)| no.0)
    }

    /// The newest one of those that the device has. The superblock may name it before inodes are
    /// written: whatever is written of them then, it leads to an orphan.
    pub fn settled_head(&self) -> u32 {
        self.by_age.range(..self.settled_age).next_back().map_or(0, |(_, no)| no.0)
    }

    /// All changes of the list are durable.
    pub fn settled(&mut self) {
        self.settled_age = self.next_age;
    }

    pub fn is_empty(&self) -> bool {
        self.by_age.is_empty()
    }

    pub fn contains(&self, no: InodeNo) -> bool {
        self.ages.contains_key(&no)
    }

    pub fn add(&mut self, no: InodeNo) {
        self.by_age.insert(self.next_age, no);
        self.ages.insert(no, self.next_age);
        self.next_age += 1;
    }

    pub fn remove(&mut self, no: InodeNo) {
        if let Some(age) = self.ages.remove(&no) {
            self.by_age.remove(&age);
        }
    }

    /// The inode added before one of the list, 0 for none, and the one added after it; `None` for
    /// an inode that is not on the list.
    pub fn around(&self, no: InodeNo) -> Option<(u32, Option<InodeNo>)> {
        let age = *self.ages.get(&no)?;
        let before = self.by_age.range(..age).next_back().map_or(0, |(_, no)| no.0);
        Some((before, self.by_age.range(age + 1..).next().map(|(_, no)| *no)))
    }
}
