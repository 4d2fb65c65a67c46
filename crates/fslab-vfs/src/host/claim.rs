//! Claiming a tree for one program, so that no other changes what it keeps there.
//!
//! Who claims a tree locks its root (flock(2)), and every directory above it as one of many: two
//! claims of the same tree meet at the root, and those of a tree and a part of it at the root of
//! either. Locks end with the process, whatever happens to it.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{FlockOperation, Mode, OFlags, flock};

use crate::error::{Errno, Result};
use crate::host::attr;
use crate::types::Claim;

/// Directories above a root that are walked at most: a path has no more.
const DEPTH_MAX: usize = 4096;

/// Locks a tree; the locks live as long as what is answered.
pub(super) fn lock(root: impl AsFd, claim: Claim) -> Result<Vec<OwnedFd>> {
    let mut directory = open(root, ".")?;
    lock_one(&directory, claim)?;
    let mut locks = Vec::new();
    for _ in 0..DEPTH_MAX {
        let above = match open(&directory, "..") {
            Ok(above) => above,
            // A directory that may not be read can't be locked; nobody who needs it can either.
            Err(Errno::ACCESS) => break,
            Err(error) => return Err(error.into()),
        };
        let is_top = same(&directory, &above)?;
        locks.push(directory);
        if is_top {
            return Ok(locks);
        }
        lock_one(&above, Claim::Shared)?;
        directory = above;
    }
    Ok(locks)
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
pub(super) fn lock_one(file: impl AsFd, claim: Claim) -> Result<()> {
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
