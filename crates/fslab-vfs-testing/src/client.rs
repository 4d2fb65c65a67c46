//! [`Client`]: a caller of a file system under test, with short methods for common operations.
//!
//! Invariant: once a client and its files are dropped, every lookup is forgotten and every handle
//! is released. So a test can check which inodes and handles the subject still has.
//! [`Client::problems`] reports releases that failed.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;

use fslab_vfs::FileSystem;
use fslab_vfs::{
    Attr, Creation, Credentials, Entry, FallocateMode, FileKind, Handle, Ino, Name, OpenMode,
    Permissions, RenameMode, Request, SeekTo, SetAttr, WriteOptions, XattrMode,
};
use fslab_vfs::{Cancellation, Deferral};
use fslab_vfs::{Errno, Result};
use fslab_vfs::{FileAttr, FileAttrForm};

/// Time to wait until the next change gets a later time. It is longer than one step of the coarsest
/// Linux clock for file times (10 ms).
const TICK: Duration = Duration::from_millis(25);

/// Default permissions of files and directories.
const FILE_MODE: u32 = 0o644;
const DIRECTORY_MODE: u32 = 0o755;

/// A caller of a file system under test.
#[derive(Clone)]
pub struct Client<'a> {
    ledger: Arc<Ledger<'a>>,
    credentials: Credentials,
    umask: u32,
}

/// The lookups that must be forgotten, and the problems so far.
struct Ledger<'a> {
    subject: &'a dyn FileSystem,
    lookups: Mutex<HashMap<Ino, u64>>,
    problems: Mutex<Vec<String>>,
}

impl Drop for Ledger<'_> {
    fn drop(&mut self) {
        for (ino, count) in self.lookups.get_mut().drain() {
            self.subject.forget(ino, count);
        }
    }
}

/// An entry of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The name.
    pub name: OsString,
    /// The inode that the directory reports.
    pub ino: Ino,
    /// The kind, if the directory reports it.
    pub kind: Option<FileKind>,
    /// The offset at which to continue the listing.
    pub next_offset: u64,
}

impl<'a> Client<'a> {
    /// A client for root with umask 022.
    #[must_use]
    pub fn new(subject: &'a dyn FileSystem) -> Self {
        let ledger = Ledger { subject, lookups: Mutex::default(), problems: Mutex::default() };
        Self { ledger: Arc::new(ledger), credentials: Credentials::default(), umask: 0o022 }
    }

    /// A client of the same file system with other credentials.
    #[must_use]
    pub fn as_user(&self, uid: u32, gid: u32) -> Self {
        Self { credentials: Credentials { uid, gid }, ..self.clone() }
    }

    /// A client with the same credentials and another umask.
    #[must_use]
    pub fn with_umask(&self, umask: u32) -> Self {
        Self { umask, ..self.clone() }
    }

    /// The file system itself, for operations without a short method.
    #[must_use]
    pub fn subject(&self) -> &'a dyn FileSystem {
        self.ledger.subject
    }

    /// Returns the errors of releases on drop, which no method could return.
    #[must_use]
    pub fn problems(&self) -> Vec<String> {
        self.ledger.problems.lock().clone()
    }

    /// A new request of this caller.
    #[must_use]
    pub fn request(&self) -> Request {
        Request {
            credentials: self.credentials.clone(),
            pid: 0,
            creation: Creation::default(),
            umask: self.umask,
            now: SystemTime::now().into(),
            cancellation: Cancellation::default(),
            deferral: Deferral::default(),
        }
    }

    /// Waits long enough for the next change of a file to get a later time.
    pub fn tick(&self) {
        std::thread::sleep(TICK);
    }

    /// Records a lookup that an operation returned.
    fn keep(&self, entry: Entry) -> Attr {
        *self.ledger.lookups.lock().entry(entry.attr.ino).or_default() += 1;
        entry.attr
    }

    /// Forgets all lookups of an inode now.
    pub fn forget(&self, ino: Ino) {
        if let Some(count) = self.ledger.lookups.lock().remove(&ino) {
            self.ledger.subject.forget(ino, count);
        }
    }
}

