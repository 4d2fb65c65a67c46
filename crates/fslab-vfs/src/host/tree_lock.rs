//! Locks a tree for one program, so that no other program changes its files.
//!
//! The lock is a flock(2) on a file in the root of the tree. A flock needs no write permission, so
//! the file's mode lets only the owner open it. Otherwise, users could block each other's mounts.
//! The file is in the tree itself, so that programs in different mount namespaces and containers
//! find it. The locked tree does not show the file. The file is kept after unlocking. Otherwise one
//! program could lock the removed file while another one creates a new file.
//!
//! Locking a part of a locked tree finds the lock in a parent directory. If a tree around a locked
//! tree is locked, the inner lock can't be detected without a full walk. So `EBUSY` is returned
//! later, when the inner tree is reached. A program locks first and checks for other locks
//! afterwards. So of two programs, at least one finds the lock of the other.
//!
//! A lock belongs to the open file, not to a descriptor. A starting child process holds copies of
//! all descriptors until it executes its program. So a lock is released explicitly. After a mere
//! close, the next program would sometimes find the tree still locked.

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, FlockOperation, Gid, Mode, OFlags, Timestamps, Uid, flock};

use crate::error::{Errno, Error, Result};
use crate::host::attr;
use crate::host::taken_over::TakenOver;
use crate::types::LockMode;

/// Maximum number of parent directories to walk: the maximum length of a path in bytes.
const DEPTH_MAX: usize = 4096;

/// Names of lock files. If the lower directory is itself a locked mount, it reserves the first
/// name, and the upper mount uses the next.
const NAMES: [&str; 4] = [".fslab-lock", ".fslab-lock-2", ".fslab-lock-3", ".fslab-lock-4"];

/// Mode of a lock file: other users can't open it.
const MODE: Mode = Mode::RUSR.union(Mode::WUSR);

/// Magic numbers of network file systems (statfs(2)): 9p, AFS, Ceph, CIFS, GFS2, Lustre, NFS,
/// OCFS2, SMB, SMB2.
const NETWORK: [u32; 10] = [
    0x0102_1997,
    0x5346_414f,
    0x00c3_6400,
    0xff53_4d42,
    0x0116_1970,
    0x0bd0_0bd0,
    0x6969,
    0x7461_636f,
    0x517b,
    0xfe53_4d42,
];

/// Magic number of FUSE (statfs(2)).
const FUSE: u32 = 0x6573_5546;

/// FUSE file systems that store their files on other machines. The names are those in mountinfo
/// after `fuse.`, or the source if there is none.
const NETWORK_FUSE: [&str; 17] = [
    "beegfs",
    "blobfuse2",
    "ceph-fuse",
    "curlftpfs",
    "davfs",
    "gcsfuse",
    "glusterfs",
    "goofys",
    "juicefs",
    "lizardfs",
    "mfs",
    "mountpoint-s3",
    "rclone",
    "s3fs",
    "seaweedfs",
    "smbnetfs",
    "sshfs",
];

/// Whether a name is that of a lock file, which does not belong to a tree's contents.
#[must_use]
pub fn is_lock_file_name(name: &OsStr) -> bool {
    NAMES.iter().any(|lock| name == *lock)
}

/// The locks of a tree; released when dropped.
#[derive(Debug, Default)]
pub(super) struct Locks {
    held: Vec<OwnedFd>,
    /// The name of the lock file that the locked tree must not show.
    hidden: Option<&'static str>,
    /// The directory and name of a lock file that is removed when the lock is released.
    passing: Option<(OwnedFd, &'static str)>,
}

impl Locks {
    /// The hidden name of the lock file in the root of the tree.
    pub(super) fn hidden(&self) -> Option<&'static str> {
        self.hidden
    }
}

impl Drop for Locks {
    fn drop(&mut self) {
        if let Some((directory, name)) = self.passing.take()
            && let Err(error) = keeping_time(&directory, || {
                rustix::fs::unlinkat(&directory, name, AtFlags::empty())
            })
        {
            tracing::warn!(%error, "can't remove the lock file {name}");
        }
        self.held.iter().for_each(unlock);
    }
}

