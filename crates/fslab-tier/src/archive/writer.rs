//! A tree that writes to archives, and its record of the archives that it opened.

use std::path::PathBuf;
use std::sync::Arc;

use fslab_vfs::{FileSystem, Timestamp};
use parking_lot::Mutex;

use crate::environment::Environment;
use crate::error::{Error, Result};
use crate::id::Id;
use crate::stored::{Opening, WriterMark};

/// A tree that opens archives.
#[derive(Clone)]
pub struct Writer {
    /// The identity of the tree.
    pub mark: WriterMark,
    /// The directory of the tree, for messages; `None` if it has no path.
    pub tree: Option<PathBuf>,
    /// The current time, which is recorded when the tree begins to write to an archive.
    pub since: Timestamp,
    /// The tree's record of the archives that it opened; `None` if no record is kept.
    pub openings: Option<Openings>,
}

/// A tree's record of the archives that it opened for writing.
#[derive(Clone)]
pub struct Openings {
    tree: Arc<dyn FileSystem>,
    around: Environment,
    /// Held while the record changes, because archives may be opened concurrently.
    changing: Arc<Mutex<()>>,
}

impl Openings {
    /// Returns the record of a tree.
    #[must_use]
    pub fn of(tree: &Arc<dyn FileSystem>, around: &Environment) -> Self {
        Self { tree: Arc::clone(tree), around: around.clone(), changing: Arc::default() }
    }

    /// Returns whether this tree recorded `opening` as its last opening of the archive, or as the
    /// one before it.
    ///
    /// # Errors
    /// Errors of the tree.
    pub fn has_opened(&self, archive: Id, opening: Id) -> Result<bool> {
        let known = self.around.marks.read_openings(&*self.tree);
        let known = known.map_err(Error::below(b""))?;
        let is_it = |known: &Opening| {
            known.archive == archive && [known.before, known.last].contains(&opening)
        };
        Ok(known.iter().any(is_it))
    }

    /// Records a new opening in the tree, before it is recorded in the archive.
    ///
    /// # Errors
    /// Errors of the tree, such as no space for an xattr.
    pub fn begin(&self, archive: Id, before: Option<Id>) -> fslab_vfs::Result<Id> {
        let _changing = self.changing.lock();
        let last = self.around.identities.make();
        let opening = Opening { archive, before: before.unwrap_or(last), last };
        self.around.marks.write_opening(&*self.tree, opening)?;
        Ok(last)
    }
}
