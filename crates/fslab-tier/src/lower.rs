//! Access to the lower tree: files opened by the engine itself, and inodes found by path.

use std::ffi::{OsStr, OsString};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use fslab_vfs::rules::CAPABILITY;
use fslab_vfs::{
    Attr, Credentials, Errno, FallocateMode, FileSystem, Handle, Ino, Name, OpenMode, Permissions,
    Request, Result, SeekTo, SetAttr, SetTime, Timestamp, WriteOptions, XattrMode,
};

use crate::calendar::Calendar;

/// The unit of `blocks` in attributes, in bytes.
pub(crate) const SECTOR_BYTES: u64 = 512;

/// Returns a request that the engine makes for itself, not for a user. New files belong to the user
/// who runs this program.
#[must_use]
pub fn own_request() -> Request {
    let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
    let credentials = Credentials { uid: user.as_raw(), gid: group.as_raw() };
    Request { credentials, ..Request::default() }
}

/// Like [`own_request`], with the current time. File systems at the bottom of a stack use it as the
/// time of a change.
#[must_use]
pub fn request_at(calendar: &dyn Calendar) -> Request {
    Request { now: calendar.now(), ..own_request() }
}

/// A file that the engine has opened; closed when dropped.
pub struct OwnFile {
    fs: Arc<dyn FileSystem>,
    calendar: Arc<dyn Calendar>,
    ino: Ino,
    handle: Handle,
}

impl OwnFile {
    /// Opens a file for reading, and also for writing if requested. Reads do not change its access
    /// time, except in a file that belongs to another user.
    ///
    /// # Errors
    /// Errors of the lower file system.
    pub fn open(
        fs: &Arc<dyn FileSystem>,
        calendar: &Arc<dyn Calendar>,
        ino: Ino,
        writes: bool,
    ) -> Result<Self> {
        let mode = if writes { OpenMode::READ_WRITE } else { OpenMode::empty() };
        let request = request_at(&**calendar);
        let open = || match fs.open(&request, ino, mode | OpenMode::NO_ACCESS_TIME) {
            // Only the owner of a file may open it without updating its access time.
            Err(error) if error.errno() == Errno::PERM => fs.open(&request, ino, mode),
            opened => opened,
        };
        let opened = match open() {
            // The engine's user owns the file, but is not root and has no permission to open it.
            // The engine must nevertheless be able to archive, release and recall the file.
            Err(error) if error.errno() == Errno::ACCESS => {
                let (opened, restored) = with_leave(&**fs, &request, ino, open)?;
                if let Err(error) = restored {
                    fs.release(&request, ino, opened.handle)?;
                    return Err(error);
                }
                opened
            }
            opened => opened?,
        };
        let calendar = Arc::clone(calendar);
        Ok(Self { fs: Arc::clone(fs), calendar, ino, handle: opened.handle })
    }

    fn request(&self) -> Request {
        request_at(&*self.calendar)
    }

    /// Returns the inode number of the file.
    #[must_use]
    pub fn ino(&self) -> Ino {
        self.ino
    }

    /// Returns the file system, the inode and the handle.
    pub(crate) fn place(&self) -> (&Arc<dyn FileSystem>, Ino, Handle) {
        (&self.fs, self.ino, self.handle)
    }

    /// Returns the attributes of the file.
    ///
    /// # Errors
    /// Errors of the lower file system.
    pub fn attr(&self) -> Result<Attr> {
        self.fs.getattr(&self.request(), self.ino, Some(self.handle))
    }

