//! A directory of the host as a file system: a leaf that stores its files in this directory.
//!
//! Inodes are identified by device, number and generation, and reopened by file handle. A walk over
//! millions of files thus needs neither descriptors nor much memory. An operation that creates a
//! file runs with the caller's ids, groups and umask. All other operations run with the rights of
//! this process, because the kernel has already checked the caller's permissions.
//!
//! Whether set-id bits survive a change is decided here, or by the kernel that sent the request.
//! The decision must not depend on the capabilities of the serving thread. But the transport drops
//! CAP_FSETID on a thread when it registers files for passthrough. So each operation that could
//! clear the bits first raises the capability again.
//!
//! Times are those of the lower file system; [`Request::now`] is not used. At most a quarter of the
//! process's descriptors are kept for directories, and at most another quarter for removed inodes.
//! See [`HostOptions`] for operation without file handles.

mod access_times;
mod attr;
mod creation;
mod devices;
mod directory;
mod extents;
mod flags;
mod inodes;
mod lower;
mod numbers;
mod resolve;
mod setattr;
mod taken_over;
mod tree_lock;
mod xattr;

pub use tree_lock::is_lock_file_name;

pub use attr::encode_device;

use std::ffi::{OsStr, OsString};
use std::io::IoSlice;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use fslab_sys::credentials::raise_fsetid;
use fslab_sys::supervise::Inherited;
use fslab_sys::{clone, lease};
use parking_lot::Mutex;
use rustix::fs::{Advice, AtFlags, FallocateFlags, FileType, Mode, OFlags, RenameFlags, SeekFrom};
use rustix::io::ReadWriteFlags;

use crate::access_times::AccessTimes;
use crate::error::{Errno, Error, Result};
use crate::file_attr::{FileAttr, FileAttrForm};
use crate::file_system::{DirectorySink, FileSystem};
use crate::handle_table::HandleTable;
use crate::host::creation::{as_caller, unlink_or_say};
use crate::host::directory::OpenDirectory;
use crate::host::lower::{ITSELF, Lower, name_of, proc_path, reopen_as_path};
use crate::layout::Layout;
use crate::types::{
    Attr, DirectoryEntry, Entry, FallocateMode, FileKind, Handle, Ino, LockMode, Name, OpenMode,
    Opened, Permissions, RenameMode, Request, SeekTo, SetAttr, StatFs, WriteOptions, XattrMode,
};

/// Options for using a host directory.
#[derive(Clone, Debug)]
pub struct HostOptions {
    /// Identify inodes by file handle if the lower file system and the privileges allow it. Without
    /// file handles, each inode in use keeps one descriptor.
    pub file_handles: bool,
    /// Which accesses to files update access times. If the mount has another option, the directory
    /// is used through a copy of its mount. File systems mounted below it later are then not
    /// visible.
    pub access_times: AccessTimes,
    /// Descriptors that an earlier process serving the same tree has left open. This process keeps
    /// the inode numbers of the earlier one.
    pub inherited: Option<Arc<Inherited>>,
}

impl Default for HostOptions {
    fn default() -> Self {
        Self { file_handles: true, access_times: AccessTimes::default(), inherited: None }
    }
}

/// A directory of the host.
#[derive(Debug)]
pub struct HostFs {
    lower: Lower,
    files: HandleTable<Arc<OwnedFd>>,
    directories: HandleTable<OpenDirectory>,
    /// The original directory, if it is used through a copy of its mount. The tree lock needs the
    /// parent directories, which can't be reached from the copy.
    copied: Option<OwnedFd>,
    /// The locks of the whole tree, if it is locked.
    lock: OnceLock<tree_lock::Locks>,
    locking: Mutex<()>,
}

/// Maximum number of attempts to create a file while other processes create and remove its name.
const CREATE_ATTEMPTS_MAX: u32 = 1000;

/// Open flags that are passed to the lower file. `O_DIRECT` is not passed, because requests arrive
/// in buffers of any alignment. `O_APPEND` is not passed, because each write states whether it
/// appends.
const LOWER_FLAGS: OpenMode = OpenMode::WRITE_ONLY
    .union(OpenMode::READ_WRITE)
    .union(OpenMode::TRUNCATE)
    .union(OpenMode::DATA_SYNC)
    .union(OpenMode::SYNC)
    .union(OpenMode::NO_ACCESS_TIME);

