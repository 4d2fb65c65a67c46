//! Removes a half-made home or archive after a failure.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::{fs, iter};

/// Files and directories that were not there before; removed, unless all went well. A directory
/// that somebody has put something into stays.
#[derive(Default)]
#[must_use = "dropped, it removes what was made"]
pub(crate) struct Cleanup(Vec<PathBuf>);

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
    /// What was absent, once it was made by nobody else.
    pub(crate) fn add(&mut self, new: Vec<PathBuf>) {
        self.0.extend(new);
    }

    /// Removes what another one would remove, too.
    pub(crate) fn join(&mut self, mut other: Self) {
        self.0.append(&mut other.0);
    }

    /// All of it stays.
    pub(crate) fn keep(mut self) {
        self.0.clear();
    }
}

impl Drop for Cleanup {
    fn drop(&mut self) {
        for path in self.0.iter().rev() {
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