    /// Reads until the buffer is full or the file ends.
    ///
    /// # Errors
    /// Errors of the lower file system.
    pub fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        self.fs.read_fully(&self.request(), self.ino, self.handle, offset, buffer)
    }

    /// Writes all of the data.
    ///
    /// # Errors
    /// Errors of the lower file system.
    pub fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        let options = WriteOptions::default();
        self.fs.write_all(&self.request(), self.ino, self.handle, offset, data, options)
    }

    /// Makes data, size, attributes and xattrs durable.
    ///
    /// # Errors
    /// Errors of the lower file system.
    pub fn sync(&self) -> Result<()> {
        self.fs.fsync(&self.request(), self.ino, self.handle, false)
    }

    /// Drops the clean pages that the kernel caches.
    pub(crate) fn drop_pages(&self) -> Result<()> {
        self.fs.drop_pages(self.ino, self.handle, 0..self.attr()?.size);
        Ok(())
    }

    /// Frees the bytes of a range; the size does not change.
    ///
    /// # Errors
    /// Errors of the lower file system.
    pub fn punch(&self, offset: u64, length: u64) -> Result<()> {
        let mode = FallocateMode::PUNCH_HOLE | FallocateMode::KEEP_SIZE;
        self.fs.fallocate(&self.request(), self.ino, self.handle, offset, length, mode)
    }

    /// Truncates the file, or extends it by a hole.
    ///
    /// # Errors
    /// Errors of the lower file system.
    pub fn set_size(&self, size: u64) -> Result<()> {
        let changes = SetAttr { size: Some(size), ..SetAttr::default() };
        self.fs.setattr(&self.request(), self.ino, Some(self.handle), &changes).map(drop)
    }

    /// Sets the time of the last modification.
    ///
    /// # Errors
    /// Errors of the lower file system.
    pub fn set_modified(&self, modified: Timestamp) -> Result<()> {
        let changes = SetAttr { modified: Some(SetTime::To(modified)), ..SetAttr::default() };
        self.fs.setattr(&self.request(), self.ino, Some(self.handle), &changes).map(drop)
    }

    /// Returns the set-id bits and the file capability, which the next write will remove. `attr`
    /// contains the current attributes of the file.
    ///
    /// # Errors
    /// Errors of the lower file system.
    pub fn privileges(&self, attr: &Attr) -> Result<Privileges> {
        let name = OsStr::new(CAPABILITY);
        let capability = match self.fs.getxattr(&self.request(), self.ino, name) {
            Ok(value) => Some(value),
            Err(error) => match error.errno() {
                Errno::NODATA | Errno::OPNOTSUPP | Errno::NOSYS => None,
                _ => return Err(error),
            },
        };
        Ok(Privileges { permissions: attr.permissions, capability })
    }

    /// Restores the set-id bits and the file capability that a write has removed.
    ///
    /// # Errors
    /// Errors of the lower file system; only root may set some of these privileges.
    pub fn give_back(&self, privileges: &Privileges) -> Result<()> {
        let Privileges { permissions, capability } = privileges;
        if permissions.has_set_id() && self.attr()?.permissions != *permissions {
            let changes = SetAttr { permissions: Some(*permissions), ..SetAttr::default() };
            self.fs.setattr(&self.request(), self.ino, Some(self.handle), &changes)?;
        }
        let Some(value) = capability else { return Ok(()) };
        let (name, mode) = (OsStr::new(CAPABILITY), XattrMode::empty());
        self.fs.setxattr(&self.request(), self.ino, name, value, mode)
    }

    /// Returns whether there may be data between two offsets.
    ///
    /// # Errors
    /// Errors of the lower file system.
    pub fn has_data(&self, from: u64, to: u64) -> Result<bool> {
        Ok(self.next_data(from)?.is_some_and(|data| data < to))
    }

    /// Returns the first offset at or after `from` that may contain data, or `None` if only a hole
    /// follows.
    ///
    /// # Errors
    /// Errors of the lower file system.
    pub fn next_data(&self, from: u64) -> Result<Option<u64>> {
        // A file system that can't search for data may have data anywhere.
        self.seek(from, SeekTo::Data, Some(from))
    }

    /// Returns the start of the first hole at or after `from`. Returns `None` if `from` is past the
    /// end of the file, or if the file system can't search for holes.
    ///
    /// # Errors
    /// Errors of the lower file system.
    pub fn next_hole(&self, from: u64) -> Result<Option<u64>> {
        self.seek(from, SeekTo::Hole, None)
    }

    /// Returns the next range of data at or after an offset.
    ///
    /// # Errors
    /// Errors of the lower file system, including the error of one that can't search for data.
    pub fn next_run(&self, from: u64) -> Result<Option<Range<u64>>> {
        let ask = |at, to| self.fs.lseek(&self.request(), self.ino, self.handle, at, to);
        let start = match ask(from, SeekTo::Data) {
            Err(error) if error.errno() == Errno::NXIO => return Ok(None),
            start => start?,
        };
        // A hole may have replaced the data since the first call.
        Ok(Some(start..ask(start, SeekTo::Hole)?.max(start + 1)))
    }

    fn seek(&self, from: u64, to: SeekTo, unknown: Option<u64>) -> Result<Option<u64>> {
        match self.fs.lseek(&self.request(), self.ino, self.handle, from, to) {
            Ok(found) => Ok(Some(found)),
            Err(error) => match error.errno() {
                Errno::NXIO => Ok(None),
                Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS => Ok(unknown),
                _ => Err(error),
            },
        }
    }
}

/// The set-id bits and the file capability of a file. A write removes the capability, and the
/// set-id bits unless the writer may keep them. This protects trusted programs from changes. The
/// engine restores both, because its writes change no byte that programs see.
#[derive(Debug)]
pub struct Privileges {
    permissions: Permissions,
    capability: Option<Vec<u8>>,
}

