//! The directory of one comparison, with images, mount points and sources. It is removed at the
//! end.
//!
//! Its `lock` file is locked while the comparison runs. If another process can acquire the lock,
//! the owner has exited. The file gets its name only after it is locked. A comparison that is
//! starting is therefore never mistaken for a dead one.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::error::{Error, Result};

/// Prefix of the names of all work directories.
pub(crate) const PREFIX: &str = "fslab-compare-";

/// The file in a work directory that its owner keeps locked.
pub(crate) const LOCK: &str = "lock";

/// The name of the lock file until it is locked.
const UNLOCKED: &str = "lock.new";

/// A work directory; removed when dropped.
#[derive(Debug)]
pub(crate) struct WorkDirectory {
    directory: TempDir,
    _lock: File,
}

impl WorkDirectory {
    /// Makes a work directory in `parent`, which must exist.
    pub fn create(parent: &Path) -> Result<Self> {
        let parent = parent.canonicalize().map_err(Error::file(parent))?;
        let directory = TempDir::with_prefix_in(PREFIX, &parent).map_err(Error::file(&parent))?;
        let unlocked = directory.path().join(UNLOCKED);
        let lock = File::create(&unlocked).map_err(Error::file(&unlocked))?;
        lock.lock().map_err(Error::file(&unlocked))?;
        fs::rename(&unlocked, directory.path().join(LOCK)).map_err(Error::file(&unlocked))?;
        Ok(Self { directory, _lock: lock })
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Makes a directory within the work directory.
    pub fn subdirectory(&self, name: &str) -> Result<PathBuf> {
        let path = self.path().join(name);
        fs::create_dir_all(&path).map_err(Error::file(&path))?;
        Ok(path)
    }

    /// Removes the work directory. Returns an error if something can't be removed.
    pub fn close(self) -> Result<()> {
        let path = self.path().to_owned();
        self.directory.close().map_err(Error::file(&path))
    }
}

/// Fails if an image of `needed` bytes does not fit below `directory`.
pub(crate) fn check_space(directory: &Path, needed: u64) -> Result<()> {
    let stat =
        rustix::fs::statvfs(directory).map_err(|errno| Error::file(directory)(errno.into()))?;
    let free = stat.f_bavail.saturating_mul(stat.f_frsize);
    if free >= needed {
        return Ok(());
    }
    Err(Error::NoSpace { directory: directory.to_owned(), free, needed })
}
