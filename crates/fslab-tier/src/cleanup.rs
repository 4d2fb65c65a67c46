//! Removes a half-made home or archive after a failure.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::{fs, iter};

/// Files and directories that were not there before; removed, unless all went well. A directory
/// that somebody has put something into stays.
#[derive(Default)]
#[must_use = "dropped, it removes what was made"]
pub struct Cleanup {
    paths: Vec<PathBuf>,
    others: Vec<Box<dyn FnOnce() + Send>>,
}

/// Which of a directory and of such names in it are not there.
pub(crate) fn absent(directory: &Path, names: &[&str]) -> Vec<PathBuf> {
    let inside = names.iter().map(|name| directory.join(name));
    let is_absent = |path: &PathBuf| {
        let found = path.symlink_metadata();
        found.is_err_and(|error| error.kind() == ErrorKind::NotFound)
    };
    iter::once(directory.to_owned()).chain(inside).filter(is_absent).collect()
}

impl Cleanup {
    /// One that removes what is no path of this machine. The function reports its own failures.
    pub fn by(remove: impl FnOnce() + Send + 'static) -> Self {
        Self { paths: Vec::new(), others: vec![Box::new(remove)] }
    }

    /// What was absent, once it was made by nobody else.
    pub(crate) fn add(&mut self, new: Vec<PathBuf>) {
        self.paths.extend(new);
    }

    /// Removes what another one would remove, too.
    pub(crate) fn join(&mut self, mut other: Self) {
        self.paths.append(&mut other.paths);
        self.others.append(&mut other.others);
    }

    /// All of it stays.
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
                tracing::warn!("{}: was made, and can't be removed: {error}", path.display());
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
