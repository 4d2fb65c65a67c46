//! Locking a tree for one program, so that no other changes what it keeps there.
//!
//! The lock is one of flock(2) on a file in the root of the tree. Taking it needs no right to
//! write, so only the owner can open the file: users can't refuse mounts to each other. It lies
//! in the tree itself, so that mount namespaces and containers meet there. The locked tree does
//! not show the file. The file stays when the lock ends: if it were removed, one program could lock
//! it while the next makes it anew.
//!
//! Locking a part of a locked tree finds the lock in a directory above. Locking a tree around a
//! locked one can't see that without walking everything: `EBUSY` is answered when the inner tree is
//! met. A program locks first and looks for others afterwards, so one of two finds the other.
//!
//! A lock belongs to what is open and not to a descriptor, and a program that this process is just
//! starting holds all its descriptors until it runs. So a lock is released and not only closed:
//! else the next one to lock would find the tree in use now and then.

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, FlockOperation, Gid, Mode, OFlags, Timestamps, Uid, flock};

use crate::error::{Errno, Error, Result};
use crate::host::attr;
use crate::host::taken_over::TakenOver;
use crate::types::LockMode;

/// Directories above a root that are walked at most: a path has no more.
const DEPTH_MAX: usize = 4096;

/// The name of the lock file. A mount over a mount finds it taken and hidden by the lower one, and
/// uses the next.
const NAMES: [&str; 4] = [".fslab-lock", ".fslab-lock-2", ".fslab-lock-3", ".fslab-lock-4"];

/// The mode of the lock file: others can't open it.
const MODE: Mode = Mode::RUSR.union(Mode::WUSR);

/// Magic numbers of file systems on other machines (statfs(2)): 9p, AFS, Ceph, CIFS, GFS2, Lustre,
/// NFS, OCFS2, SMB, SMB2.
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

/// File systems of FUSE that keep their files on other machines, by the name that mountinfo shows
/// behind `fuse.`, or as the source where it shows none.
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

/// Whether a name in a directory is that of lock files, which are no part of what a tree holds.
#[must_use]
pub fn is_lock_file_name(name: &OsStr) -> bool {
    NAMES.iter().any(|lock| name == *lock)
}

/// The locks of a tree; released when dropped.
#[derive(Debug, Default)]
pub(super) struct Locks {
    /// Locked files.
    held: Vec<OwnedFd>,
    /// Where the locked tree must not show its lock file.
    hidden: Option<&'static str>,
    /// The directory of a lock file that goes with the lock, and its name.
    passing: Option<(OwnedFd, &'static str)>,
}

impl Locks {
    /// The name of the lock file in the root of the tree.
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
            tracing::warn!(%error, "{name} is left behind");
        }
        self.held.iter().for_each(unlock);
    }
}

/// Locks the tree below an open directory; the lock lives as long as what is answered.
///
/// # Errors
/// `EBUSY` where it is locked otherwise, or lies in a tree that is; `EACCES` where the lock file
/// is another user's; `EINVAL` where something else has its name.
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
            // One that changes the tree has a lock of its own, which a lock around it meets.
            if let (LockFile::Own(file), LockMode::Shared) = (found, mode) {
                lock_one(&file, FlockOperation::NonBlockingLockShared)?;
                locks.held.push(file);
            }
        }
        below = directory;
    }
    Ok(locks)
}

/// Expects that no other program has locked the directory that a name stands for.
///
/// # Errors
/// `EBUSY` where one has.
pub(super) fn expect_unlocked(parent: impl AsFd, name: &OsStr) -> Result<()> {
    let lock = std::path::Path::new(name).join(NAMES[0]);
    if rustix::fs::statat(&parent, &lock, AtFlags::SYMLINK_NOFOLLOW).is_err() {
        return Ok(());
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = rustix::fs::openat(parent, name, flags, Mode::empty())?;
    expect_free_directory(&directory)
}

/// Expects that no other program has locked this directory.
///
/// # Errors
/// `EBUSY` where one has.
pub(super) fn expect_free_directory(directory: &OwnedFd) -> Result<()> {
    expect_free(&LockFile::open(directory, NAMES[0])?)
}

/// Expects that nobody holds a lock file for changes.
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

/// Makes the lock file where it is missing, and locks it alone.
fn lock_for_changes(
    root: &OwnedFd,
    mode: LockMode,
    taken_over: Option<&TakenOver>,
    locks: &mut Locks,
) -> Result<()> {
    for name in NAMES {
        match lock_named(root, name, taken_over) {
            // The mount below keeps this name for itself.
            Err(Error::Errno(Errno::PERM)) => {}
            Err(Error::Errno(error @ (Errno::ROFS | Errno::ACCESS)))
                if !matches!(LockFile::open(root, name)?, LockFile::Closed { .. }) =>
            {
                tracing::warn!(%error, "{name} can't be made: the tree is not locked");
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
    tracing::warn!("too many mounts lie over each other here: the tree is not locked");
    Ok(())
}

/// Locks a lock file alone; whether it was made for that.
fn lock_named(
    root: &OwnedFd,
    name: &'static str,
    taken_over: Option<&TakenOver>,
) -> Result<(OwnedFd, bool)> {
    loop {
        let (file, is_new) = match LockFile::open(root, name)? {
            // What the earlier process locked stays locked.
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
                tracing::warn!("{name} is no lock file of fslab: move it away");
                return Err(Errno::INVAL.into());
            }
        };
        lock_one(&file, FlockOperation::NonBlockingLockExclusive)?;
        // A tool that made it may have removed it before this lock.
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
        "{name} in the lower directory belongs to user {owner}: only that user and root can use \
         the tree; if no mount does, it can be removed"
    );
    Errno::ACCESS.into()
}

/// Shares the lock file, where there is one.
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
                tracing::warn!("the tree is not locked: see that nobody changes it meanwhile");
            }
        }
    }
    Ok(())
}