/// Runs an operation on a file whose owner, an ordinary user, has no permission to read or write
/// it. Gives the owner these permissions temporarily. If the process is killed during the
/// operation, the file keeps these permissions. Also returns the result of restoring the
/// permissions.
pub(crate) fn with_leave<T>(
    fs: &dyn FileSystem,
    request: &Request,
    ino: Ino,
    work: impl FnOnce() -> Result<T>,
) -> Result<(T, Result<()>)> {
    const OWNER_MAY: u32 = 0o600;
    let before = fs.getattr(request, ino, None)?.permissions;
    let set = |permissions| {
        let changes = SetAttr { permissions: Some(permissions), ..SetAttr::default() };
        fs.setattr(request, ino, None, &changes).map(drop)
    };
    set(Permissions::new(before.bits() | OWNER_MAY))?;
    let done = work();
    let restored = set(before);
    Ok((done?, restored))
}

impl Drop for OwnFile {
    fn drop(&mut self) {
        if let Err(error) = self.fs.release(&self.request(), self.ino, self.handle) {
            tracing::warn!(%error, ino = self.ino.0, "can't close a lower file");
        }
    }
}

/// An inode with a lookup reference, which is released on drop.
pub struct Found {
    fs: Arc<dyn FileSystem>,
    /// The attributes of the inode when it was found.
    pub attr: Attr,
    counts: bool,
}

impl Found {
    /// Returns the root directory.
    ///
    /// # Errors
    /// Errors of the lower file system.
    pub fn root(fs: &Arc<dyn FileSystem>) -> Result<Self> {
        let attr = fs.getattr(&own_request(), Ino::ROOT, None)?;
        Ok(Self { fs: Arc::clone(fs), attr, counts: false })
    }

    /// Looks up a name in a directory.
    ///
    /// # Errors
    /// `ENOENT` if the name does not exist.
    pub fn below(fs: &Arc<dyn FileSystem>, parent: Ino, name: &OsStr) -> Result<Self> {
        let entry = fs.lookup(&own_request(), parent, Name::new(name)?)?;
        Ok(Self { fs: Arc::clone(fs), attr: entry.attr, counts: true })
    }

    /// Looks up a path from the root. Symbolic links are not followed.
    ///
    /// # Errors
    /// `ENOENT` if the path does not exist.
    pub fn at(fs: &Arc<dyn FileSystem>, path: &[u8]) -> Result<Self> {
        let mut found = Self::root(fs)?;
        for name in path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
            found = Self::below(fs, found.attr.ino, OsStr::from_bytes(name))?;
        }
        Ok(found)
    }

    /// Returns the inode number.
    #[must_use]
    pub fn ino(&self) -> Ino {
        self.attr.ino
    }
}

impl Drop for Found {
    fn drop(&mut self) {
        if self.counts {
            self.fs.forget(self.attr.ino, 1);
        }
    }
}

/// Returns the names of an inode's xattrs; none if the file system has no xattrs.
pub(crate) fn xattr_names(
    fs: &dyn FileSystem,
    request: &Request,
    ino: Ino,
) -> Result<Vec<OsString>> {
    let names = match fs.listxattr(request, ino) {
        Err(error) if matches!(error.errno(), Errno::OPNOTSUPP | Errno::NOSYS) => Vec::new(),
        names => names?,
    };
    let names = names.split(|byte| *byte == 0).filter(|name| !name.is_empty());
    Ok(names.map(|name| OsStr::from_bytes(name).to_owned()).collect())
}

/// Returns the names in a directory, without `.` and `..`.
///
/// # Errors
/// Errors of the lower file system.
pub fn names(fs: &dyn FileSystem, directory: Ino) -> Result<Vec<OsString>> {
    let request = own_request();
    let handle = fs.opendir(&request, directory)?;
    let mut names = Vec::new();
    let listed = fs.readdir(&request, directory, handle, 0, &mut |entry| {
        if entry.name != "." && entry.name != ".." {
            names.push(entry.name.to_owned());
        }
        true
    });
    fs.releasedir(&request, directory, handle)?;
    listed.map(|()| names)
}

/// Returns whether an error means that the lower file system, or a quota, has no space left.
pub(crate) fn is_full(errno: Errno) -> bool {
    matches!(errno, Errno::NOSPC | Errno::DQUOT)
}

/// Returns whether an error means that a file does not exist, instead of being unreachable.
pub(crate) fn is_missing(error: &fslab_vfs::Error) -> bool {
    matches!(error.errno(), Errno::NOENT | Errno::STALE)
}
