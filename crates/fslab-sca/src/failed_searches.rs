//! Records the files with a damaged index that could not be rebuilt from the frames.

use fslab_vfs::{Errno, Ino, Result, Timestamp};
use parking_lot::Mutex;

/// Maximum number of recorded files. Their records take 40 KiB.
const FILES_MAX: usize = 1024;

/// The state of a file when its frames were searched. A changed file is searched again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Searched {
    pub ino: Ino,
    /// Length of the stored file.
    pub length: u64,
    /// The change time (ctime), which no program can set.
    pub changed: Timestamp,
}

/// The failed searches of a mount.
#[derive(Default)]
pub struct FailedSearches(Mutex<Vec<Searched>>);

impl FailedSearches {
    /// Runs `search` unless it failed before for this state of the file. Records the state if the
    /// search fails or finds nothing.
    ///
    /// # Errors
    /// Errors of the search.
    pub fn search<T>(
        &self,
        file: Searched,
        search: impl FnOnce() -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        if self.0.lock().contains(&file) {
            return Ok(None);
        }
        let found = search();
        // Other errors, such as the cancellation by a caller, may not occur again.
        let has_failed = match &found {
            Ok(found) => found.is_none(),
            Err(error) => error.errno() == Errno::IO,
        };
        if has_failed {
            let mut failed = self.0.lock();
            if failed.len() >= FILES_MAX {
                failed.clear();
            }
            failed.push(file);
        }
        found
    }
}