/// Locks the tree below an open directory until the returned value is dropped.
///
/// # Errors
/// `EBUSY` if the tree, or one around it, is locked in a conflicting mode. `EACCES` if the lock
/// file belongs to another user. `EINVAL` if another kind of file has the name of the lock file.
pub(super) fn lock(
    root: impl AsFd,
    mode: LockMode,
    taken_over: Option<&TakenOver>,
) -> Result<Locks> {
    let root = open_directory(root, ".")?;
    warn_if_on_network(&root);
    let mut locks = Locks::default();
    match mode {
        LockMode::Exclusive | LockMode::Passing => {
            lock_for_changes(&root, mode, taken_over, &mut locks)?;
        }
        LockMode::ReadOnly | LockMode::Shared => lock_for_reading(&root, mode, &mut locks)?,
    }
    let mut below = root;
    for _ in 0..DEPTH_MAX {
        let Some(directory) = above(&below)? else { break };
        for name in NAMES {
            let found = LockFile::open(&directory, name)?;
            expect_free(&found)?;
            // A shared lock creates no lock file, so a later lock of a surrounding tree could not
            // detect it. Therefore it also locks the existing lock files of surrounding trees.
            if let (LockFile::Own(file), LockMode::Shared) = (found, mode) {
                lock_one(&file, FlockOperation::NonBlockingLockShared)?;
                locks.held.push(file);
            }
        }
        below = directory;
    }
    Ok(locks)
}

/// Checks that a name does not refer to a directory that another program has locked.
///
/// # Errors
/// `EBUSY` if it is locked.
pub(super) fn expect_unlocked(parent: impl AsFd, name: &OsStr) -> Result<()> {
    let lock = std::path::Path::new(name).join(NAMES[0]);
    if rustix::fs::statat(&parent, &lock, AtFlags::SYMLINK_NOFOLLOW).is_err() {
        return Ok(());
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = rustix::fs::openat(parent, name, flags, Mode::empty())?;
    expect_free_directory(&directory)
}

/// Checks that no other program has locked this directory.
///
/// # Errors
/// `EBUSY` if it is locked.
pub(super) fn expect_free_directory(directory: &OwnedFd) -> Result<()> {
    expect_free(&LockFile::open(directory, NAMES[0])?)
}

/// Checks that no program holds an exclusive lock on a lock file.
fn expect_free(found: &LockFile) -> Result<()> {
    match found {
        LockFile::Own(file) => {
            lock_one(file, FlockOperation::NonBlockingLockShared)?;
            unlock(file);
            Ok(())
        }
        LockFile::Closed { is_locked: true, .. } => Err(Errno::BUSY.into()),
        LockFile::Closed { .. } | LockFile::Other | LockFile::Missing => Ok(()),
    }
}

/// Creates the lock file if it is missing, and locks it exclusively.
fn lock_for_changes(
    root: &OwnedFd,
    mode: LockMode,
    taken_over: Option<&TakenOver>,
    locks: &mut Locks,
) -> Result<()> {
    for name in NAMES {
        match lock_named(root, name, taken_over) {
            // The lower mount reserves this name, so the next one is tried.
            Err(Error::Errno(Errno::PERM)) => {}
            Err(Error::Errno(error @ (Errno::ROFS | Errno::ACCESS)))
                if !matches!(LockFile::open(root, name)?, LockFile::Closed { .. }) =>
            {
                tracing::warn!(
                    %error,
                    "can't create the lock file {name}, so the lower directory is not locked"
                );
                locks.hidden = Some(name);
                return Ok(());
            }
            locked => {
                let (file, is_new) = locked?;
                locks.held.push(file);
                locks.hidden = Some(name);
                if is_new && mode == LockMode::Passing {
                    locks.passing = Some((rustix::io::fcntl_dupfd_cloexec(root, 0)?, name));
                }
                return Ok(());
            }
        }
    }
    tracing::warn!("too many fslab mounts are stacked, so the lower directory is not locked");
    Ok(())
}

/// Locks a lock file exclusively. Returns the file, and whether it was created.
fn lock_named(
    root: &OwnedFd,
    name: &'static str,
    taken_over: Option<&TakenOver>,
) -> Result<(OwnedFd, bool)> {
    loop {
        let (file, is_new) = match LockFile::open(root, name)? {
            // If the earlier process held a lock on this file, this process keeps it.
            LockFile::Own(file) => match taken_over.and_then(|left| left.same(&file)) {
                Some(locked) => (locked, false),
                None => (file, false),
            },
            LockFile::Missing => match make(root, name) {
                Err(Errno::EXIST) => continue,
                made => (made?, true),
            },
            LockFile::Closed { owner, is_locked } => return Err(refuse(name, owner, is_locked)),
            LockFile::Other => {
                tracing::warn!(
                    "{name} in the lower directory is not a lock file of fslab: move or rename it"
                );
                return Err(Errno::INVAL.into());
            }
        };
        lock_one(&file, FlockOperation::NonBlockingLockExclusive)?;
        // The program that created the file may have removed it before it was locked here.
        if is_named(root, name, &file)? {
            return Ok((file, is_new));
        }
    }
}

fn refuse(name: &str, owner: u32, is_locked: bool) -> Error {
    if is_locked {
        return Errno::BUSY.into();
    }
    tracing::warn!(
        "{name} in the lower directory belongs to user {owner}, so only that user and root can use \
         this directory; if no mount uses it, remove {name}"
    );
    Errno::ACCESS.into()
}

/// Takes a shared lock of the lock file, if it exists.
fn lock_for_reading(root: &OwnedFd, mode: LockMode, locks: &mut Locks) -> Result<()> {
    locks.hidden = Some(NAMES[0]);
    match LockFile::open(root, NAMES[0])? {
        LockFile::Own(file) => {
            lock_one(&file, FlockOperation::NonBlockingLockShared)?;
            locks.held.push(file);
        }
        LockFile::Closed { is_locked: true, .. } => return Err(Errno::BUSY.into()),
        LockFile::Closed { .. } | LockFile::Other | LockFile::Missing => {
            if mode == LockMode::ReadOnly {
                tracing::warn!(
                    "the lower directory is not locked: make sure that no program changes it"
                );
            }
        }
    }
    Ok(())
}

/// The result of opening a lock file.
enum LockFile {
    /// A file that can be locked.
    Own(OwnedFd),
    /// A lock file of another user, which can't be opened.
    Closed {
        owner: u32,
        is_locked: bool,
    },
    /// A file that other users can open or that another user created. It is ignored.
    Other,
    Missing,
}

impl LockFile {
    fn open(directory: impl AsFd, name: &str) -> Result<Self> {
        let found = match rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            // A user who may not search a directory can't use it either.
            Err(Errno::NOENT | Errno::ACCESS) => return Ok(Self::Missing),
            found => found?,
        };
        let owners = [0, rustix::process::geteuid().as_raw(), owner_of(&directory)?];
        let is_regular = rustix::fs::FileType::from_raw_mode(found.st_mode).is_file();
        let is_private = found.st_mode & 0o077 == 0;
        if !is_regular || !is_private || !owners.contains(&found.st_uid) {
            return Ok(Self::Other);
        }
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let open = |access| rustix::fs::openat(&directory, name, flags | access, Mode::empty());
        // NFS grants exclusive locks only on files open for writing.
        match open(OFlags::RDWR).or_else(|_refused| open(OFlags::RDONLY)) {
            Ok(file) => Ok(Self::Own(file)),
            Err(Errno::NOENT) => Ok(Self::Missing),
            Err(Errno::ACCESS) => {
                Ok(Self::Closed { owner: found.st_uid, is_locked: is_locked(&found)? })
            }
            Err(error) => Err(error.into()),
        }
    }
}

