//! Inodes without a name that are still open: the list that lets whoever mounts after a crash free
//! them.
//!
//! The superblock names the last one added; `i_dtime` of each names the one added before.

use std::collections::{BTreeMap, HashMap};

use crate::error::{Error, Place, Result};
use crate::types::InodeNo;
use crate::volume::Volume;

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

    fn before(&self, age: u64) -> u32 {
        self.by_age.range(..age).next_back().map_or(0, |(_, no)| no.0)
    }

    fn after(&self, age: u64) -> Option<InodeNo> {
        self.by_age.range(age + 1..).next().map(|(_, no)| *no)
    }
}

impl Volume {
    /// Puts an inode on the list.
    pub(crate) fn add_orphan(&mut self, no: InodeNo) -> Result<()> {
        if self.orphans.ages.contains_key(&no) {
            return Ok(());
        }
        let mut inode = self.inode(no)?;
        inode.deleted = self.orphans.head();
        self.store_inode(no, &inode)?;
        let age = self.orphans.next_age;
        self.orphans.next_age += 1;
        self.orphans.by_age.insert(age, no);
        self.orphans.ages.insert(no, age);
        self.space.changed = true;
        Ok(())
    }

    /// Takes an inode off the list, if it is there.
    pub(crate) fn remove_orphan(&mut self, no: InodeNo) -> Result<()> {
        let Some(age) = self.orphans.ages.get(&no).copied() else { return Ok(()) };
        if let Some(after) = self.orphans.after(age) {
            let mut inode = self.inode(after)?;
            inode.deleted = self.orphans.before(age);
            self.store_inode(after, &inode)?;
        }
        let mut inode = self.inode(no)?;
        inode.deleted = 0;
        self.store_inode(no, &inode)?;
        self.orphans.by_age.remove(&age);
        self.orphans.ages.remove(&no);
        self.space.changed = true;
        Ok(())
    }

    /// Frees what a crash left on the list. What can't be freed is skipped: a check finds it, and
    /// all other files can be used.
    pub(crate) fn release_orphans(&mut self) {
        let mut next = InodeNo(self.superblock.raw().s_last_orphan.get());
        if next.0 == 0 {
            return;
        }
        self.now.seconds = i64::from(self.superblock.raw().s_wtime.get());
        // So that the superblock is written without the list.
        self.space.changed = true;
        for _ in 0..self.geometry().inodes() {
            if next.0 == 0 {
                return;
            }
            next = self.release_orphan(next);
        }
        let endless = Error::damaged(Place::Inode(next), "the list of orphans has no end");
        self.trouble.log("some orphans stay", &endless);
    }

    /// Frees one; answers the next, or 0 where the list can't be followed.
    fn release_orphan(&mut self, no: InodeNo) -> InodeNo {
        let inode = match self.inode(no) {
            Ok(inode) => inode,
            Err(error) => {
                self.trouble.log(&format!("the list of orphans ends at inode {no}"), &error);
                return InodeNo(0);
            }
        };
        if inode.links == 0
            && let Err(error) = self.delete_inode(no)
        {
            self.trouble.log(&format!("the orphan {no} stays"), &error);
        }
        InodeNo(inode.deleted)
    }
}
