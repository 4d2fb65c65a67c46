//! Tracks renames during a scan. A file that moves from an unvisited directory to a visited one
//! would be missed by the walk, and its object recorded as unneeded.
//!
//! So after the walk, the scan visits every inode that got a new name. Directories are visited with
//! their contents. Each inode is visited only once, so that a program that renames a file
//! repeatedly can't keep a scan from ending. One visit of a directory is enough, because an inode
//! that is later moved into it is recorded itself.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use fslab_vfs::{Ino, Name, Request, Result};
use parking_lot::{Mutex, RwLock};

use crate::engine::Tier;
use crate::engine::tree::walk::{Visit, Visitor};
use crate::error::Error;
use crate::lower::{Found, is_missing};

/// Maximum number of renamed inodes that a scan records; they need some 40 MB.
const NOTED_MAX: usize = 1 << 16;

/// Inodes that were renamed during a scan.
#[derive(Default)]
pub(super) struct Renames {
    /// Serialises scans.
    scanning: Mutex<()>,
    /// Held for reading while a name changes, until the change is recorded.
    under_way: RwLock<()>,
    /// `None` while no scan is running.
    noted: Mutex<Option<Noted>>,
}

/// Inodes that were renamed since a scan began.
#[derive(Default)]
struct Noted {
    /// For each renamed inode, whether it was visited after the walk. An inode number may be reused
    /// during the walk, but only for a new file, which needs no visit.
    inodes: HashMap<Ino, bool>,
    /// Inodes that are still to be visited.
    pending: Vec<Found>,
    /// Whether a renamed inode may be missing from `inodes`.
    has_gaps: bool,
    /// Whether the walk has ended and the renamed inodes are being visited.
    is_behind: bool,
}

impl Noted {
    fn add(&mut self, found: Found) {
        let is_full = self.inodes.len() >= NOTED_MAX;
        match self.inodes.entry(found.ino()) {
            Entry::Occupied(_) => {}
            Entry::Vacant(_) if is_full => self.has_gaps = true,
            Entry::Vacant(free) => {
                free.insert(false);
                self.pending.push(found);
            }
        }
    }

    /// Returns whether an inode must still be visited after the walk, and marks it as visited.
    fn is_new(&mut self, ino: Ino) -> bool {
        self.inodes.get_mut(&ino).is_none_or(|was_seen| !std::mem::replace(was_seen, true))
    }
}