impl HostFs {
    /// Opens a directory as the root of a file system.
    ///
    /// # Errors
    /// Errors of opening the directory.
    pub fn open(path: &Path, options: &HostOptions) -> Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Self::from_descriptor(rustix::fs::open(path, flags, Mode::empty())?, options)
    }

    /// Uses an open directory as the root, even if something is mounted over its path later.
    ///
    /// # Errors
    /// Errors of `statx`; `EPERM` without the privilege to choose access times.
    pub fn from_descriptor(root: OwnedFd, options: &HostOptions) -> Result<Self> {
        let (root, copied) = match access_times::copied_for(&root, options.access_times)? {
            Some(copy) => (copy, Some(root)),
            None => (root, None),
        };
        let root_name = copied.as_ref().and_then(name_of);
        let lower = Lower::new(root, root_name, options)?;
        if options.file_handles && !lower.has_handles() {
            tracing::info!(
                "can't use file handles, because CAP_DAC_READ_SEARCH is missing or the lower file \
                 system does not support them; so each inode in use needs an open descriptor"
            );
        }
        let (files, directories) = (HandleTable::default(), HandleTable::default());
        let (lock, locking) = (OnceLock::new(), Mutex::default());
        Ok(Self { lower, files, directories, copied, lock, locking })
    }

    /// Number of inodes in use, including the root.
    #[must_use]
    pub fn remembered_inodes(&self) -> usize {
        self.lower.inodes.len()
    }

    /// Whether inodes are identified by file handle, without a descriptor each.
    #[must_use]
    pub fn has_file_handles(&self) -> bool {
        self.lower.has_handles()
    }

    /// Whether a later process that serves the same directory can find the inodes of this process
    /// by their numbers ([`HostOptions::inherited`]). It finds them through inherited descriptors,
    /// or by number if the lower file system can open inodes by number.
    #[must_use]
    pub fn can_be_taken_over(&self) -> bool {
        !self.has_file_handles() || self.lower.numbers.is_some()
    }

    /// Fails with `refusal` for the name of the lock file, if this tree is locked.
    fn expect_usable(&self, parent: Ino, name: Name<'_>, refusal: Errno) -> Result<()> {
        match self.lock.get() {
            Some(lock) if is_lock_file(lock, parent, name) => Err(refusal.into()),
            _ => Ok(()),
        }
    }

    /// Checks that requests may reach an inode. Fails for the lock file of this tree, and for a
    /// directory in a tree that another program has locked.
    fn expect_shown(&self, lock: &tree_lock::Locks, found: &Attr) -> Result<()> {
        if let Some(hidden) = lock.hidden() {
            let name = attr::stat_at(self.lower.directory(Ino::ROOT)?, OsStr::new(hidden));
            if name.is_ok_and(|file| Ino(file.stx_ino) == found.ino) {
                return Err(Errno::STALE.into());
            }
        }
        if found.kind == FileKind::Directory && found.ino != Ino::ROOT {
            let directory = self.lower.directory(found.ino)?;
            return self.lower.walk_up(directory, tree_lock::expect_free_directory);
        }
        Ok(())
    }

    /// Creates a file as the caller, and adds the new inode to the table.
    fn create_named(
        &self,
        request: &Request,
        parent: Ino,
        name: Name<'_>,
        create: impl FnOnce(&OwnedFd) -> rustix::io::Result<()>,
    ) -> Result<Entry> {
        self.expect_usable(parent, name, Errno::PERM)?;
        raise_fsetid()?;
        let directory = self.lower.directory(parent)?;
        as_caller(request, || create(&directory))?;
        let entry = self.lower.lookup(parent, name)?;
        let ino = entry.attr.ino;
        let labelled = self.lower.path(ino).and_then(|path| xattr::label(request, &path));
        labelled.inspect_err(|_| {
            self.forget(ino, 1);
            unlink_or_say(&directory, name, entry.attr.kind);
        })?;
        Ok(entry)
    }

    fn enter_created(&self, file: OwnedFd) -> Result<(Entry, Opened)> {
        let file = Arc::new(file);
        let stat = attr::stat(&file)?;
        let entry = self.lower.enter(Arc::clone(&file), &stat)?;
        if stat.stx_nlink == 0 {
            self.lower.pin_if_nameless(reopen_as_path(&file)?);
        }
        let opened = self.opened(entry.attr.ino, file)?;
        Ok((entry, opened))
    }

    fn opened(&self, ino: Ino, file: Arc<OwnedFd>) -> Result<Opened> {
        let no_flush = !self.lower.reports_at_close(ino)?;
        let backing = Some(Arc::clone(&file));
        let handle = self.files.insert(file);
        Ok(Opened { handle, backing, keep_cache: true, direct: false, no_flush })
    }

    fn remove(&self, parent: Ino, name: Name<'_>, flags: AtFlags) -> Result<()> {
        self.expect_usable(parent, name, Errno::NOENT)?;
        let directory = self.lower.directory(parent)?;
        let victim = self.lower.victim(&directory, name);
        rustix::fs::unlinkat(&directory, name.as_os_str(), flags)?;
        victim.into_iter().for_each(|victim| self.lower.pin_if_nameless(victim));
        Ok(())
    }
}

