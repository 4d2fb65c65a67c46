//! Folders for the trees that tests mount and convert.

use std::path::PathBuf;

/// A folder on a disk: `FSLAB_DISK` or the temporary folder. It is for tests that limit their
/// memory, because files in memory would count towards the limit.
#[must_use]
pub fn on_disk() -> PathBuf {
    std::env::var_os("FSLAB_DISK").map_or_else(std::env::temp_dir, PathBuf::from)
}

/// Returns the folder in `FSLAB_SCRATCH`, or `own` if the variable is not set. `own` is cargo's
/// folder for the test program, which is on a disk even if the temporary folder is in memory.
/// `cargo xtask test` creates a file system for tests and sets the variable.
#[must_use]
pub fn folder(own: &str) -> PathBuf {
    std::env::var_os("FSLAB_SCRATCH").map_or_else(|| own.into(), PathBuf::from)
}