impl Tier {
    /// Calls `work`, which creates or changes names, and records their inodes if a scan is running.
    pub(crate) fn naming<T>(
        &self,
        names: &[(Ino, Name<'_>)],
        work: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let _under_way = self.tree.renames.under_way.read();
        let done = work()?;
        if self.tree.renames.noted.lock().is_some() {
            for (parent, name) in names {
                self.note(Found::below(&self.lower, *parent, name.as_os_str()));
            }
        }
        Ok(done)
    }

    fn note(&self, found: Result<Found>) {
        let mut noted = self.tree.renames.noted.lock();
        let Some(noted) = &mut *noted else { return };
        match found {
            Ok(found) => noted.add(found),
            // The name was changed again, and that change records the inode.
            Err(error) if is_missing(&error) => {}
            Err(error) => {
                tracing::warn!(
                    %error,
                    "the running scan may be incomplete, because it can't examine a renamed file"
                );
                noted.has_gaps = true;
            }
        }
    }

    /// Walks the whole tree, and then visits all inodes that were renamed during the walk. Returns
    /// the number of skipped directories.
    ///
    /// # Errors
    /// The errors of [`Self::walk_through`]; also fails if an inode may have been missed.
    pub(super) fn walk_all(
        &self,
        request: &Request,
        visit: &mut Visitor<'_>,
    ) -> crate::Result<u64> {
        let (skipped, was_all_seen) = self.walk_through(request, visit)?;
        if was_all_seen { Ok(skipped) } else { Err(missed()) }
    }

    /// Walks like [`Self::walk_all`], but does not fail if an inode was missed. Also returns
    /// whether all inodes were visited.
    ///
    /// # Errors
    /// Errors of the lower file system and of `visit`; [`Error::Interrupted`].
    pub(super) fn walk_through(
        &self,
        request: &Request,
        visit: &mut Visitor<'_>,
    ) -> crate::Result<(u64, bool)> {
        let _scanning = self.lock_while_going(&self.tree.renames.scanning, request)?;
        *self.tree.renames.noted.lock() = Some(Noted::default());
        let walked = self.walk(b"", request, visit).and_then(|mut skipped| {
            if let Some(noted) = &mut *self.tree.renames.noted.lock() {
                noted.is_behind = true;
            }
            while let Some(found) = self.next_noted() {
                let path = self.path_of(&found);
                skipped += self.walk_found(&path, found, request, &mut |place| {
                    let place = place?;
                    let ino = place.found.ino();
                    let mut noted = self.tree.renames.noted.lock();
                    let is_new = noted.as_mut().is_none_or(|noted| noted.is_new(ino));
                    drop(noted);
                    if is_new { visit(place) } else { Ok(Visit::Skip) }
                })?;
            }
            Ok(skipped)
        });
        let noted = self.tree.renames.noted.lock().take();
        walked.map(|skipped| (skipped, noted.is_some_and(|noted| !noted.has_gaps)))
    }

    /// Returns whether the walk has ended, so that the renamed inodes are now being visited.
    pub(super) fn is_walking_renamed(&self) -> bool {
        self.tree.renames.noted.lock().as_ref().is_some_and(|noted| noted.is_behind)
    }

    /// Returns the next recorded inode. Returns `None` only after running changes of names have
    /// ended.
    fn next_noted(&self) -> Option<Found> {
        let next = || self.tree.renames.noted.lock().as_mut().and_then(|noted| noted.pending.pop());
        if let Some(found) = next() {
            return Some(found);
        }
        let _nobody = self.tree.renames.under_way.write();
        next()
    }

    /// Returns the path from the root of the tree, if the lower file system knows it; otherwise an
    /// empty path.
    fn path_of(&self, found: &Found) -> Vec<u8> {
        use std::os::unix::ffi::OsStrExt;
        let below = |ino| self.lower.path_below(ino);
        let (path, root) = (below(found.ino()), below(Ino::ROOT));
        let inner = path.zip(root).and_then(|(path, root)| {
            let inner = path.strip_prefix(root).ok()?;
            Some(inner.as_os_str().as_bytes().to_vec())
        });
        inner.unwrap_or_default()
    }
}

fn missed() -> Error {
    Error::Refused {
        what: format!(
            "not every file was seen: during the scan, more than {NOTED_MAX} files were renamed, \
             or a renamed file could not be found again. All objects are kept; scan again"
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use fslab_vfs::{FileSystem, MemFs};
    use fslab_vfs_testing::client::Client;

    use super::*;

    #[test]
    fn noted_renames_are_bounded() {
        let lower: Arc<dyn FileSystem> = Arc::new(MemFs::default());
        let client = Client::new(&*lower);
        let [known, other] = ["known", "other"].map(|name| client.mkdir(Ino::ROOT, name).unwrap());
        let found = |name: &str| Found::below(&lower, Ino::ROOT, name.as_ref()).unwrap();
        let mut noted = Noted::default();
        noted.add(found("known"));
        noted.inodes.extend((1..NOTED_MAX as u64).map(|number| (Ino(1 << 40 | number), true)));
        noted.add(found("known"));
        assert!(noted.is_new(known) && !noted.is_new(known));
        assert!(!noted.has_gaps && noted.pending.len() == 1);
        noted.add(found("other"));
        assert!(noted.has_gaps && noted.is_new(other) && noted.is_new(other));
        assert_eq!((noted.inodes.len(), noted.pending.len()), (NOTED_MAX, 1));
    }
}