impl FileSystem for HostFs {
    fn layout(&self) -> Option<&dyn Layout> {
        Some(self)
    }

    fn path_below(&self, ino: Ino) -> Option<PathBuf> {
        self.lower.name(ino)
    }

    fn lock_tree(&self, mode: LockMode) -> Result<()> {
        let _alone = self.locking.lock();
        if self.lock.get().is_none() {
            let locks = match &self.copied {
                Some(root) => tree_lock::lock(root, mode, self.lower.taken_over.as_ref())?,
                None => {
                    let root = self.lower.path(Ino::ROOT)?;
                    tree_lock::lock(root, mode, self.lower.taken_over.as_ref())?
                }
            };
            self.lock.get_or_init(|| locks);
        }
        Ok(())
    }

    fn take_lease(&self, _ino: Ino, handle: Handle) -> Result<()> {
        let file = self.files.get(handle)?;
        Ok(lease::take_alone(&*file)?)
    }

    fn end_lease(&self, ino: Ino, handle: Handle) {
        let ended = self.files.get(handle).and_then(|file| Ok(lease::give_back(&*file)?));
        if let Err(error) = ended {
            tracing::warn!(
                %error,
                ino = ino.0,
                "a lease had already ended, because the kernel broke it for a waiting process"
            );
        }
    }

    fn clone_range(
        &self,
        (_, source, source_offset): (Ino, Handle, u64),
        (_, target, target_offset): (Ino, Handle, u64),
        length: u64,
    ) -> Result<()> {
        let (source, target) = (self.files.get(source)?, self.files.get(target)?);
        Ok(clone::range((&*source, source_offset), (&*target, target_offset), length)?)
    }

    fn can_resolve(&self) -> bool {
        self.lower.can_resolve()
    }

    fn resolve(&self, _request: &Request, ino: Ino) -> Result<Entry> {
        let entry = self.lower.resolve(ino)?;
        let allowed = self.lock.get().map_or(Ok(()), |lock| self.expect_shown(lock, &entry.attr));
        allowed.inspect_err(|_| self.forget(ino, 1))?;
        Ok(entry)
    }

    fn parent_of(&self, _request: &Request, ino: Ino) -> Result<Entry> {
        self.lower.parent_of(ino)
    }

    fn lookup(&self, _request: &Request, parent: Ino, name: Name<'_>) -> Result<Entry> {
        let Some(lock) = self.lock.get() else { return self.lower.lookup(parent, name) };
        if is_lock_file(lock, parent, name) {
            return Err(Errno::NOENT.into());
        }
        let entry = self.lower.lookup(parent, name)?;
        if entry.attr.kind == FileKind::Directory {
            let directory = self.lower.directory(parent)?;
            let met = tree_lock::expect_unlocked(&directory, name.as_os_str());
            met.inspect_err(|_| self.forget(entry.attr.ino, 1))?;
        }
        Ok(entry)
    }

    fn forget(&self, ino: Ino, lookups: u64) {
        self.lower.forget(ino, lookups);
    }

    fn syncs_whole_tree(&self) -> bool {
        self.lower.devices.all_have_handles()
    }