/// Operations on names.
impl Client<'_> {
    /// Looks up a name.
    pub fn lookup(&self, parent: Ino, name: impl AsRef<OsStr>) -> Result<Attr> {
        let name = Name::new(name.as_ref())?;
        self.subject().lookup(&self.request(), parent, name).map(|entry| self.keep(entry))
    }

    /// Whether a name exists.
    pub fn exists(&self, parent: Ino, name: impl AsRef<OsStr>) -> Result<bool> {
        match self.lookup(parent, name) {
            Ok(_) => Ok(true),
            Err(error) if error.errno() == Errno::NOENT => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Makes a directory with mode 0755.
    pub fn mkdir(&self, parent: Ino, name: impl AsRef<OsStr>) -> Result<Ino> {
        self.mkdir_mode(parent, name, DIRECTORY_MODE).map(|attr| attr.ino)
    }

    /// Makes a directory.
    pub fn mkdir_mode(&self, parent: Ino, name: impl AsRef<OsStr>, mode: u32) -> Result<Attr> {
        let name = Name::new(name.as_ref())?;
        self.subject().mkdir(&self.request(), parent, name, mode).map(|entry| self.keep(entry))
    }

    /// Makes a regular file with mode 0644 that contains `data`.
    pub fn file(&self, parent: Ino, name: impl AsRef<OsStr>, data: &[u8]) -> Result<Ino> {
        let (attr, file) = self.create(parent, name, FILE_MODE, OpenMode::EXCLUSIVE)?;
        file.write_all(0, data)?;
        file.close()?;
        Ok(attr.ino)
    }

    /// Makes or opens a regular file, for reading and writing.
    pub fn create(
        &self,
        parent: Ino,
        name: impl AsRef<OsStr>,
        mode: u32,
        flags: OpenMode,
    ) -> Result<(Attr, File<'_>)> {
        let name = Name::new(name.as_ref())?;
        let flags = OpenMode::READ_WRITE | flags;
        let (entry, opened) = self.subject().create(&self.request(), parent, name, mode, flags)?;
        let attr = self.keep(entry);
        Ok((attr.clone(), File::new(self, attr.ino, opened.handle, flags)))
    }

    /// Makes a regular file without a name.
    pub fn tmpfile(&self, parent: Ino, mode: u32, flags: OpenMode) -> Result<(Attr, File<'_>)> {
        let flags = OpenMode::READ_WRITE | flags;
        let (entry, opened) = self.subject().tmpfile(&self.request(), parent, mode, flags)?;
        let attr = self.keep(entry);
        Ok((attr.clone(), File::new(self, attr.ino, opened.handle, flags)))
    }

    /// Makes a file of any kind except a directory or a symbolic link.
    pub fn mknod(
        &self,
        parent: Ino,
        name: impl AsRef<OsStr>,
        mode: u32,
        device: u32,
    ) -> Result<Attr> {
        let name = Name::new(name.as_ref())?;
        let entry = self.subject().mknod(&self.request(), parent, name, mode, device)?;
        Ok(self.keep(entry))
    }

    /// Makes a symbolic link.
    pub fn symlink(
        &self,
        parent: Ino,
        name: impl AsRef<OsStr>,
        target: impl AsRef<OsStr>,
    ) -> Result<Attr> {
        let name = Name::new(name.as_ref())?;
        let entry = self.subject().symlink(&self.request(), parent, name, target.as_ref())?;
        Ok(self.keep(entry))
    }

    /// The target of a symbolic link.
    pub fn readlink(&self, ino: Ino) -> Result<OsString> {
        self.subject().readlink(&self.request(), ino)
    }

    /// Gives an inode one more name.
    pub fn link(&self, ino: Ino, parent: Ino, name: impl AsRef<OsStr>) -> Result<Attr> {
        let name = Name::new(name.as_ref())?;
        self.subject().link(&self.request(), ino, parent, name).map(|entry| self.keep(entry))
    }

    /// Removes a name.
    pub fn unlink(&self, parent: Ino, name: impl AsRef<OsStr>) -> Result<()> {
        self.subject().unlink(&self.request(), parent, Name::new(name.as_ref())?)
    }

    /// Removes an empty directory.
    pub fn rmdir(&self, parent: Ino, name: impl AsRef<OsStr>) -> Result<()> {
        self.subject().rmdir(&self.request(), parent, Name::new(name.as_ref())?)
    }

    /// Renames a file and replaces the target if it exists.
    pub fn rename(&self, parent: Ino, name: &str, new_parent: Ino, new_name: &str) -> Result<()> {
        self.rename_with(parent, name, new_parent, new_name, RenameMode::empty())
    }

    /// Renames a file.
    pub fn rename_with(
        &self,
        parent: Ino,
        name: &str,
        new_parent: Ino,
        new_name: &str,
        mode: RenameMode,
    ) -> Result<()> {
        let (name, new_name) = (Name::new(name.as_ref())?, Name::new(new_name.as_ref())?);
        self.subject().rename(&self.request(), parent, name, new_parent, new_name, mode)
    }

    /// Removes everything in a directory.
    pub fn clear(&self, directory: Ino) -> Result<()> {
        for entry in self.list(directory)? {
            let attr = self.lookup(directory, &entry.name)?;
            if attr.kind == FileKind::Directory {
                self.clear(attr.ino)?;
                self.rmdir(directory, &entry.name)?;
            } else {
                self.unlink(directory, &entry.name)?;
            }
            self.forget(attr.ino);
        }
        Ok(())
    }
}

/// Operations on directories.
impl Client<'_> {
    /// All entries except `.` and `..`, in the order of the listing.
    pub fn list(&self, directory: Ino) -> Result<Vec<Listed>> {
        let mut entries = self.list_all(directory)?;
        entries.retain(|entry| entry.name != "." && entry.name != "..");
        Ok(entries)
    }

    /// Makes the names in a directory durable.
    pub fn sync_directory(&self, directory: Ino) -> Result<()> {
        let listing = self.opendir(directory)?;
        listing.fsync(false)?;
        listing.close()
    }

    /// The names in a directory, sorted.
    pub fn names(&self, directory: Ino) -> Result<Vec<String>> {
        let entries = self.list(directory)?;
        let mut names: Vec<String> =
            entries.iter().map(|entry| entry.name.to_string_lossy().into_owned()).collect();
        names.sort();
        Ok(names)
    }

    /// All entries, read in one request.
    pub fn list_all(&self, directory: Ino) -> Result<Vec<Listed>> {
        let listing = self.opendir(directory)?;
        let entries = listing.next(0, usize::MAX)?;
        listing.close()?;
        Ok(entries)
    }

    /// Opens a directory.
    pub fn opendir(&self, directory: Ino) -> Result<Listing<'_>> {
        let handle = self.subject().opendir(&self.request(), directory)?;
        Ok(Listing { client: self, ino: directory, handle, open: true })
    }
}

