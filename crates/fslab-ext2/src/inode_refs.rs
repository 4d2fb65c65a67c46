//! Inode references: the lookup counts of the kernel, and the open handles.

use std::collections::HashMap;

use crate::types::InodeNo;

/// The inodes that are referenced or open.
#[derive(Debug, Default)]
pub(crate) struct Known {
    uses: HashMap<InodeNo, Uses>,
    /// Whether the kernel may refer to inodes without an entry here, because an earlier daemon
    /// answered their lookups.
    has_unknown: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Uses {
    lookups: u64,
    opens: u64,
    /// Whether the inode has lost its last name. It is deleted when its last reference is dropped.
    unnamed: bool,
    /// Whether the inode was created without a name and may get one.
    linkable: bool,
}

impl Uses {
    fn is_used(self) -> bool {
        self.lookups > 0 || self.opens > 0
    }
}

impl Known {
    pub fn remember(&mut self, no: InodeNo) {
        self.uses.entry(no).or_default().lookups += 1;
    }

    /// Adds a lookup of an inode that is referenced or open; returns `false` for other inodes.
    pub fn hold(&mut self, no: InodeNo) -> bool {
        if self.has_unknown {
            self.remember(no);
            return true;
        }
        let uses = self.uses.get_mut(&no).filter(|uses| uses.is_used());
        uses.map(|uses| uses.lookups += 1).is_some()
    }

    pub fn open(&mut self, no: InodeNo) {
        // The kernel opens only inodes that it has looked up, so an earlier daemon answered the
        // lookup of an inode without an entry.
        let lookups = u64::from(self.has_unknown);
        let unknown = Uses { lookups, ..Uses::default() };
        self.uses.entry(no).or_insert(unknown).opens += 1;
    }

    /// Subtracts lookups; returns whether the inode must be deleted.
    pub fn forget(&mut self, no: InodeNo, lookups: u64) -> bool {
        self.end(no, |uses| uses.lookups = uses.lookups.saturating_sub(lookups))
    }

    /// Removes an open handle; returns whether the inode must be deleted.
    pub fn close(&mut self, no: InodeNo) -> bool {
        self.end(no, |uses| uses.opens = uses.opens.saturating_sub(1))
    }

    fn end(&mut self, no: InodeNo, change: impl FnOnce(&mut Uses)) -> bool {
        let Some(uses) = self.uses.get_mut(&no) else { return false };
        change(uses);
        if uses.is_used() {
            return false;
        }
        self.uses.remove(&no).is_some_and(|uses| uses.unnamed)
    }

    pub fn is_open(&self, no: InodeNo) -> bool {
        self.uses.get(&no).is_some_and(|uses| uses.opens > 0)
    }

    /// Records that the kernel may refer to inodes that are not recorded here.
    pub fn expect_more_references(&mut self) {
        self.has_unknown = true;
    }

    /// Records an inode without a name that the kernel looked up through an earlier daemon. The
    /// number of lookups is unknown. It is set to 1, because the kernel forgets all of them at
    /// once.
    pub fn inherit_unnamed(&mut self, no: InodeNo, linkable: bool) {
        self.uses.insert(no, Uses { lookups: 1, opens: 0, unnamed: true, linkable });
    }

    /// Drops an inode that got a name again or was deleted.
    pub fn disinherit(&mut self, no: InodeNo) {
        self.uses.remove(&no);
    }

    /// Records that an inode lost its last name; returns whether it is still referenced or open.
    pub fn lost_name(&mut self, no: InodeNo) -> bool {
        if self.has_unknown && !self.uses.contains_key(&no) {
            self.inherit_unnamed(no, false);
            return true;
        }
        match self.uses.get_mut(&no) {
            Some(uses) if uses.is_used() => {
                uses.unnamed = true;
                true
            }
            _ => false,
        }
    }

    /// Records an inode that was created without a name.
    pub fn unnamed(&mut self, no: InodeNo, linkable: bool) {
        let uses = self.uses.entry(no).or_default();
        (uses.unnamed, uses.linkable) = (true, linkable);
    }

    /// Whether the inode may get its first name.
    pub fn is_linkable(&self, no: InodeNo) -> bool {
        self.uses.get(&no).is_some_and(|uses| uses.linkable)
    }

    /// Records the first name of an inode.
    pub fn named(&mut self, no: InodeNo) {
        if let Some(uses) = self.uses.get_mut(&no) {
            (uses.unnamed, uses.linkable) = (false, false);
        }
    }

    /// Returns the inodes without a name that are still referenced or open.
    pub fn all_unnamed(&self) -> Vec<InodeNo> {
        self.uses.iter().filter(|(_, uses)| uses.unnamed).map(|(no, _)| *no).collect()
    }

    pub fn len(&self) -> usize {
        self.uses.len()
    }
}
