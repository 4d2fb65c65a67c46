//! The entries of a directory, by name and by position.
//!
//! Invariant: a position is assigned once and never reused. So a listing that continues from a
//! position delivers each entry that exists during the whole listing exactly once. Other entries
//! may be created and removed during the listing.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::sync::Arc;

use crate::types::{FileKind, Ino};

/// Position of the first real entry; `.` is at 0 and `..` at 1.
const FIRST_POSITION: u64 = 2;

#[derive(Debug)]
pub(super) struct Directory {
    /// The inode of `..`; the root is its own parent.
    pub parent: Ino,
    names: HashMap<Arc<OsStr>, u64>,
    slots: BTreeMap<u64, Slot>,
    next_position: u64,
}

#[derive(Clone, Debug)]
pub(super) struct Slot {
    pub name: Arc<OsStr>,
    pub ino: Ino,
    pub kind: FileKind,
}

impl Directory {
    pub fn new(parent: Ino) -> Self {
        Self {
            parent,
            names: HashMap::new(),
            slots: BTreeMap::new(),
            next_position: FIRST_POSITION,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    pub fn get(&self, name: &OsStr) -> Option<&Slot> {
        self.names.get(name).and_then(|position| self.slots.get(position))
    }

    /// Sets the inode of `name`. An existing name keeps its position.
    pub fn set(&mut self, name: &OsStr, ino: Ino, kind: FileKind) {
        if let Some(position) = self.names.get(name) {
            if let Some(slot) = self.slots.get_mut(position) {
                (slot.ino, slot.kind) = (ino, kind);
            }
            return;
        }
        let name: Arc<OsStr> = name.into();
        self.names.insert(Arc::clone(&name), self.next_position);
        self.slots.insert(self.next_position, Slot { name, ino, kind });
        self.next_position += 1;
    }

    pub fn remove(&mut self, name: &OsStr) {
        if let Some(position) = self.names.remove(name) {
            self.slots.remove(&position);
        }
    }

    /// The position after the last entry ever created.
    pub fn end(&self) -> u64 {
        self.next_position
    }

    /// Returns up to `count` entries from `from` on and before `end`, each with its position.
    pub fn list(&self, own: Ino, from: u64, end: u64, count: usize) -> Vec<(u64, Slot)> {
        let dots = [(0, ".", own), (1, "..", self.parent)].map(|(position, name, ino)| {
            let name = OsStr::new(name).into();
            (position, Slot { name, ino, kind: FileKind::Directory })
        });
        let real = self.slots.range(from.max(FIRST_POSITION)..end.max(from).max(FIRST_POSITION));
        dots.into_iter()
            .filter(|(position, _)| *position >= from)
            .chain(real.map(|(position, slot)| (*position, slot.clone())))
            .take(count)
            .collect()
    }
}
