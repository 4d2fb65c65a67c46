//! Walking a tree, in order of names. Memory: the names of one directory a level.

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

impl Tier {
    /// Calls `visit` with what a path stands for and everything below it, directories before what
    /// is in them. What goes meanwhile is left out.
    ///
    /// # Errors
    /// What the file system below or `visit` answers; [`Error::Interrupted`].
    pub fn walk(&self, path: &[u8], request: &Request, visit: &mut Visitor<'_>) -> Result<()> {
        let found = Found::at(&self.lower, path).map_err(Error::below(path))?;
        self.walk_found(path, &found, request, visit)
    }

    pub(super) fn walk_found(
        &self,
        path: &[u8],
        found: &Found,
        request: &Request,
        visit: &mut Visitor<'_>,
    ) -> Result<()> {
        request.cancellation.check().or(Err(Error::Interrupted))?;
        let (ino, kind) = (found.ino(), found.attr.kind);
        let going = visit(Place { path, found })?;
        if kind != FileKind::Directory || going == Visit::Past {
            return Ok(());
        }
        let mut below: Vec<OsString> = match names(&*self.lower, ino) {
            Ok(below) => below,
            Err(error) if is_gone(&error) => return Ok(()),
            Err(error) => return Err(Error::below(path)(error)),
        };
        below.sort_unstable();
        for name in below {
            let mut inner = path.to_vec();
            if !inner.is_empty() {
                inner.push(b'/');
            }
            inner.extend(name.as_bytes());
            match Found::below(&self.lower, ino, &name) {
                Ok(found) => self.walk_found(&inner, &found, request, visit)?,
                Err(error) if is_gone(&error) => {}
                Err(error) => return Err(Error::below(&inner)(error)),
            }
        }
        Ok(())
    }
}

fn is_gone(error: &fslab_vfs::Error) -> bool {
    matches!(error.errno(), fslab_vfs::Errno::NOENT | fslab_vfs::Errno::STALE)
}
