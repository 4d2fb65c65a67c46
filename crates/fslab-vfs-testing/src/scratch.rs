//! Where tests put the trees that they mount and convert.

use std::path::PathBuf;

/// A folder on a disk: the one that `FSLAB_DISK` names, else the temporary folder. For tests that
/// bound their memory: files in memory would count towards the bound.
#[must_use]
pub fn on_disk() -> PathBuf {
    std::env::var_os("FSLAB_DISK").map_or_else(std::env::temp_dir, PathBuf::from)
}

/// The folder that `FSLAB_SCRATCH` names, else `own`: cargo's folder for the test program, which is
/// on a file system of a disk even where the temporary folder is in memory. `cargo xtask test`
/// makes a file system for tests and names it.
#[must_use]
pub fn folder(own: &str) -> PathBuf {
    std::env::var_os("FSLAB_SCRATCH").map_or_else(|| own.into(), PathBuf::from)
}
