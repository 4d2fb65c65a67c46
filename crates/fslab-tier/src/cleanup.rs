//! Removes an incomplete home or archive after a failure.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::{fs, iter};

/// Files and directories that a command made. They are removed on drop, unless [`Self::keep`] was
/// called. A directory in which another process created files is kept.
#[derive(Default)]
#[must_use = "dropped, it removes what was made"]
pub struct Cleanup {
    paths: Vec<PathBuf>,
    others: Vec<Box<dyn FnOnce() + Send>>,
}

/// Returns those of the following paths that do not exist: a directory, and the given names in it.
pub(crate) fn absent(directory: &Path, names: &[&str]) -> Vec<PathBuf> {
    let inside = names.iter().map(|name| directory.join(name));
    let is_absent = |path: &PathBuf| {
        let found = path.symlink_metadata();
        found.is_err_and(|error| error.kind() == ErrorKind::NotFound)
    };
    iter::once(directory.to_owned()).chain(inside).filter(is_absent).collect()
}

impl Cleanup {
    /// Makes a cleanup that calls a function, for remote objects. The function reports its own
    /// failures.
    pub fn by(remove: impl FnOnce() + Send + 'static) -> Self {
        Self { paths: Vec::new(), others: vec![Box::new(remove)] }
    }

    /// Adds paths that did not exist before and that this command has created.
    pub(crate) fn add(&mut self, new: Vec<PathBuf>) {
        self.paths.extend(new);
    }

    /// Adds everything that another cleanup would remove.
    pub(crate) fn join(&mut self, mut other: Self) {
        self.paths.append(&mut other.paths);
        self.others.append(&mut other.others);
    }

    /// Keeps everything that was made.
    pub fn keep(mut self) {
        self.paths.clear();
        self.others.clear();
    }
}

impl Drop for Cleanup {
    fn drop(&mut self) {
        self.others.drain(..).rev().for_each(|remove| remove());
        for path in self.paths.iter().rev() {
            if let Err(error) = remove(path) {
                tracing::warn!("can't remove the new {} after a failure: {error}", path.display());
            }
        }
    }
}

fn remove(path: &Path) -> io::Result<()> {
    let removed = match path.symlink_metadata() {
        Ok(found) if found.is_dir() => fs::remove_dir(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}