fn owner_of(directory: impl AsFd) -> rustix::io::Result<u32> {
    let found = rustix::fs::statat(directory, ".", AtFlags::empty())?;
    Ok(found.st_uid)
}

/// Whether the kernel lists a lock on a file; locks of other PID namespaces are not listed.
fn is_locked(found: &rustix::fs::Stat) -> rustix::io::Result<bool> {
    let device = found.st_dev;
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let inode = format!(" {major:02x}:{minor:02x}:{} ", found.st_ino);
    // If the list can't be read, the file must not be treated as unlocked.
    let locks = std::fs::read_to_string("/proc/locks");
    let locks = locks.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    Ok(locks.lines().any(|line| line.contains("FLOCK") && line.contains(&inode)))
}

/// Creates a lock file for the owner of the directory, without changing the directory's times.
fn make(directory: &OwnedFd, name: &str) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let made = keeping_time(directory, || rustix::fs::openat(directory, name, flags, MODE))?;
    let owner = rustix::fs::statat(directory, ".", AtFlags::empty())?;
    if owner.st_uid != rustix::process::geteuid().as_raw() {
        let (uid, gid) = (Uid::from_raw(owner.st_uid), Gid::from_raw(owner.st_gid));
        if let Err(error) = rustix::fs::fchown(&made, Some(uid), Some(gid)) {
            tracing::debug!(%error, "can't give the lock file the same owner as the directory");
        }
    }
    Ok(made)
}

