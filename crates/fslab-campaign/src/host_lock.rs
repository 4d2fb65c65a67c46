//! The lock that allows only one share at a time on each host, because two shares would disturb
//! each other's measurements.
//!
//! The lock is flock(2) on a file in `/run/lock`, or in `/var/lock` if that is missing. The kernel
//! releases the lock when the process that holds it exits for any reason. Every user can open the
//! file and acquire the lock. So the lock only keeps measurements apart; it is not a security
//! boundary.

use std::fs::{self, File, OpenOptions, Permissions, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use fslab_sys::signals::Interrupt;
use rustix::fs::OFlags;

use crate::error::{Error, Result};

/// Directories for the lock. The first that exists is used, so that all users of a host use the
/// same file.
pub const PLACES: [&str; 2] = ["/run/lock", "/var/lock"];

const NAME: &str = "fslab-campaign.lock";

/// All users may read the file, which is enough for flock(2).
const MODE: u32 = 0o644;

/// Interval at which a waiting share retries the lock.
const INTERVAL: Duration = Duration::from_millis(200);

/// The lock of this host, held until it is dropped.
#[derive(Debug)]
pub struct HostLock {
    file: File,
    path: PathBuf,
}

impl HostLock {
    /// Acquires the lock at the path `named`, or by default the lock of this host. With `wait`,
    /// waits for the lock until this interrupt is raised.
    ///
    /// # Errors
    /// Fails if another process holds the lock and `wait` is `None`, or if the wait is interrupted.
    /// Also fails if no directory for the lock exists, or if the path is not a regular file.
    pub fn take(named: Option<&Path>, wait: Option<&Interrupt>) -> Result<Self> {
        let path = named.map_or_else(place, |named| Ok(named.to_owned()))?;
        loop {
            let file = open(&path)?;
            match file.try_lock() {
                Ok(()) if is_at(&file, &path) => return Ok(Self { file, path }),
                // Another process removed the file while it was being locked.
                Ok(()) => continue,
                Err(TryLockError::Error(error)) => return Err(Error::file(&path)(error)),
                Err(TryLockError::WouldBlock) => {}
            }
            match wait {
                None => return Err(Error::HostInUse { path }),
                Some(interrupt) if interrupt.is_raised() => {
                    return Err(fslab_compare::Error::Interrupted.into());
                }
                Some(_) => std::thread::sleep(INTERVAL),
            }
        }
    }
}

impl Drop for HostLock {
    fn drop(&mut self) {
        // A child process that is between fork and exec may also have this file open, so closing it
        // here might not release the lock.
        if let Err(error) = self.file.unlock() {
            tracing::warn!(%error, "can't unlock {}", self.path.display());
        }
    }
}

fn place() -> Result<PathBuf> {
    let there = PLACES.iter().map(Path::new).find(|place| place.is_dir());
    let tried = || PLACES.map(|place| format!("{place} is missing")).join(", ");
    there.map(|place| place.join(NAME)).ok_or_else(|| Error::NoLockPlace { tried: tried() })
}

/// Opens the file, or creates it. Symbolic links are not followed and an existing file is not
/// changed, because every user may be able to create files in the directory.
fn open(path: &Path) -> Result<File> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let is_link =
        |error: &io::Error| error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error());
    let file = loop {
        match OpenOptions::new().read(true).custom_flags(flags).open(path) {
            Ok(file) => break file,
            Err(error) if is_link(&error) => return Err(Error::OddLock { path: path.to_owned() }),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(Error::file(path)(error)),
        }
        let mut new = OpenOptions::new();
        match new.read(true).write(true).create_new(true).mode(MODE).open(path) {
            Ok(file) => {
                // The mode must not depend on the umask.
                file.set_permissions(Permissions::from_mode(MODE)).map_err(Error::file(path))?;
                break file;
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => {
                let tried = format!("{}: {error}", path.display());
                return Err(Error::NoLockPlace { tried });
            }
        }
    };
    if file.metadata().map_err(Error::file(path))?.is_file() {
        Ok(file)
    } else {
        Err(Error::OddLock { path: path.to_owned() })
    }
}

/// Returns whether a path still refers to an open file.
fn is_at(file: &File, path: &Path) -> bool {
    let identity = |found: fs::Metadata| (found.dev(), found.ino());
    let of_file = file.metadata().map(identity);
    let of_path = fs::symlink_metadata(path).map(identity);
    matches!((of_file, of_path), (Ok(one), Ok(other)) if one == other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lock_is_exclusive_and_released_on_drop() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("lock");
        let held = HostLock::take(Some(&path), None).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, MODE);
        let refused = HostLock::take(Some(&path), None);
        assert!(matches!(refused, Err(Error::HostInUse { .. })), "{refused:?}");
        let interrupt = Interrupt::default();
        interrupt.raise();
        let waited = HostLock::take(Some(&path), Some(&interrupt));
        assert!(matches!(waited, Err(Error::Compare(fslab_compare::Error::Interrupted))));
        drop(held);
        HostLock::take(Some(&path), None).unwrap();
    }

    /// A lock on a removed file has no effect on later runs, so they create a new file.
    #[test]
    fn removed_lock_file_is_recreated() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("lock");
        let _held = HostLock::take(Some(&path), None).unwrap();
        fs::remove_file(&path).unwrap();
        let again = HostLock::take(Some(&path), None).unwrap();
        assert!(is_at(&again.file, &path));
    }

    #[test]
    fn lock_path_must_be_a_regular_file() {
        let scratch = tempfile::tempdir().unwrap();
        let aim = scratch.path().join("aim");
        let link = scratch.path().join("link");
        std::os::unix::fs::symlink(&aim, &link).unwrap();
        assert!(matches!(HostLock::take(Some(&link), None), Err(Error::OddLock { .. })));
        assert!(!aim.exists(), "the link was followed");
        fs::write(&aim, "kept").unwrap();
        assert!(matches!(HostLock::take(Some(&link), None), Err(Error::OddLock { .. })));
        assert_eq!(fs::read_to_string(&aim).unwrap(), "kept");
        let directory = HostLock::take(Some(scratch.path()), None);
        assert!(matches!(directory, Err(Error::OddLock { .. })), "{directory:?}");
        let nowhere = HostLock::take(Some(&scratch.path().join("none/lock")), None);
        assert!(matches!(nowhere, Err(Error::NoLockPlace { .. })), "{nowhere:?}");
    }
}
