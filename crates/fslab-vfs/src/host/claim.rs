//! Claiming a tree for one program, so that no other changes what it keeps there.
//!
//! Who claims a tree locks its root (flock(2)), and every directory above it as one of many: two
//! claims of the same tree meet at the root, and those of a tree and a part of it at the root of
//! either. Locks end with the process, whatever happens to it.
//!
//! A lock belongs to what is open and not to a descriptor, and a program that this process is just
//! starting holds all its descriptors until it runs. So a claim is taken back and not only closed:
//! else whoever comes next would find the tree in use now and then.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{FlockOperation, Mode, OFlags, flock};

use crate::error::{Errno, Result};
use crate::host::attr;
use crate::types::Claim;

/// Directories above a root that are walked at most: a path has no more.
const DEPTH_MAX: usize = 4096;

/// Locked directories; the locks end when they are dropped.
#[derive(Debug, Default)]
pub(super) struct Locks(Vec<OwnedFd>);

impl Locks {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn add(&mut self, directory: OwnedFd, claim: Claim) -> Result<()> {
        lock_one(&directory, claim)?;
        self.0.push(directory);
        Ok(())
    }
}

impl Drop for Locks {
    fn drop(&mut self) {
        self.0.iter().for_each(unlock);
    }
}

/// An open file, which may be claimed; the claim ends when it is dropped.
#[derive(Debug)]
pub(super) struct OpenFile {
    descriptor: Arc<OwnedFd>,
    is_claimed: AtomicBool,
}

impl OpenFile {
    pub(super) fn new(descriptor: Arc<OwnedFd>) -> Self {
        Self { descriptor, is_claimed: AtomicBool::new(false) }
    }

    /// Claims the file, or claims it otherwise than before.
    pub(super) fn claim(&self, claim: Claim) -> Result<()> {
        self.is_claimed.store(true, Ordering::Relaxed);
        lock_one(self, claim)
    }
}

impl AsFd for OpenFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        if *self.is_claimed.get_mut() {
            unlock(&self.descriptor);
        }
    }
}

/// Locks a tree; the locks live as long as what is answered.
pub(super) fn lock(root: impl AsFd, claim: Claim) -> Result<Locks> {
    let mut locks = Locks::default();
    locks.add(open(root, ".")?, claim)?;
    for _ in 0..DEPTH_MAX {
        let Some(above) = locks.0.last().map_or(Ok(None), above)? else { break };
        locks.add(above, Claim::Shared)?;
    }
    Ok(locks)
}

/// The directory above, where there is one that can be locked.
fn above(directory: &OwnedFd) -> Result<Option<OwnedFd>> {
    match open(directory, "..") {
        Ok(above) => Ok((!same(directory, &above)?).then_some(above)),
        // Who may not read a directory can't lock it; nobody who needs it can either.
        Err(Errno::ACCESS) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn open(at: impl AsFd, name: &str) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat(at, name, flags, Mode::empty())
}

fn same(one: &OwnedFd, other: &OwnedFd) -> Result<bool> {
    let (one, other) = (attr::stat(one)?, attr::stat(other)?);
    Ok(attr::device_of(&one) == attr::device_of(&other) && one.stx_ino == other.stx_ino)
}

/// Locks an open file or directory.
fn lock_one(file: impl AsFd, claim: Claim) -> Result<()> {
    let operation = match claim {
        Claim::Shared => FlockOperation::NonBlockingLockShared,
        Claim::Exclusive => FlockOperation::NonBlockingLockExclusive,
    };
    match flock(file, operation) {
        Ok(()) => Ok(()),
        Err(Errno::AGAIN) => Err(Errno::BUSY.into()),
        Err(Errno::OPNOTSUPP | Errno::NOLCK | Errno::NOSYS) => {
            tracing::warn!("the lower file system has no locks: see that nobody else uses it");
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}

fn unlock(file: impl AsFd) {
    // Where the lower file system has no locks there was none.
    if let Err(error) = flock(file, FlockOperation::Unlock) {
        tracing::debug!(%error, "taking back a claim");
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{File, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

    use super::*;
    use crate::testing::skip::skip;

    /// What a program that is being started holds until it runs: all that is open.
    fn inherited(file: impl AsFd) -> OwnedFd {
        rustix::io::dup(file).unwrap()
    }

    #[test]
    fn a_tree_is_free_at_once_whoever_inherited_its_locks() {
        let scratch = tempfile::tempdir().unwrap();
        let root = File::open(scratch.path()).unwrap();
        let locks = lock(&root, Claim::Exclusive).unwrap();
        let _child: Vec<_> = locks.0.iter().map(inherited).collect();
        assert_eq!(lock(&root, Claim::Exclusive).unwrap_err().errno(), Errno::BUSY);
        drop(locks);
        lock(&root, Claim::Exclusive).unwrap();
    }

    /// He may go through the directory above but not list it.
    #[test]
    fn who_may_not_read_what_is_above_has_the_tree_alone_too() {
        if !rustix::process::geteuid().is_root() {
            return skip("who_may_not_read_what_is_above", "not root, with a right to lay down");
        }
        let scratch = tempfile::tempdir().unwrap();
        let inner = scratch.path().join("inner");
        std::fs::create_dir(&inner).unwrap();
        std::fs::set_permissions(scratch.path(), Permissions::from_mode(0o300)).unwrap();
        let claimed = std::thread::spawn(move || {
            read_only_what_permissions_allow();
            let root = || File::open(&inner).unwrap();
            assert_eq!(open(root(), "..").unwrap_err(), Errno::ACCESS);
            let _locks = lock(root(), Claim::Exclusive).unwrap();
            assert_eq!(lock(root(), Claim::Exclusive).unwrap_err().errno(), Errno::BUSY);
        });
        claimed.join().unwrap();
    }

    /// Of this thread, for ever.
    fn read_only_what_permissions_allow() {
        let mut sets = capabilities(None).unwrap();
        sets.effective.remove(CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH);
        set_capabilities(None, sets).unwrap();
    }

    #[test]
    fn a_claimed_file_is_free_at_once_whoever_inherited_its_lock() {
        let scratch = tempfile::NamedTempFile::new().unwrap();
        let open = || OpenFile::new(Arc::new(File::open(scratch.path()).unwrap().into()));
        let (one, other) = (open(), open());
        one.claim(Claim::Shared).unwrap();
        one.claim(Claim::Exclusive).unwrap();
        let _child = inherited(&one);
        assert_eq!(other.claim(Claim::Shared).unwrap_err().errno(), Errno::BUSY);
        drop(one);
        other.claim(Claim::Exclusive).unwrap();
    }
}
