//! The state of changes that have not been written yet: their order, and the inodes and names that
//! are not on the device.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::cache::{Hashing, hashing};
use crate::recent::Recent;
use crate::types::{BlockNo, InodeNo};

/// Assumed average memory for a name, in bytes.
const NAME_BYTES: usize = 32;

/// Changes that must reach the device after other changes.
#[derive(Default)]
pub(crate) struct Order {
    /// Inodes whose changes must reach the device after the directories, with their earlier bytes.
    pub late_inodes: BTreeMap<InodeNo, Box<[u8]>>,
    /// Inodes that were added to `late_inodes`, for `kept_changes`.
    pub recently_late: Recent<InodeNo>,
    /// Directory blocks that gained moved names, or that contain the names of new directories.
    /// Other blocks must be written after them.
    pub early_blocks: HashSet<BlockNo>,
    /// Inodes that gained an additional name, with the block of that name.
    pub linked: HashMap<InodeNo, BlockNo>,
    /// Directories out of which names were moved since the last flush.
    pub left: HashSet<InodeNo>,
    /// Whether a flush within an operation failed. The failed operation may have made changes whose
    /// order needed that flush. Therefore no other change begins before a flush succeeds.
    pub must_flush: bool,
    /// Inodes and names that are not on the device yet; used by an fsync of one file.
    pub pending: PendingInodes,
}

impl Order {
    /// Records that all changes have been written.
    pub fn settled(&mut self) {
        self.early_blocks.clear();
        self.linked.clear();
        self.left.clear();
        self.pending.settled();
    }
}

/// The parts of an inode that are not on the device yet.
#[derive(Default)]
pub(crate) struct Pending {
    /// Whether the inode itself is new.
    pub(super) is_new: bool,
    /// The directory that contains the inode's name, and the name. `None` if the inode was renamed,
    /// has no name yet, or has several new names.
    pub(super) name: Option<(InodeNo, Box<[u8]>)>,
}

/// The inodes and names that are not on the device yet. Each is recorded after the change itself,
/// because an operation may flush the volume to make room, and a flush clears all records.
pub(crate) struct PendingInodes {
    pub(super) inodes: HashMap<InodeNo, Pending, Hashing>,
    /// Names that were removed but may still be on the device, as pairs of directory and hash.
    removed: HashSet<(InodeNo, u64), Hashing>,
    /// Whether a change was made that no closure can write in the right order: a directory was
    /// moved, or two names were exchanged.
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

    /// Records the first name of a new inode. If the inode was written after it was
    /// [taken](Self::taken), it has no record until now.
    pub fn named(&mut self, no: InodeNo, parent: InodeNo, name: &[u8]) {
        self.inodes.insert(no, Pending { is_new: true, name: Some((parent, name.into())) });
    }

    /// Records an additional or changed name of an inode.
    pub fn renamed(&mut self, no: InodeNo) {
        self.inodes.entry(no).or_default().name = None;
    }

    pub fn name_removed(&mut self, parent: InodeNo, name: &[u8]) {
        let hash = self.removed.hasher().hash_one(name);
        self.removed.insert((parent, hash));
    }

    /// Whether a name was removed. May be `true` for a name that was not removed, because only
    /// hashes are compared.
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

    /// Returns the approximate memory that the records need, in bytes.
    pub fn bytes(&self) -> usize {
        self.inodes.len() * (size_of::<(InodeNo, Pending)>() + NAME_BYTES)
            + self.removed.len() * size_of::<(InodeNo, u64)>()
    }

    /// Records that everything is on the device.
    pub fn settled(&mut self) {
        self.inodes.clear();
        self.removed.clear();
        self.is_unordered = false;
    }
}