    /// A hold is counted as a lookup.
    fn hold(&self, ino: Ino) -> Result<()> {
        self.lower.expect_known(ino)?;
        self.lower.inodes.hold(ino)
    }

    fn let_go(&self, ino: Ino) {
        self.lower.forget(ino, 1);
    }

    fn getattr(&self, _request: &Request, ino: Ino, handle: Option<Handle>) -> Result<Attr> {
        let stat = match handle {
            Some(handle) => attr::stat(&*self.files.get(handle)?)?,
            None => attr::stat(self.lower.path(ino)?)?,
        };
        self.lower.to_attr(ino, &stat)
    }

    fn setattr(
        &self,
        request: &Request,
        ino: Ino,
        handle: Option<Handle>,
        changes: &SetAttr,
    ) -> Result<Attr> {
        raise_fsetid()?;
        let file = handle.map(|handle| self.files.get(handle)).transpose()?;
        self.set_attributes(request, ino, file.as_deref(), changes)?;
        self.getattr(request, ino, handle)
    }

    fn readlink(&self, _request: &Request, ino: Ino) -> Result<OsString> {
        match rustix::fs::readlinkat(self.lower.path(ino)?, "", Vec::new()) {
            Ok(target) => Ok(OsString::from_vec(target.into_bytes())),
            // The kernel returns this error for anything other than a symbolic link.
            Err(Errno::NOENT) => Err(Errno::INVAL.into()),
            Err(error) => Err(error.into()),
        }
    }

    fn mknod(
        &self,
        request: &Request,
        parent: Ino,
        name: Name<'_>,
        mode: u32,
        device: u32,
    ) -> Result<Entry> {
        let kind = match FileType::from_raw_mode(mode) {
            FileType::Unknown if mode & !0o7777 == 0 => FileType::RegularFile,
            kind => kind,
        };
        let mode = Mode::from_raw_mode(mode);
        let device = attr::decode_device(device);
        self.create_named(request, parent, name, |directory| {
            rustix::fs::mknodat(directory, name.as_os_str(), kind, mode, device)
        })
    }

    fn mkdir(&self, request: &Request, parent: Ino, name: Name<'_>, mode: u32) -> Result<Entry> {
        let mode = Mode::from_raw_mode(mode);
        self.create_named(request, parent, name, |directory| {
            rustix::fs::mkdirat(directory, name.as_os_str(), mode)
        })
    }

    fn symlink(
        &self,
        request: &Request,
        parent: Ino,
        name: Name<'_>,
        target: &OsStr,
    ) -> Result<Entry> {
        self.create_named(request, parent, name, |directory| {
            rustix::fs::symlinkat(target, directory, name.as_os_str())
        })
    }

    fn unlink(&self, _request: &Request, parent: Ino, name: Name<'_>) -> Result<()> {
        self.remove(parent, name, AtFlags::empty())
    }

    fn rmdir(&self, _request: &Request, parent: Ino, name: Name<'_>) -> Result<()> {
        self.remove(parent, name, AtFlags::REMOVEDIR)
    }

    fn rename(
        &self,
        _request: &Request,
        parent: Ino,
        name: Name<'_>,
        new_parent: Ino,
        new_name: Name<'_>,
        mode: RenameMode,
    ) -> Result<()> {
        self.expect_usable(parent, name, Errno::NOENT)?;
        self.expect_usable(new_parent, new_name, Errno::PERM)?;
        let (from, to) = (self.lower.directory(parent)?, self.lower.directory(new_parent)?);
        let replaces = !mode.intersects(RenameMode::NO_REPLACE | RenameMode::EXCHANGE);
        let victim = if replaces { self.lower.victim(&to, new_name) } else { None };
        let flags = RenameFlags::from_bits_retain(mode.bits());
        rustix::fs::renameat_with(from, name.as_os_str(), to, new_name.as_os_str(), flags)?;
        victim.into_iter().for_each(|victim| self.lower.pin_if_nameless(victim));
        Ok(())
    }

