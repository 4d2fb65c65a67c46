//! Runs the conformance suite over host directories: a temporary one, and those in
//! `FSLAB_TEST_DIRECTORIES` (separated by colons), such as mounts of other file systems.

use fslab_vfs_testing::scratch;
use std::path::{Path, PathBuf};

use fslab_vfs::{FileSystem, HostFs, HostOptions};
use fslab_vfs_testing::conformance::run_all;
use tempfile::TempDir;

pub fn make(path: &Path) -> Box<dyn FileSystem> {
    Box::new(HostFs::open(path, &HostOptions::default()).unwrap())
}

/// Directories to test in, each new and empty, removed when dropped.
pub fn directories() -> Vec<TempDir> {
    let own = scratch::folder(env!("CARGO_TARGET_TMPDIR"));
    let named = std::env::var_os("FSLAB_TEST_DIRECTORIES").unwrap_or_default();
    let named: Vec<PathBuf> =
        std::env::split_paths(&named).filter(|path| path.has_root()).collect();
    std::iter::once(own).chain(named).map(|path| TempDir::new_in(path).unwrap()).collect()
}

#[test]
fn host_directories_pass() {
    pass(&make);
}

#[test]
fn host_directories_pass_without_file_handles() {
    pass(&|path| {
        let host =
            HostFs::open(path, &HostOptions { file_handles: false, ..HostOptions::default() })
                .unwrap();
        assert!(!host.has_file_handles());
        Box::new(host)
    });
}

fn pass(make: &dyn Fn(&Path) -> Box<dyn FileSystem>) {
    let mut failed = 0;
    for directory in directories() {
        let report = run_all(&|| make(directory.path()), &[]);
        eprintln!("{}:\n{report}", directory.path().display());
        failed += usize::from(!report.is_success());
    }
    assert_eq!(failed, 0, "directories that failed; see above");
}
