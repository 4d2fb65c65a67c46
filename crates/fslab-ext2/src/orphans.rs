//! The orphan list: inodes without a name that are still open. After a crash, the next mount frees
//! them.
//!
//! The superblock contains the number of the newest orphan. The `i_dtime` of each orphan is the
//! number of the orphan that was added before it.

use std::collections::{BTreeMap, HashMap};

use crate::recent::Recent;
use crate::types::InodeNo;

/// A change of the orphan list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OrphanChange {
    Added(InodeNo),
    Removed(InodeNo),
}

/// The orphan list, as it is on the device or will be after the next flush.
#[derive(Debug, Default)]
pub(crate) struct Orphans {
    by_age: BTreeMap<u64, InodeNo>,
    ages: HashMap<InodeNo, u64>,
    next_age: u64,
    /// Orphans with a lower number in `by_age` are on the device, each linked to its predecessor.
    settled_age: u64,
    /// Changes of the list, for `kept_changes`.
    pub recent: Recent<OrphanChange>,
}

impl Orphans {
    /// Returns the newest orphan, for the superblock; 0 for none.
    pub fn head(&self) -> u32 {
        self.by_age.last_key_value().map_or(0, |(_, no)| no.0)
    }

    /// Returns the newest orphan that is on the device. A flush may write this number to the
    /// superblock before it writes inodes, because the inode is an orphan on the device both before
    /// and after these writes.
    pub fn settled_head(&self) -> u32 {
        self.by_age.range(..self.settled_age).next_back().map_or(0, |(_, no)| no.0)
    }

    /// Records that all changes of the list are durable.
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
        self.recent.add(OrphanChange::Added(no));
    }

    /// Calls `call` with each orphan, in list order, and whether the list on the device contains
    /// it.
    pub fn each(&self, mut call: impl FnMut(InodeNo, bool)) {
        self.by_age.iter().for_each(|(age, no)| call(*no, *age < self.settled_age));
    }

    pub fn remove(&mut self, no: InodeNo) {
        if let Some(age) = self.ages.remove(&no) {
            self.by_age.remove(&age);
            self.recent.add(OrphanChange::Removed(no));
        }
    }

    /// Returns the orphan that was added before `no` (0 for none), and the one that was added after
    /// it. `None` if `no` is not in the list.
    pub fn around(&self, no: InodeNo) -> Option<(u32, Option<InodeNo>)> {
        let age = *self.ages.get(&no)?;
        let before = self.by_age.range(..age).next_back().map_or(0, |(_, no)| no.0);
        Some((before, self.by_age.range(age + 1..).next().map(|(_, no)| *no)))
    }
}
