//! What is known of changes that wait to be written: which must wait for others, and what the
//! device does not have.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::cache::{Hashing, hashing};
use crate::types::{BlockNo, InodeNo};

/// What a name takes in memory, on average.
const NAME_BYTES: usize = 32;

/// What must reach the device after something else.
#[derive(Default)]
pub(crate) struct Order {
    /// Inodes whose change must not be seen before the directories', as they were before it.
    pub late_inodes: BTreeMap<InodeNo, Box<[u8]>>,
    /// Directory blocks that names were moved to, or that lead to new directories: others are
    /// written after them.
    pub early_blocks: HashSet<BlockNo>,
    /// Inodes that were given one more name, and the block that it went to.
    pub linked: HashMap<InodeNo, BlockNo>,
    /// Directories that names left for other places.
    pub left: HashSet<InodeNo>,
    /// Inodes and names that the device does not have, for an fsync of one file.
    pub pending: PendingInodes,
}

impl Order {
    /// All that waited for something was written after it.
    pub fn settled(&mut self) {
        self.early_blocks.clear();
        self.linked.clear();
        self.left.clear();
        self.pending.settled();
    }
}

/// What the device does not have of an inode.
#[derive(Default)]
pub(crate) struct Pending {
    /// The inode itself is new.
    pub(super) is_new: bool,
    /// Its name and the name's directory; `None` for an inode that has no name yet, several new
    /// ones, or was renamed.
    pub(super) name: Option<(InodeNo, Box<[u8]>)>,
}

/// The inodes and names that the device does not have. Each is noted after it was made:
/// an operation may flush the volume while it makes room, and a flush clears all notes.
pub(crate) struct PendingInodes {
    pub(super) inodes: HashMap<InodeNo, Pending, Hashing>,
    /// Names that the device may have although they were removed: directories, and hashes.
    removed: HashSet<(InodeNo, u64), Hashing>,
    /// A change was made whose order on the device no closure tells: a directory was moved, or two
    /// names were exchanged.
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
    /// A new inode was taken.
    pub fn taken(&mut self, no: InodeNo) {
        self.inodes.insert(no, Pending { is_new: true, name: None });
    }

    /// A new inode was given its first name. It may have been written since it was
    /// [taken](Self::taken), and then it is not among these any more.
    pub fn named(&mut self, no: InodeNo, parent: InodeNo, name: &[u8]) {
        self.inodes.insert(no, Pending { is_new: true, name: Some((parent, name.into())) });
    }

    /// An inode was given a name that is not its first.
    pub fn renamed(&mut self, no: InodeNo) {
        self.inodes.entry(no).or_default().name = None;
    }

    /// A name was taken out of a directory.
    pub fn name_removed(&mut self, parent: InodeNo, name: &[u8]) {
        let hash = self.removed.hasher().hash_one(name);
        self.removed.insert((parent, hash));
    }

    /// Whether a name was removed; of some that were not, too.
    pub(super) fn was_removed(&self, parent: InodeNo, name: &[u8]) -> bool {
        self.removed.contains(&(parent, self.removed.hasher().hash_one(name)))
    }

    /// An inode was deleted with its name.
    pub fn deleted(&mut self, no: InodeNo) {
        self.inodes.remove(&no);
    }

    pub(super) fn is_new(&self, no: InodeNo) -> bool {
        self.inodes.get(&no).is_some_and(|pending| pending.is_new)
    }

    /// Bytes of memory that this takes, about.
    pub fn bytes(&self) -> usize {
        self.inodes.len() * (size_of::<(InodeNo, Pending)>() + NAME_BYTES)
            + self.removed.len() * size_of::<(InodeNo, u64)>()
    }

    /// The device has everything.
    pub fn settled(&mut self) {
        self.inodes.clear();
        self.removed.clear();
        self.is_unordered = false;
    }
}
