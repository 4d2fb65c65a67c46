//! Walks through a tree, in order of names. A walk keeps one path in memory, and the remaining
//! names of each directory on it. It does not use recursion, because users can make a tree
//! arbitrarily deep.
//!
//! The tier of an ordinary user skips directories of other users that it may not read, such as
//! `lost+found`, and counts them. Archived versions of files in them are kept.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use fslab_vfs::{Errno, FileKind, Request};

use crate::engine::Tier;
use crate::error::{Error, Result, shown};
use crate::lower::{Found, is_missing, names};

/// An entry that is visited by a walk.
pub struct WalkEntry<'a> {
    /// The path from the root of the tree.
    pub path: &'a [u8],
    /// The inode.
    pub found: &'a Found,
}

/// How a walk continues after an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visit {
    /// The walk continues with the contents of this directory.
    Descend,
    /// The walk skips the contents of this directory.
    Skip,
}

/// Called with each entry of a walk.
pub(super) type Visitor<'a> = dyn FnMut(WalkEntry<'_>) -> Result<Visit> + 'a;

/// Called with each entry of a walk, and with the error of each entry that can't be examined.
pub(crate) type Looker<'a> = dyn FnMut(Result<WalkEntry<'_>>) -> Result<Visit> + 'a;

/// A directory on the path to the present entry.
struct Level {
    directory: Found,
    /// Length of the directory's path in bytes.
    path_length: usize,
    /// The names that were not visited yet.
    names: std::vec::IntoIter<OsString>,
}

impl Tier {
    /// Calls `visit` with the entry at a path and all entries under it, directories before their
    /// contents. Entries that are removed during the walk are skipped. Returns the number of
    /// skipped directories.
    ///
    /// # Errors
    /// Errors of the lower file system and of `visit`; [`Error::Interrupted`].
    pub fn walk(&self, path: &[u8], request: &Request, visit: &mut Visitor<'_>) -> Result<u64> {
        self.walk_on(path, request, &mut |place| visit(place?))
    }

    /// Walks like [`Self::walk`], but passes errors of entries to `look` and continues with the
    /// next entry.
    ///
    /// # Errors
    /// Errors of `look` and of the path itself; [`Error::Interrupted`].
    pub(crate) fn walk_on(
        &self,
        path: &[u8],
        request: &Request,
        look: &mut Looker<'_>,
    ) -> Result<u64> {
        let found = Found::at(&self.lower, path).map_err(Error::below(path))?;
        self.walk_found(path, found, request, look)
    }

    pub(super) fn walk_found(
        &self,
        path: &[u8],
        found: Found,
        request: &Request,
        visit: &mut Looker<'_>,
    ) -> Result<u64> {
        let (mut path, mut skipped) = (path.to_vec(), 0);
        let mut levels = Vec::from_iter(self.visit(&path, found, request, visit, &mut skipped)?);
        while let Some(level) = levels.last_mut() {
            path.truncate(level.path_length);
            let Some(name) = level.names.next() else {
                levels.pop();
                continue;
            };
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend(name.as_bytes());
            match Found::below(&self.lower, level.directory.ino(), &name) {
                Ok(found) => {
                    levels.extend(self.visit(&path, found, request, visit, &mut skipped)?)
                }
                Err(error) if is_missing(&error) => {}
                // The directory permits listing its names, but not examining its entries.
                Err(error) if self.is_closed(&level.directory, &error) => {
                    skip(&path[..level.path_length], &mut skipped);
                    levels.pop();
                }
                Err(error) => drop(visit(Err(Error::below(&path)(error)))?),
            }
        }
        Ok(skipped)
    }

    /// Returns whether an error means that a directory belongs to another user and is not
    /// accessible to the tier's user.
    fn is_closed(&self, directory: &Found, error: &fslab_vfs::Error) -> bool {
        error.errno() == Errno::ACCESS && !self.around.marks.are_believed(&directory.attr)
    }

    /// Visits an entry; returns its directory level if the walk continues with its contents.
    fn visit(
        &self,
        path: &[u8],
        found: Found,
        request: &Request,
        visit: &mut Looker<'_>,
        skipped: &mut u64,
    ) -> Result<Option<Level>> {
        self.check_going(request)?;
        let going = visit(Ok(WalkEntry { path, found: &found }))?;
        if found.attr.kind != FileKind::Directory || going == Visit::Skip {
            return Ok(None);
        }
        let mut names = match names(&*self.lower, found.ino()) {
            Ok(names) => names,
            Err(error) if is_missing(&error) => return Ok(None),
            Err(error) if self.is_closed(&found, &error) => {
                skip(path, skipped);
                return Ok(None);
            }
            Err(error) => return visit(Err(Error::below(path)(error))).map(|_behind_it| None),
        };
        names.sort_unstable();
        let (path_length, names) = (path.len(), names.into_iter());
        Ok(Some(Level { directory: found, path_length, names }))
    }
}

/// Logs and counts a skipped directory of another user.
fn skip(path: &[u8], skipped: &mut u64) {
    tracing::warn!(
        "{}: belongs to another user and can't be read; its content is skipped",
        shown(path)
    );
    *skipped += 1;
}
