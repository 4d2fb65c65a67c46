//! The state of changes that wait to be written: their order, and the inodes and names that the
//! device does not have yet.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::cache::{Hashing, hashing};
use crate::types::{BlockNo, InodeNo};

/// Average memory that a name takes, in bytes.
const NAME_BYTES: usize = 32;

/// Changes that must reach the device after others.
#[derive(Default)]
pub(crate) struct Order {
    /// Inodes whose change must reach the device after the directories, with their earlier bytes.
    pub late_inodes: BTreeMap<InodeNo, Box<[u8]>>,
    /// Directory blocks that gained moved names, or that name new directories: other blocks are
    /// written after them.
    pub early_blocks: HashSet<BlockNo>,
    /// Inodes with an additional name, and the block of that name.
    pub linked: HashMap<InodeNo, BlockNo>,
    /// Directories that lost names to other places.
    pub left: HashSet<InodeNo>,
    /// Inodes and names that are not on the device; used by an fsync of one file.
    pub pending: PendingInodes,
}

impl Order {
    /// Records that everything was written in order.
    pub fn settled(&mut self) {
        self.early_blocks.clear();
        self.linked.clear();
        self.left.clear();
        self.pending.settled();
    }
}

/// The parts of an inode that are not on the device.
#[derive(Default)]
pub(crate) struct Pending {
    /// The inode itself is new.
    pub(super) is_new: bool,
    /// Its name and the name's directory. `None` for an inode that was renamed, or that has no name
    /// yet or several new ones.
    pub(super) name: Option<(InodeNo, Box<[u8]>)>,
}

/// The inodes and names that are not on the device. Each is recorded after it was made, because an
/// operation may flush the volume to make room, and a flush clears all records.
pub(crate) struct PendingInodes {
    pub(super) inodes: HashMap<InodeNo, Pending, Hashing>,
    /// Names that the device may still have although they were removed, as directory and hash.
    removed: HashSet<(InodeNo, u64), Hashing>,
    /// A change was made that no closure can order: a directory was moved, or two names were
    /// exchanged.
    pub is_unordered: bool,
}

impl Default for PendingInodes {
    fn default() -> Self {
        Self {
            inodes: HashMap::with_hasher(hashing()),
            removed: HashSet::with_hasher(hashing()),
            is_unordered: false,
        }
    }
}

impl PendingInodes {
    /// Records a newly allocated inode.
    pub fn taken(&mut self, no: InodeNo) {
        self.inodes.insert(no, Pending { is_new: true, name: None });
    }

    /// Records the first name of a new inode. The inode may have been written since it was
    /// [taken](Self::taken), and then it has no record.
    pub fn named(&mut self, no: InodeNo, parent: InodeNo, name: &[u8]) {
        self.inodes.insert(no, Pending { is_new: true, name: Some((parent, name.into())) });
    }

    /// Records an additional or changed name of an inode.
    pub fn renamed(&mut self, no: InodeNo) {
        self.inodes.entry(no).or_default().name = None;
    }

    /// Records the removal of a name.
    pub fn name_removed(&mut self, parent: InodeNo, name: &[u8]) {
        let hash = self.removed.hasher().hash_one(name);
        self.removed.insert((parent, hash));
    }

    /// Whether a name was removed; may be `true` for others too, because only hashes are compared.
    pub(super) fn was_removed(&self, parent: InodeNo, name: &[u8]) -> bool {
        self.removed.contains(&(parent, self.removed.hasher().hash_one(name)))
    }

    /// Discards the record of an inode that was deleted.
    pub fn deleted(&mut self, no: InodeNo) {
        self.inodes.remove(&no);
    }

    pub(super) fn is_new(&self, no: InodeNo) -> bool {
        self.inodes.get(&no).is_some_and(|pending| pending.is_new)
    }

    /// Returns the approximate memory that this takes, in bytes.
    pub fn bytes(&self) -> usize {
        self.inodes.len() * (size_of::<(InodeNo, Pending)>() + NAME_BYTES)
            + self.removed.len() * size_of::<(InodeNo, u64)>()
    }

    /// Records that the device has everything.
    pub fn settled(&mut self) {
        self.inodes.clear();
        self.removed.clear();
        self.is_unordered = false;
    }
}
