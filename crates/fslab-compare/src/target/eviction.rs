//! Makes a directory of a mounted file system cold: drops the cached pages of its files, and
//! verifies that none is left. As root, it also drops cached names and inodes.
//!
//! Blocks of directories and other metadata may remain in the cache of the underlying device. The
//! kernel does not show which file system they belong to.

use std::fs;
use std::os::fd::AsFd;
use std::path::Path;

use fslab_sys::page_cache;
use rustix::fs::{Advice, CWD, Mode, OFlags};
use rustix::io::Errno;

use super::fill::sync_file_system;
use crate::error::{Error, Result};
use crate::tree::copy::files_below;

/// Number of attempts to drop all pages; some may be in use for a moment.
const TRIES: u32 = 3;

const DROP_CACHES: &str = "/proc/sys/vm/drop_caches";

/// The value that makes the kernel drop unused inodes and names of all file systems.
const INODES_AND_NAMES: &str = "2";

/// Whether this process can drop names and inodes.
pub(crate) fn drops_names() -> bool {
    rustix::process::geteuid().is_root()
}

/// Makes all files below a directory cold.
///
/// # Errors
/// Fails if pages of a file remain in memory, or a file can't be read.
pub(super) fn evict(root: &Path) -> Result<()> {
    let mut files = files_below(root)?;
    files.retain(|(_, metadata)| metadata.is_file());
    for attempt in 1.. {
        sync_file_system(root)?;
        let mut left = None;
        for (path, _) in &files {
            let pages = drop_pages(path).map_err(|errno| Error::file(path)(errno.into()))?;
            left = left.or((pages > 0).then(|| (path.clone(), pages)));
        }
        match left {
            None => break,
            Some(_) if attempt < TRIES => {}
            Some((path, pages)) => {
                return Err(Error::Failed(format!(
                    "{}: {pages} pages of this file could not be dropped from memory, so its \
                     directory can't be made cold; remove `cold` from the target",
                    path.display()
                )));
            }
        }
    }
    if drops_names() {
        let path = Path::new(DROP_CACHES);
        fs::write(path, INODES_AND_NAMES).map_err(Error::file(path))?;
    }
    Ok(())
}

/// Verifies with a temporary file that files in a directory can be made cold.
pub(super) fn check(directory: &Path) -> Result<()> {
    let path = directory.join("fslab-cold");
    fs::write(&path, vec![1; 1 << 16]).map_err(Error::file(&path))?;
    let evicted = evict(directory);
    fs::remove_file(&path).map_err(Error::file(&path))?;
    evicted
}

/// Drops the clean pages of a file and returns the number of pages left.
fn drop_pages(path: &Path) -> rustix::io::Result<u64> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = rustix::fs::openat(CWD, path, flags, Mode::empty())?;
    // Without a length, the advice applies up to the end of the file.
    rustix::fs::fadvise(&file, 0, None, Advice::DontNeed)?;
    let length = rustix::fs::fstat(&file)?.st_size.unsigned_abs();
    match page_cache::resident_pages(file.as_fd(), length) {
        // If the kernel can't count cached pages, it is unknown whether any are left.
        Err(Errno::NOSYS) => Err(Errno::OPNOTSUPP),
        answer => answer,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    fn pages(path: &Path) -> u64 {
        let file = fs::File::open(path).unwrap();
        page_cache::resident_pages(&file, file.metadata().unwrap().size()).unwrap()
    }

    /// Pages of files at any depth are dropped, including those of files just written.
    #[test]
    fn cached_pages_of_all_files_in_a_tree_are_dropped() {
        let directory = tempfile::tempdir_in(".").unwrap();
        let below = directory.path().join("a/b");
        fs::create_dir_all(&below).unwrap();
        let paths = [directory.path().join("one"), below.join("two")];
        for path in &paths {
            fs::write(path, vec![7; 1 << 20]).unwrap();
            assert!(pages(path) > 0);
        }
        check(directory.path()).unwrap();
        evict(directory.path()).unwrap();
        assert_eq!(paths.each_ref().map(|path| pages(path)), [0, 0]);
        assert!(!directory.path().join("fslab-cold").exists());
    }

    /// Pages of files on tmpfs can't be dropped.
    #[test]
    fn directory_on_tmpfs_is_refused() {
        let directory = tempfile::tempdir_in("/dev/shm").unwrap();
        let error = check(directory.path()).unwrap_err().to_string();
        assert!(error.contains("16 pages of this file could not be dropped"), "{error}");
        assert!(!error.contains('\n'), "{error}");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