/// Operations on attributes, xattrs and contents.
impl Client<'_> {
    /// The attributes of an inode.
    pub fn attr(&self, ino: Ino) -> Result<Attr> {
        self.subject().getattr(&self.request(), ino, None)
    }

    /// Changes attributes.
    pub fn set(&self, ino: Ino, changes: &SetAttr) -> Result<Attr> {
        self.subject().setattr(&self.request(), ino, None, changes)
    }

    /// Changes permissions.
    pub fn chmod(&self, ino: Ino, mode: u32) -> Result<Attr> {
        let permissions = Some(Permissions::new(mode));
        self.set(ino, &SetAttr { permissions, ..SetAttr::default() })
    }

    /// Changes owner and group.
    pub fn chown(&self, ino: Ino, uid: u32, gid: u32) -> Result<Attr> {
        self.set(ino, &SetAttr { uid: Some(uid), gid: Some(gid), ..SetAttr::default() })
    }

    /// Changes the size.
    pub fn truncate(&self, ino: Ino, size: u64) -> Result<Attr> {
        self.set(ino, &SetAttr { size: Some(size), ..SetAttr::default() })
    }

    /// The value of an xattr.
    pub fn getxattr(&self, ino: Ino, name: &str) -> Result<Vec<u8>> {
        self.subject().getxattr(&self.request(), ino, name.as_ref())
    }

    /// Sets an xattr.
    pub fn setxattr(&self, ino: Ino, name: &str, value: &[u8]) -> Result<()> {
        self.setxattr_mode(ino, name, value, XattrMode::empty())
    }

    /// Sets an xattr that must or must not exist.
    pub fn setxattr_mode(&self, ino: Ino, name: &str, value: &[u8], mode: XattrMode) -> Result<()> {
        self.subject().setxattr(&self.request(), ino, name.as_ref(), value, mode)
    }

    /// The names of all xattrs, sorted, without those that a security module or XFS adds.
    pub fn listxattr(&self, ino: Ino) -> Result<Vec<String>> {
        let bytes = self.subject().listxattr(&self.request(), ino)?;
        let mut names: Vec<String> = bytes
            .split(|byte| *byte == 0)
            .filter(|name| !name.is_empty() && !is_added_by_itself(name))
            .map(|name| OsStr::from_bytes(name).to_string_lossy().into_owned())
            .collect();
        names.sort();
        Ok(names)
    }

    /// Removes an xattr.
    pub fn removexattr(&self, ino: Ino, name: &str) -> Result<()> {
        self.subject().removexattr(&self.request(), ino, name.as_ref())
    }

    /// The inode flags of a file or directory.
    pub fn fileattr(&self, ino: Ino, form: FileAttrForm) -> Result<FileAttr> {
        self.subject().fileattr_get(&self.request(), ino, form)
    }

    /// Sets the inode flags of a file or directory.
    pub fn set_fileattr(&self, ino: Ino, attr: &FileAttr) -> Result<()> {
        self.subject().fileattr_set(&self.request(), ino, attr)
    }

    /// All bytes of a regular file.
    pub fn contents(&self, ino: Ino) -> Result<Vec<u8>> {
        let file = self.open(ino, OpenMode::empty())?;
        let size = self.attr(ino)?.size;
        let data = file.read(0, usize::try_from(size).unwrap_or(usize::MAX))?;
        file.close()?;
        Ok(data)
    }

    /// Opens a file; read-only if there are no flags.
    pub fn open(&self, ino: Ino, flags: OpenMode) -> Result<File<'_>> {
        let opened = self.subject().open(&self.request(), ino, flags)?;
        Ok(File::new(self, ino, opened.handle, flags))
    }
}

