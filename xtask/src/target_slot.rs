//! A build folder in the cache, for short-lived clones (CI).
//!
//! Clones that build at the same time get different folders. Clones that build one after the other
//! share a folder, so that only changed files are compiled. Cargo compares file times, but all
//! files of a fresh clone are new. So the folder keeps a list of the files from which it was built,
//! with their hashes and times. A file with unchanged content gets its old time back. A file with
//! changed content keeps its new time, and cargo compiles everything that depends on it.

use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::environment;

/// Number of folders. If all are in use, a clone builds in its own folder.
const SLOTS: usize = 4;

/// Maximum size of a folder in bytes. A folder grows with each change of a dependency and is
/// emptied above this size.
const SIZE_MAX_BYTES: u64 = 12 << 30;

/// Name of the list of files in a build folder.
const SOURCES: &str = "sources.json";

/// A build folder that no other process can use until this value is dropped.
pub struct TargetSlot {
    /// The folder, for `CARGO_TARGET_DIR`.
    pub folder: PathBuf,
    _lock: File,
}

impl TargetSlot {
    /// Takes the first free folder; returns `None` if all are in use.
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
    if folder.exists() && size_of(folder)? > SIZE_MAX_BYTES {
        fs::remove_dir_all(folder).with_context(|| format!("cannot empty {}", folder.display()))?;
    }
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let root = environment::workspace_root();
    let list = folder.join(SOURCES);
    let known = match fs::read(&list) {
        Ok(text) => serde_json::from_slice(&text).with_context(|| list.display().to_string())?,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Sources::default(),
        Err(error) => return Err(error).with_context(|| list.display().to_string()),
    };
    let sources = known.restore_times(&root, &environment::files()?)?;
    fs::write(&list, serde_json::to_vec(&sources)?).with_context(|| list.display().to_string())
}

/// The files from which a folder was built, by their paths in the clone.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Sources(BTreeMap<String, Source>);

/// The hash of a file's content, and the time of its last known change.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Source {
    sha256: String,
    /// Time of the last change, since 1970.
    changed: Duration,
}

impl Sources {
    /// Gives unchanged files below `root` their old times, and returns the new list.
    fn restore_times(&self, root: &Path, paths: &[String]) -> Result<Self> {
        let mut sources = BTreeMap::new();
        for path in paths {
            let place = root.join(path);
            let of_file = || place.display().to_string();
            let content = fs::read(&place).with_context(of_file)?;
            let sha256 = format!("{:x?}", Sha256::digest(&content).as_slice());
            let known = self.0.get(path).filter(|known| known.sha256 == sha256);
            let changed = match known {
                Some(known) => {
                    let file = File::options().write(true).open(&place).with_context(of_file)?;
                    file.set_modified(UNIX_EPOCH + known.changed).with_context(of_file)?;
                    known.changed
                }
                None => since_1970(fs::metadata(&place).and_then(|file| file.modified()))?,
            };
            sources.insert(path.clone(), Source { sha256, changed });
        }
        Ok(Self(sources))
    }
}

fn since_1970(time: std::io::Result<SystemTime>) -> Result<Duration> {
    time?.duration_since(UNIX_EPOCH).context("a file was changed before 1970")
}

/// Returns the size of all files in a folder, in bytes.
pub fn size_of(folder: &Path) -> Result<u64> {
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
    fn lock_is_exclusive() {
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

    /// Makes a clone with two files of the given contents.
    fn clone(a: &str, b: &str) -> tempfile::TempDir {
        let clone = tempfile::tempdir().unwrap();
        fs::write(clone.path().join("a"), a).unwrap();
        fs::write(clone.path().join("b"), b).unwrap();
        clone
    }

    #[test]
    fn files_of_a_new_clone_keep_their_times_unless_their_content_changed() {
        let paths = ["a".to_owned(), "b".to_owned()];
        let time = |clone: &tempfile::TempDir, name| {
            fs::metadata(clone.path().join(name)).unwrap().modified().unwrap()
        };
        let first = clone("same", "old");
        let known = Sources::default().restore_times(first.path(), &paths).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        let second = clone("same", "new");
        let known = known.restore_times(second.path(), &paths).unwrap();
        assert_eq!(time(&first, "a"), time(&second, "a"));
        assert!(time(&first, "b") < time(&second, "b"));
        std::thread::sleep(Duration::from_millis(20));
        let third = clone("same", "old");
        known.restore_times(third.path(), &paths).unwrap();
        assert!(time(&second, "b") < time(&third, "b"), "an old content is another one again");
    }
}