/// What has the name of a lock file in a directory.
enum LockFile {
    /// One that can be locked.
    Own(OwnedFd),
    /// One of another user, that can't be opened.
    Closed {
        owner: u32,
        is_locked: bool,
    },
    /// Something that others can open or have made: it does not count.
    Other,
    Missing,
}

impl LockFile {
    fn open(directory: impl AsFd, name: &str) -> Result<Self> {
        let found = match rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            // Who may not look into a directory can't use it either.
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
        // NFS locks alone only what is open for writing.
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

/// Whether the kernel lists a lock on a file; those of other process namespaces are not listed.
fn is_locked(found: &rustix::fs::Stat) -> rustix::io::Result<bool> {
    let device = found.st_dev;
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let inode = format!(" {major:02x}:{minor:02x}:{} ", found.st_ino);
    // Where it can't be read, a lock must not be taken for free.
    let locks = std::fs::read_to_string("/proc/locks");
    let locks = locks.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    Ok(locks.lines().any(|line| line.contains("FLOCK") && line.contains(&inode)))
}

/// Makes a lock file for the owner of the directory, whose times stay.
fn make(directory: &OwnedFd, name: &str) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let made = keeping_time(directory, || rustix::fs::openat(directory, name, flags, MODE))?;
    let owner = rustix::fs::statat(directory, ".", AtFlags::empty())?;
    if owner.st_uid != rustix::process::geteuid().as_raw() {
        let (uid, gid) = (Uid::from_raw(owner.st_uid), Gid::from_raw(owner.st_gid));
        if let Err(error) = rustix::fs::fchown(&made, Some(uid), Some(gid)) {
            tracing::debug!(%error, "the lock file stays this user's");
        }
    }
    Ok(made)
}

/// Does something in a directory that is not to show in its times.
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
        tracing::debug!(%error, "the directory's times show its lock file");
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

/// The directory above, where there is one that can be reached.
fn above(directory: &OwnedFd) -> Result<Option<OwnedFd>> {
    match open_directory(directory, "..") {
        Ok(above) => Ok((!same(directory, &above)?).then_some(above)),
        Err(Errno::ACCESS) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// To look beneath; listing needs a right that locking does not need.
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
            "the lower directory is on a network file system: other machines are not kept out"
        ),
        Err(error) => tracing::warn!(
            %error,
            "cannot tell whether the lower directory is on a network file system, where other \
             machines are not kept out"
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
            tracing::warn!("the lower file system has no locks: see that nobody else uses it");
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}

fn unlock(file: &OwnedFd) {
    // Where the lower file system has no locks there was none.
    if let Err(error) = flock(file, FlockOperation::Unlock) {
        tracing::debug!(%error, "releasing a lock");
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

    /// What a program that is being started holds until it runs: all that is open.
    #[test]
    fn a_tree_is_free_at_once_after_its_locks_were_inherited() {
        let scratch = tempfile::tempdir().unwrap();
        let locks = locked(scratch.path(), LockMode::Exclusive).unwrap();
        let _child: Vec<_> = locks.held.iter().map(|file| rustix::io::dup(file).unwrap()).collect();
        is_busy(scratch.path(), LockMode::Exclusive);
        drop(locks);
        locked(scratch.path(), LockMode::Exclusive).unwrap();
    }

    #[test]
    fn locks_for_reading_share_a_tree_and_make_nothing() {
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
    fn a_part_of_a_locked_tree_is_refused_and_met_from_around() {
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

    /// Anybody may make one in /tmp, and lock it.
    #[test]
    fn files_that_others_can_open_or_made_are_no_locks() {
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

    /// The directory above can be passed through and not listed.
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

    /// Of this thread, for ever.
    fn read_only_what_permissions_allow() {
        let mut sets = capabilities(None).unwrap();
        sets.effective.remove(CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH);
        set_capabilities(None, sets).unwrap();
    }
}
