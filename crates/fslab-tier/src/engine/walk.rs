//! Walking a tree, in order of names. Memory: one path, and of each directory on it the names that
//! are left. Nothing calls itself: how deep a tree is says whoever may make directories.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use fslab_vfs::{FileKind, Request};

use super::Tier;
use crate::error::{Error, Result};
use crate::lower::{Found, names};

/// Something met on a walk.
pub struct Place<'a> {
    /// From the root of the tree.
    pub path: &'a [u8],
    /// What is there.
    pub found: &'a Found,
}

/// Where a walk goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visit {
    /// With what is in this directory.
    Into,
    /// Behind it.
    Past,
}

/// Called with each place of a walk.
pub(super) type Visitor<'a> = dyn FnMut(Place<'_>) -> Result<Visit> + 'a;

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
    /// is in them. What goes meanwhile is left out.
    ///
    /// # Errors
    /// What the file system below or `visit` answers; [`Error::Interrupted`].
    pub fn walk(&self, path: &[u8], request: &Request, visit: &mut Visitor<'_>) -> Result<()> {
        let found = Found::at(&self.lower, path).map_err(Error::below(path))?;
        self.walk_found(path, found, request, visit)
    }

    pub(super) fn walk_found(
        &self,
        path: &[u8],
        found: Found,
        request: &Request,
        visit: &mut Visitor<'_>,
    ) -> Result<()> {
        let mut path = path.to_vec();
        let mut levels = Vec::from_iter(self.visit(&path, found, request, visit)?);
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
                Ok(found) => levels.extend(self.visit(&path, found, request, visit)?),
                Err(error) if is_gone(&error) => {}
                Err(error) => return Err(Error::below(&path)(error)),
            }
        }
        Ok(())
    }

    /// Visits a place; answers the directory that it is, if the walk goes on with what is in it.
    fn visit(
        &self,
        path: &[u8],
        found: Found,
        request: &Request,
        visit: &mut Visitor<'_>,
    ) -> Result<Option<Level>> {
        request.cancellation.check().or(Err(Error::Interrupted))?;
        let going = visit(Place { path, found: &found })?;
        if found.attr.kind != FileKind::Directory || going == Visit::Past {
            return Ok(None);
        }
        let mut names = match names(&*self.lower, found.ino()) {
            Ok(names) => names,
            Err(error) if is_gone(&error) => return Ok(None),
            Err(error) => return Err(Error::below(path)(error)),
        };
        names.sort_unstable();
        let (path_length, names) = (path.len(), names.into_iter());
        Ok(Some(Level { directory: found, path_length, names }))
    }
}

/// Whether something went, as opposed to can't be reached.
pub(super) fn is_gone(error: &fslab_vfs::Error) -> bool {
    matches!(error.errno(), fslab_vfs::Errno::NOENT | fslab_vfs::Errno::STALE)
}
