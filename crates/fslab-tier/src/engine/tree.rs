//! The tree as a whole: its names, scans of all files, and its archived form.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::engine::Tier;

pub(super) mod archived_tree;
pub(super) mod open_epoch;
pub(super) mod removal;
pub(super) mod renames;
pub(super) mod scan;
pub(super) mod unmounted_scan;
pub(super) mod walk;

/// The state of the tree as a whole.
pub(super) struct TreeState {
    renames: renames::Renames,
    /// Whether the catalogue may not match the tree, for example because the last use did not end
    /// cleanly. A complete scan sets it to `false`.
    in_doubt: AtomicBool,
    /// Whether the last scan could not list all objects with sources, although all archives were
    /// available.
    listing_failed: AtomicBool,
    /// Whether programs use the tree through the mount, which reports renames to scans.
    is_served: AtomicBool,
}

impl Default for TreeState {
    fn default() -> Self {
        Self {
            renames: renames::Renames::default(),
            in_doubt: AtomicBool::new(true),
            listing_failed: AtomicBool::new(false),
            is_served: AtomicBool::new(false),
        }
    }
}

impl TreeState {
    pub(super) fn set_in_doubt(&self, in_doubt: bool) {
        self.in_doubt.store(in_doubt, Ordering::SeqCst);
    }

    fn set_listing_failed(&self, has_failed: bool) {
        self.listing_failed.store(has_failed, Ordering::SeqCst);
    }

    /// Returns whether the last scan of this engine could not list all objects with sources,
    /// although all archives were available.
    pub(super) fn has_listing_failed(&self) -> bool {
        self.listing_failed.load(Ordering::SeqCst)
    }
}

impl Tier {
    pub(crate) fn is_in_doubt(&self) -> bool {
        self.tree.in_doubt.load(Ordering::SeqCst)
    }
}
