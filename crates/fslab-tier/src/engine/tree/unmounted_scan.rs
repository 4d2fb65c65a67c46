//! Scans of a tree that is not mounted. Programs may change it directly, so the scan is not
//! notified of renames. It detects them by the modification times of directories, because every
//! change of a name updates the time of its directory.

use std::sync::atomic::Ordering;

use fslab_vfs::{Attr, FileKind, Request};

use crate::engine::{Tier, Visit};
use crate::environment::InodeIdentity;
use crate::error::Result;

/// A digest of directories and their modification times, independent of their order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Directories {
    count: u64,
    sum: u64,
}

impl Directories {
    /// Adds a directory with its attributes from before it was listed; ignores other types of
    /// inodes.
    pub(in crate::engine) fn add(&mut self, attr: &Attr, tell: InodeIdentity) {
        if attr.kind != FileKind::Directory {
            return;
        }
        let mut hasher = blake3::Hasher::new();
        hasher.update(&tell(attr).0);
        hasher.update(&attr.modified.seconds.to_le_bytes());
        hasher.update(&attr.modified.nanoseconds.to_le_bytes());
        let mut number = [0; 8];
        hasher.finalize_xof().fill(&mut number);
        self.count += 1;
        self.sum = self.sum.wrapping_add(u64::from_le_bytes(number));
    }
}

impl Tier {
    /// Records that programs now use the tree through the mount, which reports renames to scans.
    pub(crate) fn is_served_from_now_on(&self) {
        self.tree.is_served.store(true, Ordering::SeqCst);
    }

    /// Returns whether a walk has visited every file. `listed` is the digest of the directories,
    /// each with its time from before it was listed. The walk is complete if no directory has
    /// changed since.
    pub(super) fn has_met_all(&self, listed: Directories, request: &Request) -> Result<bool> {
        if self.tree.is_served.load(Ordering::SeqCst) {
            return Ok(true);
        }
        let mut now = Directories::default();
        self.walk(b"", request, &mut |place| {
            now.add(&place.found.attr, self.around.inode_identity);
            Ok(Visit::Descend)
        })?;
        Ok(now == listed)
    }
}
