//! The state of recording the changes of a volume.

use std::collections::HashSet;

use super::memory::Halves;
use super::record::Records;
use crate::cache::{Hashing, hashing};
use crate::types::{BlockNo, GroupNo};

/// The record of the changes of a volume.
pub(crate) struct KeptChanges {
    pub(super) halves: Halves,
    /// Whether the next commit writes a complete set of records.
    pub(super) is_due: bool,
    /// Whether the latest flush is a part of an operation.
    pub(super) flushes_within_operation: bool,
    /// The blocks and groups whose committed state is recorded, because it may differ from the
    /// state on the device.
    pub(super) blocks: HashSet<BlockNo, Hashing>,
    pub(super) groups: HashSet<GroupNo>,
    /// A buffer for encoding.
    pub(super) buffer: Records,
}

impl KeptChanges {
    pub(super) fn new(halves: Halves) -> Self {
        Self {
            halves,
            is_due: true,
            flushes_within_operation: false,
            blocks: HashSet::with_hasher(hashing()),
            groups: HashSet::new(),
            buffer: Records::default(),
        }
    }

    /// Invalidates all records. No daemon can take over until a complete set of records fits again.
    pub(super) fn give_up(&mut self) {
        tracing::warn!(
            "too many changes of this file system are not yet on the device; until they are \
             written, no other daemon can take over this mount"
        );
        self.halves.end();
        self.is_due = true;
    }
}