/// Whether SELinux or XFS adds the xattr. SELinux labels files, and XFS shows its stored ACLs a
/// second time.
fn is_added_by_itself(name: &[u8]) -> bool {
    name == b"security.selinux" || name.starts_with(b"trusted.SGI_ACL_")
}

/// An open file. Dropping it releases it.
pub struct File<'c> {
    client: &'c Client<'c>,
    /// The inode.
    pub ino: Ino,
    /// The handle.
    pub handle: Handle,
    mode: OpenMode,
    open: bool,
}

impl<'c> File<'c> {
    fn new(client: &'c Client<'_>, ino: Ino, handle: Handle, mode: OpenMode) -> Self {
        Self { client, ino, handle, mode, open: true }
    }

    /// Reads up to `length` bytes, in one request.
    pub fn read(&self, offset: u64, length: usize) -> Result<Vec<u8>> {
        let mut buffer = vec![0xaa; length];
        let request = self.client.request();
        let done =
            self.client.subject().read(&request, self.ino, self.handle, offset, &mut buffer)?;
        buffer.truncate(done);
        Ok(buffer)
    }

    /// Writes in one request and returns how many bytes were written.
    pub fn write(&self, offset: u64, data: &[u8]) -> Result<usize> {
        self.write_with(offset, data, WriteOptions::default())
    }

    /// Writes in one request. Appends if the file was opened for appending, as the kernel does.
    pub fn write_with(&self, offset: u64, data: &[u8], options: WriteOptions) -> Result<usize> {
        let (request, options) = (self.client.request(), self.options(options));
        self.client.subject().write(&request, self.ino, self.handle, offset, data, options)
    }

    /// Writes all bytes.
    pub fn write_all(&self, offset: u64, data: &[u8]) -> Result<()> {
        let (request, options) = (self.client.request(), self.options(WriteOptions::default()));
        self.client.subject().write_all(&request, self.ino, self.handle, offset, data, options)
    }

