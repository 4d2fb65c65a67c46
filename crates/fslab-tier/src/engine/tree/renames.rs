//! Renames during a scan. A file that moves from a place that the walk has not reached to one that
//! it has passed would be missed, and its object taken for unneeded.
//!
//! So everything that got a new name is visited after the walk, with everything in it, and once
//! only: what moves into it later gets a new name itself. Otherwise a program that renames a file
//! again and again would keep a scan from ending.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use fslab_vfs::{Ino, Name, Request, Result};
use parking_lot::{Mutex, RwLock};

use crate::engine::Tier;
use crate::engine::tree::walk::{Visit, Visitor};
use crate::error::Error;
use crate::lower::{Found, is_missing};

/// Inodes that a scan remembers because they got another name: some 40 MB of them.
const NOTED_MAX: usize = 1 << 16;

/// What got another name during a scan.
#[derive(Default)]
pub(super) struct Renames {
    /// One scan at a time.
    scanning: Mutex<()>,
    /// Held by whoever changes names, until that is noted.
    under_way: RwLock<()>,
    /// Nothing while nobody scans.
    noted: Mutex<Option<Noted>>,
}

/// Inodes that got another name since a scan began.
#[derive(Default)]
struct Noted {
    /// Whether each was looked at behind the walk. A number may be used again: then for a file that
    /// was made meanwhile, and needs not be seen.
    inodes: HashMap<Ino, bool>,
    /// Those that are to be looked at.
    pending: Vec<Found>,
    /// Something got another name and is not among them.
    has_gaps: bool,
    /// They are looked at by now.
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

    /// Whether an inode is to be looked at behind the walk, as it is now.
    fn is_new(&mut self, ino: Ino) -> bool {
        self.inodes.get_mut(&ino).is_none_or(|was_seen| !std::mem::replace(was_seen, true))
    }
}

impl Tier {
    /// Gives something new names, and notes where they are if somebody scans.
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
            // Whoever gave it a further name notes that.
            Err(error) if is_missing(&error) => {}
            Err(error) => {
                tracing::warn!(%error, "a scan can't look at what got another name");
                noted.has_gaps = true;
            }
        }
    }

    /// Walks the whole tree, and whatever got another name meanwhile.
    ///
    /// # Errors
    /// Where something may have been missed, too.
    pub(super) fn walk_all(
        &self,
        request: &Request,
        visit: &mut Visitor<'_>,
    ) -> crate::Result<u64> {
        let (skipped, was_all_seen) = self.walk_through(request, visit)?;
        if was_all_seen { Ok(skipped) } else { Err(missed()) }
    }

    /// The same; returns whether nothing was missed.
    ///
    /// # Errors
    /// What the file system below or `visit` answers; [`Error::Interrupted`].
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

    /// Whether a walk is at what got another name.
    pub(super) fn is_walking_renamed(&self) -> bool {
        self.tree.renames.noted.lock().as_ref().is_some_and(|noted| noted.is_behind)
    }

    /// Nothing once everybody who changes names was waited for and had noted nothing more.
    fn next_noted(&self) -> Option<Found> {
        let next = || self.tree.renames.noted.lock().as_mut().and_then(|noted| noted.pending.pop());
        if let Some(found) = next() {
            return Some(found);
        }
        let _nobody = self.tree.renames.under_way.write();
        next()
    }

    /// From the root of the tree, where the file system below can tell.
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
            "not every file was seen, so nothing is taken for unneeded: while the tree was \
             scanned, more than {NOTED_MAX} files got other names, or one could not be found \
             again; scan once more"
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
