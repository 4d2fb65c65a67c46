//! Presents a directory of a tree as a separate tree.

use std::path::{Path, PathBuf};

use fslab_vfs::FileSystem;

use super::{Access, Status, Tree, TreeFile};
use crate::error::{Error, Result};

/// A directory of another tree.
pub(crate) struct SubTree<'a> {
    tree: &'a dyn Tree,
    directory: String,
    path: Option<PathBuf>,
}

impl<'a> SubTree<'a> {
    /// Makes a tree of an existing directory.
    pub fn new(tree: &'a dyn Tree, directory: &str) -> Self {
        let path = tree.path().map(|path| path.join(directory));
        Self { tree, directory: directory.to_owned(), path }
    }

    fn at(&self, path: &str) -> String {
        match path {
            "" => self.directory.clone(),
            path => format!("{}/{path}", self.directory),
        }
    }
}

impl Tree for SubTree<'_> {
    fn make_directory(&self, path: &str) -> Result<()> {
        self.tree.make_directory(&self.at(path))
    }

    fn create(&self, path: &str) -> Result<Box<dyn TreeFile + '_>> {
        self.tree.create(&self.at(path))
    }

    fn create_empty(&self, path: &str) -> Result<()> {
        self.tree.create_empty(&self.at(path))
    }

    fn open(&self, path: &str, access: Access) -> Result<Box<dyn TreeFile + '_>> {
        self.tree.open(&self.at(path), access)
    }

    fn status(&self, path: &str) -> Result<Status> {
        self.tree.status(&self.at(path))
    }

    fn list(&self, path: &str, each: &mut dyn FnMut(&str)) -> Result<()> {
        self.tree.list(&self.at(path), each)
    }

    fn rename(&self, path: &str, to: &str) -> Result<()> {
        self.tree.rename(&self.at(path), &self.at(to))
    }

    fn remove(&self, path: &str) -> Result<()> {
        self.tree.remove(&self.at(path))
    }

    fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    fn sync_all(&self) -> Result<()> {
        self.tree.sync_all()
    }

    fn with_file_system(&self, _work: &mut dyn FnMut(&dyn FileSystem) -> Result<()>) -> Result<()> {
        Err(Error::Failed(
            "this workload needs a whole file system, but here it has only one directory"
                .to_owned(),
        ))
    }
}
