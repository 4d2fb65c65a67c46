//! A build folder in the cache, for clones that come and go (CI).
//!
//! Clones that build at the same time get different folders; clones that build one after the
//! other share one, so that dependencies are compiled once. The workspace's own crates are always
//! compiled anew: cargo compares times of files, and those of another clone prove nothing.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::{environment, process};

/// More clones than this at once build in their own folders.
const SLOTS: usize = 4;

/// Above this size a folder, which grows with each change of a dependency, is emptied.
const SIZE_MAX_BYTES: u64 = 12 << 30;

/// A build folder that nobody else uses until this is dropped.
pub struct TargetSlot {
    /// The folder, for `CARGO_TARGET_DIR`.
    pub folder: PathBuf,
    _lock: File,
}

impl TargetSlot {
    /// Takes the first free folder; `None` where all are taken.
    pub fn take() -> Result<Option<Self>> {
        let parent = environment::cache()?.join("targets");
        fs::create_dir_all(&parent).with_context(|| format!("cannot make {}", parent.display()))?;
        for number in 0..SLOTS {
            let folder = parent.join(number.to_string());
            if let Some(lock) = lock(&folder.with_extension("lock"))? {
                prepare(&folder)?;
                return Ok(Some(Self { folder, _lock: lock }));
            }
        }
        Ok(None)
    }
}

fn lock(path: &Path) -> Result<Option<File>> {
    let file = File::create(path).with_context(|| format!("cannot make {}", path.display()))?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => bail!("cannot lock {}: {error}", path.display()),
    }
}

fn prepare(folder: &Path) -> Result<()> {
    if !folder.exists() {
        return Ok(());
    }
    if size_of(folder)? > SIZE_MAX_BYTES {
        return fs::remove_dir_all(folder)
            .with_context(|| format!("cannot empty {}", folder.display()));
    }
    let mut clean = environment::cargo();
    clean.args(["clean", "--quiet", "--workspace"]).env("CARGO_TARGET_DIR", folder);
    process::capture(&mut clean).map(drop)
}

fn size_of(folder: &Path) -> Result<u64> {
    let mut total_bytes = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        total_bytes +=
            if kind.is_dir() { size_of(&entry.path())? } else { entry.metadata()?.len() };
    }
    Ok(total_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_had_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("0.lock");
        let first = lock(&path).unwrap();
        assert!(first.is_some());
        assert!(lock(&path).unwrap().is_none());
        drop(first);
        assert!(lock(&path).unwrap().is_some());
    }

    #[test]
    fn the_size_counts_files_at_all_depths() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("deep")).unwrap();
        fs::write(folder.path().join("a"), [0; 100]).unwrap();
        fs::write(folder.path().join("deep/b"), [0; 23]).unwrap();
        assert_eq!(size_of(folder.path()).unwrap(), 123);
    }
}