    fn link(
        &self,
        _request: &Request,
        ino: Ino,
        new_parent: Ino,
        new_name: Name<'_>,
    ) -> Result<Entry> {
        self.expect_usable(new_parent, new_name, Errno::PERM)?;
        let source = self.lower.path(ino)?;
        let directory = self.lower.directory(new_parent)?;
        let flags = AtFlags::SYMLINK_FOLLOW;
        let path = proc_path(&source);
        rustix::fs::linkat(rustix::fs::CWD, path, directory, new_name.as_os_str(), flags)?;
        let stat = attr::stat(&source)?;
        self.lower.enter(source, &stat)
    }

    fn open(&self, _request: &Request, ino: Ino, mode: OpenMode) -> Result<Opened> {
        if let Some(left) = &self.lower.taken_over {
            self.lower.expect_known(ino)?;
            // The inherited descriptor is used, because the opener may no longer have the right to
            // open the file.
            if let Some(file) = left.opened(ino, to_flags(mode)) {
                return self.opened(ino, Arc::new(file));
            }
        }
        if mode.contains(OpenMode::TRUNCATE) {
            raise_fsetid()?;
        }
        let file =
            self.lower.open_file(ino, to_flags(mode)).or_else(|error| match error.errno() {
                // Append-only files (chattr +a) can only be opened with `O_APPEND`.
                Errno::PERM if mode.contains(OpenMode::APPEND) => {
                    self.lower.open_file(ino, to_flags(mode) | OFlags::APPEND)
                }
                _ => Err(error),
            })?;
        // Only the daemon knows whether a writer may keep set-id bits, so files with these bits
        // can't use passthrough.
        let watched = mode.writes() && attr::permissions(&attr::stat(&file)?).has_set_id();
        let opened = self.opened(ino, Arc::new(file))?;
        Ok(Opened { backing: opened.backing.filter(|_| !watched), ..opened })
    }

    fn create(
        &self,
        request: &Request,
        parent: Ino,
        name: Name<'_>,
        mode: u32,
        flags: OpenMode,
    ) -> Result<(Entry, Opened)> {
        self.expect_usable(parent, name, Errno::PERM)?;
        for _ in 0..CREATE_ATTEMPTS_MAX {
            match self.create_new(request, parent, name, mode, flags) {
                Err(Error::Errno(Errno::EXIST)) if !flags.contains(OpenMode::EXCLUSIVE) => {}
                created => return created,
            }
            match self.open_existing(request, parent, name, flags) {
                // The name was removed after the exclusive creation had found it.
                Err(Error::Errno(Errno::NOENT | Errno::STALE)) => {}
                opened => return opened,
            }
        }
        Err(Errno::NOENT.into())
    }

    fn tmpfile(
        &self,
        request: &Request,
        parent: Ino,
        mode: u32,
        flags: OpenMode,
    ) -> Result<(Entry, Opened)> {
        raise_fsetid()?;
        let directory = self.lower.directory(parent)?;
        // For an unnamed file, `O_EXCL` means that the file can never get a name.
        let how = to_flags(flags) | OFlags::TMPFILE | OFlags::CLOEXEC;
        let how = how | OFlags::from_bits_retain((flags & OpenMode::EXCLUSIVE).bits());
        let mode = Mode::from_raw_mode(mode);
        let file = as_caller(request, || rustix::fs::openat(&directory, ".", how, mode))?;
        xattr::label(request, &file)?;
        self.enter_created(file)
    }