/// Runs `act` in a directory without changing its times.
fn keeping_time<T>(
    directory: &OwnedFd,
    act: impl FnOnce() -> rustix::io::Result<T>,
) -> rustix::io::Result<T> {
    let before = rustix::fs::statat(directory, ".", AtFlags::empty())?;
    let done = act()?;
    let time = |tv_sec, tv_nsec: u64| rustix::fs::Timespec { tv_sec, tv_nsec: tv_nsec as _ };
    let times = Timestamps {
        last_access: time(before.st_atime, before.st_atime_nsec),
        last_modification: time(before.st_mtime, before.st_mtime_nsec),
    };
    if let Err(error) = rustix::fs::utimensat(directory, ".", &times, AtFlags::empty()) {
        tracing::debug!(%error, "can't restore the directory's times");
    }
    Ok(done)
}

fn is_named(directory: &OwnedFd, name: &str, file: &OwnedFd) -> Result<bool> {
    let file = rustix::fs::fstat(file)?;
    match rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => Ok(false),
        named => {
            let named = named?;
            Ok((named.st_dev, named.st_ino) == (file.st_dev, file.st_ino))
        }
    }
}

/// The parent directory, if there is one that can be opened.
fn above(directory: &OwnedFd) -> Result<Option<OwnedFd>> {
    match open_directory(directory, "..") {
        Ok(above) => Ok((!same(directory, &above)?).then_some(above)),
        Err(Errno::ACCESS) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Opens a directory for lookups only, because a descriptor for listing would need a permission
/// that locking does not need.
fn open_directory(at: impl AsFd, name: &str) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat(at, name, flags, Mode::empty())
}

fn same(one: &OwnedFd, other: &OwnedFd) -> Result<bool> {
    let (one, other) = (attr::stat(one)?, attr::stat(other)?);
    Ok(attr::device_of(&one) == attr::device_of(&other) && one.stx_ino == other.stx_ino)
}

fn warn_if_on_network(root: &OwnedFd) {
    match is_on_network(root) {
        Ok(false) => {}
        Ok(true) => tracing::warn!(
            "the lower directory is on a network file system, so the lock does not exclude other \
             machines"
        ),
        Err(error) => tracing::warn!(
            %error,
            "can't determine whether the lower directory is on a network file system, where the \
             lock would not exclude other machines"
        ),
    }
}

fn is_on_network(root: &OwnedFd) -> std::io::Result<bool> {
    let magic = rustix::fs::fstatfs(root)?.f_type as u32;
    if magic != FUSE {
        return Ok(NETWORK.contains(&magic));
    }
    let mount = fslab_sys::mounts::mount_of(root)?;
    Ok(mount.is_some_and(|mount| is_network_fuse(&mount.file_system, &mount.source)))
}

fn is_network_fuse(file_system: &str, source: &OsStr) -> bool {
    let name = match file_system.split_once('.') {
        Some((_, name)) => OsStr::new(name),
        None => source,
    };
    NETWORK_FUSE.iter().any(|network| name == *network)
}

fn lock_one(file: &OwnedFd, operation: FlockOperation) -> Result<()> {
    match flock(file, operation) {
        Ok(()) => Ok(()),
        Err(Errno::AGAIN) => Err(Errno::BUSY.into()),
        Err(Errno::OPNOTSUPP | Errno::NOLCK | Errno::NOSYS) => {
            tracing::warn!(
                "the lower file system does not support locks: make sure that no other program \
                 uses the lower directory"
            );
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}

fn unlock(file: &OwnedFd) {
    // A lower file system that does not support locks returns an error here, but then nothing was
    // locked.
    if let Err(error) = flock(file, FlockOperation::Unlock) {
        tracing::debug!(%error, "can't release a lock");
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File, Permissions};
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    use std::path::Path;

    use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

    use super::*;
    use fslab_vfs_testing::skip::skip;

    fn locked(path: &Path, mode: LockMode) -> Result<Locks> {
        lock(File::open(path).unwrap(), mode, None)
    }

    #[track_caller]
    fn is_busy(path: &Path, mode: LockMode) {
        assert_eq!(locked(path, mode).unwrap_err().errno(), Errno::BUSY);
    }

    /// A starting child process holds all open descriptors until it executes its program.
    #[test]
    fn dropped_lock_is_released_despite_inherited_descriptors() {
        let scratch = tempfile::tempdir().unwrap();
        let locks = locked(scratch.path(), LockMode::Exclusive).unwrap();
        let _child: Vec<_> = locks.held.iter().map(|file| rustix::io::dup(file).unwrap()).collect();
        is_busy(scratch.path(), LockMode::Exclusive);
        drop(locks);
        locked(scratch.path(), LockMode::Exclusive).unwrap();
    }

    #[test]
    fn read_locks_share_a_tree_and_create_no_file() {
        let scratch = tempfile::tempdir().unwrap();
        let inner = scratch.path().join("inner");
        fs::create_dir(&inner).unwrap();
        for mode in [LockMode::Shared, LockMode::ReadOnly] {
            drop(locked(&inner, mode).unwrap());
        }
        assert_eq!(fs::read_dir(&inner).unwrap().count(), 0);
        drop(locked(scratch.path(), LockMode::Exclusive).unwrap());
        let _readers = [&inner, &inner].map(|path| locked(path, LockMode::Shared).unwrap());
        is_busy(scratch.path(), LockMode::Exclusive);
        locked(scratch.path(), LockMode::ReadOnly).unwrap();
    }

    #[test]
    fn network_file_systems_of_fuse_are_known_by_name_or_source() {
        let check = |file_system, source| is_network_fuse(file_system, OsStr::new(source));
        assert!(check("fuse.sshfs", "host:/directory") && check("fuse", "mountpoint-s3"));
        assert!(!check("fuse.fslab", "/sshfs") && !check("fuse", "/dev/sda1"));
        assert!(!check("fuse.fslab", "sshfs") && !check("fuseblk", "/dev/sda1"));
    }

    #[test]
    fn a_passing_lock_removes_the_lock_file_that_it_made() {
        let scratch = tempfile::tempdir().unwrap();
        let lock = scratch.path().join(NAMES[0]);
        let passing = locked(scratch.path(), LockMode::Passing).unwrap();
        assert_eq!(fs::metadata(&lock).unwrap().mode() & 0o7777, 0o600);
        is_busy(scratch.path(), LockMode::Exclusive);
        drop(passing);
        assert!(!lock.exists());
        drop(locked(scratch.path(), LockMode::Exclusive).unwrap());
        drop(locked(scratch.path(), LockMode::Passing).unwrap());
        assert!(lock.exists());
    }

    #[test]
    fn locked_tree_refuses_locks_inside_and_is_busy_from_outside() {
        let scratch = tempfile::tempdir().unwrap();
        let inner = scratch.path().join("a/inner");
        fs::create_dir_all(&inner).unwrap();
        let outer = locked(scratch.path(), LockMode::Exclusive).unwrap();
        is_busy(&inner, LockMode::Exclusive);
        is_busy(&inner, LockMode::Shared);
        drop(outer);
        let inner_lock = locked(&inner, LockMode::Exclusive).unwrap();
        let _outer = locked(scratch.path(), LockMode::Exclusive).unwrap();
        let between = File::open(scratch.path().join("a")).unwrap();
        let met = || expect_unlocked(&between, OsStr::new("inner"));
        assert_eq!(met().unwrap_err().errno(), Errno::BUSY);
        drop(inner_lock);
        met().unwrap();
    }

    /// Any user can create and lock a file with this name in /tmp. It must not block other users.
    #[test]
    fn lock_files_accessible_to_or_made_by_others_do_not_lock() {
        let scratch = tempfile::tempdir().unwrap();
        let inner = scratch.path().join("inner");
        fs::create_dir(&inner).unwrap();
        let lock = scratch.path().join(NAMES[0]);
        let file = File::create(&lock).unwrap();
        fs::set_permissions(&lock, Permissions::from_mode(0o644)).unwrap();
        file.lock().unwrap();
        locked(&inner, LockMode::Exclusive).unwrap();
        assert_eq!(locked(scratch.path(), LockMode::Exclusive).unwrap_err().errno(), Errno::INVAL);
        if rustix::process::geteuid().is_root() {
            fs::set_permissions(&lock, Permissions::from_mode(0o600)).unwrap();
            std::os::unix::fs::chown(&lock, Some(1234), None).unwrap();
            locked(&inner, LockMode::Exclusive).unwrap();
        }
    }

    /// The parent directory can be searched but not listed.
    #[test]
    fn a_tree_below_an_unreadable_directory_is_locked() {
        if !rustix::process::geteuid().is_root() {
            return skip("a_tree_below_an_unreadable_directory_is_locked", "not root");
        }
        let scratch = tempfile::tempdir().unwrap();
        let inner = scratch.path().join("inner");
        fs::create_dir(&inner).unwrap();
        fs::set_permissions(scratch.path(), Permissions::from_mode(0o300)).unwrap();
        let locking = std::thread::spawn(move || {
            read_only_what_permissions_allow();
            let _locks = locked(&inner, LockMode::Exclusive).unwrap();
            is_busy(&inner, LockMode::Exclusive);
        });
        locking.join().unwrap();
    }

    /// Permanently drops capabilities of this thread.
    fn read_only_what_permissions_allow() {
        let mut sets = capabilities(None).unwrap();
        sets.effective.remove(CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH);
        set_capabilities(None, sets).unwrap();
    }
}
