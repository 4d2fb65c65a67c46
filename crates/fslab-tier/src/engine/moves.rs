//! Names that come while a scan walks: a file that moves from where the walk has not been to where
//! it was already would be missed, and its object taken for one that nobody needs.

use fslab_vfs::{Ino, Name, Request, Result};
use parking_lot::{Mutex, RwLock};

use super::Tier;
use super::walk::Visitor;
use crate::lower::Found;

/// What got another name during a scan.
#[derive(Default)]
pub(super) struct Moves {
    /// One scan at a time.
    scanning: Mutex<()>,
    /// Held by whoever changes names, until that is noted.
    under_way: RwLock<()>,
    /// Nothing while nobody scans.
    noted: Mutex<Option<Vec<Found>>>,
}

impl Tier {
    /// Gives something new names, and notes where they are if somebody scans.
    pub(crate) fn naming<T>(
        &self,
        names: &[(Ino, Name<'_>)],
        work: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let _under_way = self.moves.under_way.read();
        let done = work()?;
        if let Some(noted) = &mut *self.moves.noted.lock() {
            let found = |(parent, name): &(Ino, Name<'_>)| {
                Found::below(&self.lower, *parent, name.as_os_str()).ok()
            };
            noted.extend(names.iter().filter_map(found));
        }
        Ok(done)
    }

    /// Walks the whole tree, and whatever got another name meanwhile.
    pub(super) fn walk_all(&self, request: &Request, visit: &mut Visitor<'_>) -> crate::Result<()> {
        let _scanning = self.moves.scanning.lock();
        *self.moves.noted.lock() = Some(Vec::new());
        let walked = self.walk(b"", request, visit).and_then(|()| {
            while let Some(moved) = self.take_moved() {
                for found in moved {
                    self.walk_found(&self.path_of(&found), found, request, visit)?;
                }
            }
            Ok(())
        });
        *self.moves.noted.lock() = None;
        walked
    }

    /// What was noted so far; nothing once everybody who changes names was waited for and had noted
    /// nothing more.
    fn take_moved(&self) -> Option<Vec<Found>> {
        let _nobody = self.moves.under_way.write();
        let mut noted = self.moves.noted.lock();
        let moved = noted.take().filter(|moved| !moved.is_empty())?;
        *noted = Some(Vec::new());
        Some(moved)
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
