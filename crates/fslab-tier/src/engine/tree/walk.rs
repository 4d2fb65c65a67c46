//! Walks of a tree, in order of names. Memory: one path, and the remaining names of each directory
//! on it. The walk is not recursive, since users decide how deep a tree is.
//!
//! A user's tier skips directories of other users that it may not read, such as the `lost+found` of
//! a disk, and counts them: files that were archived before are kept.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use fslab_vfs::{Errno, FileKind, Request};

use crate::engine::Tier;
use crate::error::{Error, Result, shown};
use crate::lower::{Found, is_missing, names};

/// Something met on a walk.
pub struct WalkEntry<'a> {
    /// From the root of the tree.
    pub path: &'a [u8],
    /// What is there.
    pub found: &'a Found,
}

/// Where a walk goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visit {
    /// With what is in this directory.
    Descend,
    /// Behind it.
    Skip,
}

/// Directories of others that were walked past.
#[derive(Debug, Default)]
pub struct SkippedDirectories {
    count: u64,
}

impl SkippedDirectories {
    fn add(&mut self, path: &[u8]) {
        tracing::warn!(
            "{}: is another user's and closed; what is in it is left alone",
            shown(path)
        );
        self.count += 1;
    }

    pub(in crate::engine) fn append(&mut self, other: &Self) {
        self.count += other.count;
    }

    /// Whether there is any: what was not met may be in one, wherever it was before.
    pub(super) fn is_any(&self) -> bool {
        self.count > 0
    }
}

/// Called with each place of a walk.
pub(super) type Visitor<'a> = dyn FnMut(WalkEntry<'_>) -> Result<Visit> + 'a;

/// Called with each place of a walk, and with why there is one that can't be looked at.
pub(crate) type Looker<'a> = dyn FnMut(Result<WalkEntry<'_>>) -> Result<Visit> + 'a;

/// A directory on the way to where a walk is.
struct Level {
    directory: Found,
    /// Of its path, in bytes.
    path_length: usize,
    /// Those that are left.
    names: std::vec::IntoIter<OsString>,
}

impl Tier {
    /// Calls `visit` with what a path stands for and everything below it, directories before what
    /// is in them. What goes meanwhile is left out. Returns what it walked past.
    ///
    /// # Errors
    /// What the file system below or `visit` answers; [`Error::Interrupted`].
    pub fn walk(
        &self,
        path: &[u8],
        request: &Request,
        visit: &mut Visitor<'_>,
    ) -> Result<SkippedDirectories> {
        self.walk_on(path, request, &mut |place| visit(place?))
    }

    /// The same for who goes on where something can't be looked at: `look` is told, and the walk
    /// goes on behind it.
    ///
    /// # Errors
    /// What `look` answers, and where the path itself can't be looked at; [`Error::Interrupted`].
    pub(crate) fn walk_on(
        &self,
        path: &[u8],
        request: &Request,
        look: &mut Looker<'_>,
    ) -> Result<SkippedDirectories> {
        let found = Found::at(&self.lower, path).map_err(Error::below(path))?;
        self.walk_found(path, found, request, look)
    }

    pub(super) fn walk_found(
        &self,
        path: &[u8],
        found: Found,
        request: &Request,
        visit: &mut Looker<'_>,
    ) -> Result<SkippedDirectories> {
        let (mut path, mut closed) = (path.to_vec(), SkippedDirectories::default());
        let mut levels = Vec::from_iter(self.visit(&path, found, request, visit, &mut closed)?);
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
                    levels.extend(self.visit(&path, found, request, visit, &mut closed)?)
                }
                Err(error) if is_missing(&error) => {}
                // Names can be read there, and nothing else.
                Err(error) if self.is_closed(&level.directory, &error) => {
                    closed.add(&path[..level.path_length]);
                    levels.pop();
                }
                Err(error) => drop(visit(Err(Error::below(&path)(error)))?),
            }
        }
        Ok(closed)
    }

    /// Whether a directory is one of others into which the user whose tier this is may not look.
    fn is_closed(&self, directory: &Found, error: &fslab_vfs::Error) -> bool {
        error.errno() == Errno::ACCESS && !self.around.marks.are_believed(&directory.attr)
    }

    /// Visits a place; returns the directory that it is, if the walk goes on with what is in it.
    fn visit(
        &self,
        path: &[u8],
        found: Found,
        request: &Request,
        visit: &mut Looker<'_>,
        closed: &mut SkippedDirectories,
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
                closed.add(path);
                return Ok(None);
            }
            Err(error) => return visit(Err(Error::below(path)(error))).map(|_behind_it| None),
        };
        names.sort_unstable();
        let (path_length, names) = (path.len(), names.into_iter());
        Ok(Some(Level { directory: found, path_length, names }))
    }
}