    fn options(&self, options: WriteOptions) -> WriteOptions {
        WriteOptions { append: options.append || self.mode.contains(OpenMode::APPEND), ..options }
    }

    /// Returns the attributes, requested through the handle.
    pub fn attr(&self) -> Result<Attr> {
        self.client.subject().getattr(&self.client.request(), self.ino, Some(self.handle))
    }

    /// Changes the size, through the handle.
    pub fn truncate(&self, size: u64) -> Result<Attr> {
        let changes = SetAttr { size: Some(size), ..SetAttr::default() };
        self.set(&changes)
    }

    /// Changes attributes, through the handle.
    pub fn set(&self, changes: &SetAttr) -> Result<Attr> {
        let request = self.client.request();
        self.client.subject().setattr(&request, self.ino, Some(self.handle), changes)
    }

    /// Reserves, zeroes or punches a range.
    pub fn fallocate(&self, offset: u64, length: u64, mode: FallocateMode) -> Result<()> {
        let request = self.client.request();
        self.client.subject().fallocate(&request, self.ino, self.handle, offset, length, mode)
    }

    /// Returns the offset of the next data or hole.
    pub fn seek(&self, offset: u64, to: SeekTo) -> Result<u64> {
        self.client.subject().lseek(&self.client.request(), self.ino, self.handle, offset, to)
    }

    /// Makes the file durable.
    pub fn fsync(&self, data_only: bool) -> Result<()> {
        self.client.subject().fsync(&self.client.request(), self.ino, self.handle, data_only)
    }

    /// Copies from this file to another.
    pub fn copy_to(
        &self,
        offset: u64,
        target: &File<'_>,
        target_offset: u64,
        length: u64,
    ) -> Result<u64> {
        self.client.subject().copy_file_range(
            &self.client.request(),
            (self.ino, self.handle, offset),
            (target.ino, target.handle, target_offset),
            length,
        )
    }

    /// Flushes and releases, as `close(2)` does.
    pub fn close(mut self) -> Result<()> {
        self.open = false;
        let request = self.client.request();
        let flushed = self.client.subject().flush(&request, self.ino, self.handle);
        self.client.subject().release(&request, self.ino, self.handle)?;
        flushed
    }
}

impl Drop for File<'_> {
    fn drop(&mut self) {
        if self.open
            && let Err(error) =
                self.client.subject().release(&self.client.request(), self.ino, self.handle)
        {
            self.client.ledger.problems.lock().push(format!("release of a file failed: {error}"));
        }
    }
}

/// An open directory. Dropping it releases it.
pub struct Listing<'c> {
    client: &'c Client<'c>,
    ino: Ino,
    handle: Handle,
    open: bool,
}

impl Listing<'_> {
    /// Reads up to `room` entries from `offset`. The sink refuses the entry after them.
    pub fn next(&self, offset: u64, room: usize) -> Result<Vec<Listed>> {
        let mut entries = Vec::new();
        let request = self.client.request();
        self.client.subject().readdir(&request, self.ino, self.handle, offset, &mut |entry| {
            if entries.len() == room {
                return false;
            }
            let name = OsString::from_vec(entry.name.as_bytes().to_vec());
            let (ino, kind, next_offset) = (entry.ino, entry.kind, entry.next_offset);
            entries.push(Listed { name, ino, kind, next_offset });
            true
        })?;
        Ok(entries)
    }

    /// Makes the directory durable.
    pub fn fsync(&self, data_only: bool) -> Result<()> {
        let request = self.client.request();
        self.client.subject().fsyncdir(&request, self.ino, self.handle, data_only)
    }

    /// Releases the directory.
    pub fn close(mut self) -> Result<()> {
        self.open = false;
        self.client.subject().releasedir(&self.client.request(), self.ino, self.handle)
    }
}

impl Drop for Listing<'_> {
    fn drop(&mut self) {
        if self.open
            && let Err(error) =
                self.client.subject().releasedir(&self.client.request(), self.ino, self.handle)
        {
            let problem = format!("release of a directory failed: {error}");
            self.client.ledger.problems.lock().push(problem);
        }
    }
}
