//! Finds mounts and work directories of killed comparisons, and removes them if that is safe.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fslab_sys::mounts;

use super::work_directory::{LOCK, PREFIX};
use crate::error::{Error, Result};

/// The work directory of a comparison that is no longer running.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leftover {
    /// The work directory.
    pub directory: PathBuf,
    /// Mount points below it, the innermost first.
    pub mounts: Vec<PathBuf>,
    /// Whether it was removed. If not, it is unknown whether its owner has exited.
    pub removed: bool,
}

/// Finds work directories of killed comparisons among the mounts and in `work_parent`. Removes
/// those whose lock is free, which proves that the owner has exited.
///
/// # Errors
/// Fails if mounts can't be listed, or a leftover whose owner has exited can't be removed.
pub fn remove_leftovers(work_parent: &Path) -> Result<Vec<Leftover>> {
    let proc_mounts = Path::new("/proc/self/mountinfo");
    let mounted: Vec<PathBuf> =
        mounts::list().map_err(Error::file(proc_mounts))?.into_iter().map(|m| m.target).collect();
    let mut directories: BTreeSet<PathBuf> =
        mounted.iter().filter_map(|target| work_directory_of(target)).collect();
    if work_parent.is_dir() {
        let entries = fs::read_dir(work_parent).map_err(Error::file(work_parent))?;
        let paths = entries.filter_map(|entry| entry.ok().map(|entry| entry.path()));
        directories.extend(paths.filter(|path| path.is_dir() && is_work_directory(path)));
    }
    let mut found = Vec::new();
    for directory in directories {
        found.extend(examine(directory, &mounted)?);
    }
    Ok(found)
}

/// Whether a path has the name of a comparison's work directory.
#[must_use]
pub fn is_work_directory(path: &Path) -> bool {
    path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(PREFIX))
}

fn work_directory_of(mount: &Path) -> Option<PathBuf> {
    mount.ancestors().find(|path| is_work_directory(path)).map(Path::to_owned)
}

/// Examines a work directory. Returns `None` if a comparison uses it.
fn examine(directory: PathBuf, mounted: &[PathBuf]) -> Result<Option<Leftover>> {
    let mounts: Vec<PathBuf> =
        mounted.iter().rev().filter(|target| target.starts_with(&directory)).cloned().collect();
    // Without a lock file, it is unknown whether the owner has exited.
    let path = directory.join(LOCK);
    let Ok(lock) = File::open(&path) else {
        return Ok((!mounts.is_empty()).then_some(Leftover { directory, mounts, removed: false }));
    };
    match lock.try_lock() {
        Ok(()) => {}
        Err(fs::TryLockError::WouldBlock) => return Ok(None),
        Err(fs::TryLockError::Error(error)) => return Err(Error::file(&directory)(error)),
    }
    // If the lock file no longer exists, the comparison has just ended. That comparison removes its
    // own directory.
    if !is_at(&lock, &path) {
        return Ok(None);
    }
    for mount in &mounts {
        mounts::unmount(mount, Duration::from_secs(2))?;
    }
    fs::remove_dir_all(&directory).map_err(Error::file(&directory))?;
    Ok(Some(Leftover { directory, mounts, removed: true }))
}

/// Whether a file still has the name by which it was opened.
fn is_at(file: &File, path: &Path) -> bool {
    let identity = |found: fs::Metadata| (found.dev(), found.ino());
    match (file.metadata(), fs::metadata(path)) {
        (Ok(own), Ok(named)) => identity(own) == identity(named),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::super::work_directory::WorkDirectory;
    use super::*;

    /// Examines every work directory until it is stopped, and returns the leftovers that it found.
    fn look(parent: &Path, stop: &AtomicBool) -> Vec<Leftover> {
        let mut found = Vec::new();
        while !stop.load(Ordering::Relaxed) {
            for entry in fs::read_dir(parent).unwrap() {
                found.extend(examine(entry.unwrap().path(), &[]).unwrap());
            }
        }
        found
    }

    /// Whether a new work directory keeps its lock and can be removed by its owner.
    fn is_kept(parent: &Path) -> bool {
        WorkDirectory::create(parent)
            .is_ok_and(|work| work.path().join(LOCK).exists() && work.close().is_ok())
    }

    /// Comparisons that begin and end during a search for leftovers keep their directories.
    #[test]
    fn work_directory_in_use_is_never_removed_as_a_leftover() {
        let parent = tempfile::tempdir_in(".").unwrap();
        let stop = AtomicBool::new(false);
        let found = std::thread::scope(|scope| {
            let looking = scope.spawn(|| look(parent.path(), &stop));
            let kept = (0..2000).all(|_| is_kept(parent.path()));
            stop.store(true, Ordering::Relaxed);
            assert!(kept, "its owner lost it");
            looking.join().unwrap()
        });
        assert_eq!(found, []);
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);
    }

    #[test]
    fn work_directory_of_an_exited_comparison_is_removed() {
        let parent = tempfile::tempdir_in(".").unwrap();
        let directory = parent.path().join(format!("{PREFIX}dead"));
        fs::create_dir(&directory).unwrap();
        File::create(directory.join(LOCK)).unwrap();
        let found = examine(directory.clone(), &[]).unwrap().unwrap();
        assert!(found.removed && !directory.exists());
    }
}