    fn read(
        &self,
        _request: &Request,
        _ino: Ino,
        handle: Handle,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<usize> {
        let file = self.files.get(handle)?;
        let mut done = 0;
        loop {
            match rustix::io::pread(&*file, &mut buffer[done..], offset + done as u64) {
                Ok(count) => {
                    done += count;
                    if count == 0 || done == buffer.len() {
                        break;
                    }
                }
                Err(Errno::INTR) => {}
                // The error is returned even after a partial read, because a short count would mean
                // the end of the file. A mount would then fill the page with zeros.
                Err(error) => return Err(error.into()),
            }
        }
        Ok(done)
    }

    fn write(
        &self,
        request: &Request,
        ino: Ino,
        handle: Handle,
        offset: u64,
        data: &[u8],
        options: WriteOptions,
    ) -> Result<usize> {
        raise_fsetid()?;
        let file = self.files.get(handle)?;
        let write = || match options.append {
            false => rustix::io::pwrite(&*file, data, offset),
            true => {
                let flags = ReadWriteFlags::APPEND;
                rustix::io::pwritev2(&*file, &[IoSlice::new(data)], offset, flags)
            }
        };
        let count = rustix::io::retry_on_intr(write)?;
        if options.kill_set_id && count > 0 {
            self.clear_set_id(request, ino)?;
        }
        Ok(count)
    }

    fn flush(&self, _request: &Request, ino: Ino, handle: Handle) -> Result<()> {
        if self.lower.reports_at_close(ino)? {
            let copy = rustix::io::dup(&*self.files.get(handle)?)?;
            fslab_sys::descriptor::close(copy)?;
        }
        Ok(())
    }

    fn release(&self, _request: &Request, _ino: Ino, handle: Handle) -> Result<()> {
        self.files.remove(handle).map(drop)
    }

    fn fsync(&self, _request: &Request, _ino: Ino, handle: Handle, data_only: bool) -> Result<()> {
        synchronize(&*self.files.get(handle)?, data_only)
    }

    fn opendir(&self, _request: &Request, ino: Ino) -> Result<Handle> {
        let descriptor = self.lower.open_directory(ino)?;
        Ok(self.directories.insert(OpenDirectory::new(descriptor)))
    }

    fn drop_pages(&self, _ino: Ino, handle: Handle, range: std::ops::Range<u64>) {
        let Ok(file) = self.files.get(handle) else { return };
        let Some(length) = NonZeroU64::new(range.end - range.start) else { return };
        let dropped = rustix::fs::fadvise(&*file, range.start, Some(length), Advice::DontNeed);
        if let Err(error) = dropped {
            tracing::debug!(%error, "can't drop unneeded pages from the page cache");
        }
    }

    fn readdir(
        &self,
        _request: &Request,
        ino: Ino,
        handle: Handle,
        offset: u64,
        sink: &mut DirectorySink<'_>,
    ) -> Result<()> {
        let (identity, _) = self.lower.get(ino)?;
        let hidden = self.lock.get().filter(|_| ino == Ino::ROOT).and_then(|lock| lock.hidden());
        self.directories.get(handle)?.list(offset, &mut |entry| {
            if hidden.is_some_and(|hidden| entry.name == hidden) {
                return true;
            }
            sink(DirectoryEntry {
                ino: self.lower.shown(identity, entry.name.as_bytes(), entry.number),
                kind: entry.kind,
                next_offset: entry.next_offset,
                name: &entry.name,
            })
        })
    }

    fn releasedir(&self, _request: &Request, _ino: Ino, handle: Handle) -> Result<()> {
        self.directories.remove(handle).map(drop)
    }

    fn fsyncdir(
        &self,
        _request: &Request,
        _ino: Ino,
        handle: Handle,
        data_only: bool,
    ) -> Result<()> {
        synchronize(&self.directories.get(handle)?.descriptor, data_only)
    }

    fn syncfs(&self, _request: &Request, ino: Ino) -> Result<()> {
        self.lower.synchronize(ino)
    }

    fn statfs(&self, _request: &Request, ino: Ino) -> Result<StatFs> {
        let stat = rustix::fs::fstatvfs(self.lower.path(ino)?)?;
        let narrow = |size: u64| u32::try_from(size).unwrap_or(u32::MAX);
        Ok(StatFs {
            blocks: stat.f_blocks,
            blocks_free: stat.f_bfree,
            blocks_available: stat.f_bavail,
            files: stat.f_files,
            files_free: stat.f_ffree,
            block_size: narrow(stat.f_bsize),
            fragment_size: narrow(stat.f_frsize),
            name_max: narrow(stat.f_namemax),
        })
    }

    fn getxattr(&self, _request: &Request, ino: Ino, name: &OsStr) -> Result<Vec<u8>> {
        xattr::get(&*self.lower.path(ino)?, name)
    }

    fn setxattr(
        &self,
        _request: &Request,
        ino: Ino,
        name: &OsStr,
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()> {
        raise_fsetid()?;
        xattr::set(&*self.lower.path(ino)?, name, value, mode)?;
        if mode.contains(XattrMode::KILL_SET_GROUP_ID) {
            self.clear_set_group_id(ino)?;
        }
        Ok(())
    }

    fn listxattr(&self, request: &Request, ino: Ino) -> Result<Vec<u8>> {
        xattr::list(request, &*self.lower.path(ino)?)
    }

    fn removexattr(&self, _request: &Request, ino: Ino, name: &OsStr) -> Result<()> {
        Ok(rustix::fs::removexattr(proc_path(&*self.lower.path(ino)?), name)?)
    }

    fn fileattr_get(&self, _request: &Request, ino: Ino, form: FileAttrForm) -> Result<FileAttr> {
        flags::get(&self.lower.open_to_ask(ino)?, form)
    }

    fn fileattr_set(&self, _request: &Request, ino: Ino, attr: &FileAttr) -> Result<()> {
        flags::set(&self.lower.open_to_ask(ino)?, attr)
    }

    fn fallocate(
        &self,
        request: &Request,
        ino: Ino,
        handle: Handle,
        offset: u64,
        length: u64,
        mode: FallocateMode,
    ) -> Result<()> {
        raise_fsetid()?;
        let mode = FallocateFlags::from_bits_retain(mode.bits());
        let file = self.files.get(handle)?;
        rustix::io::retry_on_intr(|| rustix::fs::fallocate(&*file, mode, offset, length))?;
        self.clear_set_id_for(request, ino)
    }

    fn lseek(
        &self,
        _request: &Request,
        _ino: Ino,
        handle: Handle,
        offset: u64,
        to: SeekTo,
    ) -> Result<u64> {
        let position = match to {
            SeekTo::Data => SeekFrom::Data(offset),
            SeekTo::Hole => SeekFrom::Hole(offset),
        };
        Ok(rustix::fs::seek(&*self.files.get(handle)?, position)?)
    }

    fn copy_file_range(
        &self,
        request: &Request,
        (_, source, mut source_offset): (Ino, Handle, u64),
        (target_ino, target, mut target_offset): (Ino, Handle, u64),
        length: u64,
    ) -> Result<u64> {
        raise_fsetid()?;
        let (source, target) = (self.files.get(source)?, self.files.get(target)?);
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let count = rustix::fs::copy_file_range(
            &*source,
            Some(&mut source_offset),
            &*target,
            Some(&mut target_offset),
            length,
        )?;
        if count > 0 {
            self.clear_set_id_for(request, target_ino)?;
        }
        Ok(count as u64)
    }
}

impl HostFs {
    fn create_new(
        &self,
        request: &Request,
        parent: Ino,
        name: Name<'_>,
        mode: u32,
        flags: OpenMode,
    ) -> Result<(Entry, Opened)> {
        if mode & Permissions::SET_GID != 0 {
            raise_fsetid()?;
        }
        let directory = self.lower.directory(parent)?;
        let how = to_flags(flags) | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(mode);
        let file =
            as_caller(request, || rustix::fs::openat(&directory, name.as_os_str(), how, mode))?;
        xattr::label(request, &file)
            .inspect_err(|_| unlink_or_say(&directory, name, FileKind::Regular))?;
        self.enter_created(file)
    }

    fn open_existing(
        &self,
        request: &Request,
        parent: Ino,
        name: Name<'_>,
        flags: OpenMode,
    ) -> Result<(Entry, Opened)> {
        let mut entry = self.lower.lookup(parent, name)?;
        let ino = entry.attr.ino;
        let opened = self.open(request, ino, flags).inspect_err(|_| self.forget(ino, 1))?;
        // Opening may have truncated the file.
        entry.attr = self.getattr(request, ino, Some(opened.handle))?;
        Ok((entry, opened))
    }
}

/// Whether a name is that of the lock file of a locked tree.
fn is_lock_file(lock: &tree_lock::Locks, parent: Ino, name: Name<'_>) -> bool {
    parent == Ino::ROOT && lock.hidden().is_some_and(|hidden| name.as_os_str() == hidden)
}

fn to_flags(mode: OpenMode) -> OFlags {
    OFlags::from_bits_retain((mode & LOWER_FLAGS).bits())
}

fn synchronize(file: impl AsFd, data_only: bool) -> Result<()> {
    let call = if data_only { rustix::fs::fdatasync } else { rustix::fs::fsync };
    Ok(call(file)?)
}
