//! Makes a directory of a mounted file system cold: drops the pages of its files, proves that none
//! is left, and drops names and inodes where root may.
//!
//! Blocks of directories and of other metadata may stay in the cache of the device below: nothing
//! tells whose they are.

use std::fs;
use std::os::fd::AsFd;
use std::path::Path;

use fslab_sys::page_cache;
use rustix::fs::{Advice, CWD, Mode, OFlags};
use rustix::io::Errno;

use super::fill::sync_file_system;
use crate::error::{Error, Result};
use crate::tree::copy::files_below;

/// Pages may be in use for a moment: so often they are dropped before that is given up.
const TRIES: u32 = 3;

const DROP_CACHES: &str = "/proc/sys/vm/drop_caches";

/// Drops inodes and names that nothing uses, of all file systems.
const INODES_AND_NAMES: &str = "2";

/// Whether names and inodes can be dropped.
pub(crate) fn drops_names() -> bool {
    rustix::process::geteuid().is_root()
}

/// Makes everything below a directory cold.
///
/// # Errors
/// Where pages of a file stay in memory, or a file can't be read.
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
                    "{}: {pages} of its pages stay in memory, so that its directory can't be \
                     made cold; leave out `cold`",
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

/// Shows that files in a directory can be made cold, by one that is made and removed there.
pub(super) fn check(directory: &Path) -> Result<()> {
    let path = directory.join("fslab-cold");
    fs::write(&path, vec![1; 1 << 16]).map_err(Error::file(&path))?;
    let evicted = evict(directory);
    fs::remove_file(&path).map_err(Error::file(&path))?;
    evicted
}

/// Drops the pages of a file that are written back, and answers how many are left.
fn drop_pages(path: &Path) -> rustix::io::Result<u64> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = rustix::fs::openat(CWD, path, flags, Mode::empty())?;
    // Size 0 is to the end.
    rustix::fs::fadvise(&file, 0, None, Advice::DontNeed)?;
    let length = rustix::fs::fstat(&file)?.st_size.unsigned_abs();
    match page_cache::resident_pages(file.as_fd(), length) {
        // What can't be asked can't be proven.
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

    /// Files at any depth are dropped, also those that were just written.
    #[test]
    fn files_of_a_tree_are_dropped() {
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

    /// Memory keeps its files: that is an error of one line.
    #[test]
    fn files_in_memory_are_refused() {
        let directory = tempfile::tempdir_in("/dev/shm").unwrap();
        let error = check(directory.path()).unwrap_err().to_string();
        assert!(error.contains("16 of its pages stay in memory"), "{error}");
        assert!(!error.contains('\n'), "{error}");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
