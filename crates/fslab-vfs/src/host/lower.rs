//! The lower tree: maps an [`Ino`] to descriptors and descriptors to an [`Ino`].

use std::ffi::OsString;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::Arc;

use fslab_sys::file_handle::FileHandle;
use quick_cache::sync::Cache;
use rustix::fs::{AtFlags, Mode, OFlags, Statx};
use rustix::process::{Resource, getrlimit};
use rustix::rand::GetRandomFlags;

use crate::error::{Errno, Error, Result};
use crate::host::devices::Devices;
use crate::host::inodes::{Identity, Inodes, Reference, is_own_number};
use crate::host::numbers::Numbers;
use crate::host::taken_over::TakenOver;
use crate::host::{HostOptions, attr};
use crate::types::{Attr, Entry, FileKind, Ino, Name};

/// Inodes, devices, and cached descriptors of directories.
#[derive(Debug)]
pub(super) struct Lower {
    pub inodes: Inodes,
    pub(super) devices: Devices,
    /// `O_PATH` descriptors of recently used parent directories. The lower file system can't free a
    /// cached directory, so a directory is dropped from the cache when it is forgotten.
    directories: Cache<Ino, Arc<OwnedFd>>,
    pub(super) root_number: u64,
    pub(super) root_device: u64,
    /// Opens inodes on the root's device by their number, if that is possible.
    pub(super) numbers: Option<Numbers>,
    /// Descriptors inherited from an earlier process. The kernel may still use inodes that only
    /// that process has looked up.
    pub(super) taken_over: Option<TakenOver>,
    /// A random number that is mixed into the generation of inodes whose shown numbers may differ
    /// in other sessions.
    session: u64,
    /// The path of the root, if the root is used through a copy of its mount. The kernel reports
    /// the path of such a root as `/`.
    root_name: Option<PathBuf>,
}

impl Lower {
    /// Uses an open directory as the root.
    pub fn new(root: OwnedFd, root_name: Option<PathBuf>, options: &HostOptions) -> Result<Self> {
        let stat = attr::stat(&root)?;
        let budget = descriptor_budget();
        let root_device = attr::device_of(&stat);
        let devices = Devices::new(root_device, &root, options.file_handles)?;
        let numbers = devices.mount(0).and_then(|mount| Numbers::of(&root, mount));
        let identity = Identity { device: 0, number: stat.stx_ino };
        let inherited = options.inherited.clone();
        let taken_over = inherited
            .map(|left| TakenOver::new(left, &root, devices.root_has_handles()))
            .transpose()?;
        // The root is part of every path and never forgotten, so its descriptor is kept.
        let inodes = Inodes::new(identity, Reference::Descriptor(Arc::new(root)), budget);
        let directories = Cache::new(budget);
        Ok(Self {
            inodes,
            devices,
            directories,
            root_number: stat.stx_ino,
            root_device,
            numbers,
            taken_over,
            session: new_session()?,
            root_name,
        })
    }

    /// Writes back all data on the device of an inode and on every device found that has file
    /// handles.
    pub fn synchronize(&self, ino: Ino) -> Result<()> {
        rustix::fs::syncfs(self.open_to_ask(ino)?)?;
        self.devices.mounts().iter().try_for_each(|mount| Ok(rustix::fs::syncfs(mount)?))
    }

    /// Whether inodes in use need no descriptors.
    pub fn has_handles(&self) -> bool {
        self.devices.root_has_handles()
    }

    /// Returns the identity of an inode and a way to open it.
    pub fn get(&self, ino: Ino) -> Result<(Identity, Reference)> {
        self.expect_known(ino)?;
        self.inodes.get(ino)
    }

    /// If the inode is unknown here, takes it over from the earlier process.
    pub fn expect_known(&self, ino: Ino) -> Result<()> {
        let is_lost = self.taken_over.is_some() && !self.inodes.knows(ino);
        if is_lost { self.adopt(ino) } else { Ok(()) }
    }

    /// Returns an `O_PATH` descriptor of an inode.
    pub fn path(&self, ino: Ino) -> Result<Arc<OwnedFd>> {
        if let Some(descriptor) = self.directories.get(&ino) {
            return Ok(descriptor);
        }
        match self.get(ino)? {
            (_, Reference::Descriptor(descriptor)) => Ok(descriptor),
            (identity, Reference::Handle(handle)) => {
                let flags = OFlags::PATH | OFlags::NOFOLLOW;
                Ok(Arc::new(self.devices.open(identity.device, &handle, flags)?))
            }
        }
    }

    /// Returns the path of an inode according to the kernel; `None` if the kernel knows none.
    pub fn name(&self, ino: Ino) -> Option<PathBuf> {
        let path = name_of(&*self.path(ino).ok()?)?;
        // If a file was opened only by its handle, the kernel may know no name of it and reports
        // `/`.
        path.file_name()?;
        match &self.root_name {
            Some(root) => Some(root.join(path.strip_prefix("/").ok()?)),
            None => Some(path),
        }
    }

    /// Returns an `O_PATH` descriptor of a directory, which is cached for later use.
    pub fn directory(&self, ino: Ino) -> Result<Arc<OwnedFd>> {
        if let Some(descriptor) = self.directories.get(&ino) {
            return Ok(descriptor);
        }
        let descriptor = self.path(ino)?;
        if ino != Ino::ROOT {
            self.directories.insert(ino, Arc::clone(&descriptor));
        }
        Ok(descriptor)
    }

    /// Opens a regular file. Opening other kinds could have side effects, such as waiting for the
    /// reader of a pipe or rewinding a tape.
    pub fn open_file(&self, ino: Ino, flags: OFlags) -> Result<OwnedFd> {
        match self.kind(ino)? {
            FileKind::Regular => self.open(ino, flags),
            FileKind::Directory => Err(Errno::ISDIR.into()),
            FileKind::Symlink => Err(Errno::LOOP.into()),
            _ => Err(Errno::NXIO.into()),
        }
    }

    pub fn open_directory(&self, ino: Ino) -> Result<OwnedFd> {
        self.open(ino, OFlags::RDONLY | OFlags::DIRECTORY)
    }

    /// Opens a file or directory for a query of its state.
    pub fn open_to_ask(&self, ino: Ino) -> Result<OwnedFd> {
        match self.kind(ino)? {
            FileKind::Directory => self.open_directory(ino),
            _ => self.open_file(ino, OFlags::RDONLY),
        }
    }

    fn kind(&self, ino: Ino) -> Result<FileKind> {
        self.expect_known(ino)?;
        self.inodes.kind(ino)
    }

    /// Opens an inode known to be a file or a directory.
    fn open(&self, ino: Ino, flags: OFlags) -> Result<OwnedFd> {
        let flags = flags | OFlags::CLOEXEC | OFlags::NOCTTY;
        match self.get(ino)? {
            (identity, Reference::Handle(handle)) => {
                self.devices.open(identity.device, &handle, flags)
            }
            (_, Reference::Descriptor(descriptor)) => {
                let path = proc_path(&descriptor);
                Ok(rustix::fs::open(path, flags, Mode::empty())?)
            }
        }
    }

    /// Looks up a name and counts a lookup.
    pub fn lookup(&self, parent: Ino, name: Name<'_>) -> Result<Entry> {
        let directory = self.directory(parent)?;
        if let Some(entry) = self.look(&directory, name)? {
            return Ok(entry);
        }
        let descriptor = open_name(&directory, name)?;
        let stat = attr::stat(&descriptor)?;
        self.enter(Arc::new(descriptor), &stat)
    }

    /// Looks up a name without opening it, which needs half the system calls. Returns `None` if
    /// handle and attributes can't be matched.
    ///
    /// Between the two calls, the name may get another inode. A different inode number is noticed.
    /// If the new inode has the number of the old one, the old handle fails with `ESTALE`, and the
    /// kernel repeats the request.
    fn look(&self, directory: &OwnedFd, name: Name<'_>) -> Result<Option<Entry>> {
        if !self.devices.root_tells_numbers() {
            return Ok(None);
        }
        let handle = match FileHandle::at(directory, name.as_os_str()) {
            // Another file system, which has no handles, is mounted on this name.
            Err(Errno::OPNOTSUPP | Errno::OVERFLOW) => return Ok(None),
            handle => handle?,
        };
        let stat = attr::stat_at(directory, name.as_os_str())?;
        let device = self.devices.with_telling_handles(attr::device_of(&stat));
        let Some(device) = device.filter(|_| handle.number() == Some(stat.stx_ino)) else {
            return Ok(None);
        };
        let identity = Identity { device, number: stat.stx_ino };
        self.remember(identity, Reference::Handle(handle), &stat).map(Some)
    }

    /// Adds the inode of a descriptor and counts a lookup.
    pub fn enter(&self, descriptor: Arc<OwnedFd>, stat: &Statx) -> Result<Entry> {
        let identity = self.identity(&descriptor, stat)?;
        let reference = match self.devices.handle_of(identity.device, &descriptor)? {
            Some(handle) => handle,
            None => Reference::Descriptor(Arc::new(reopen_as_path(&descriptor)?)),
        };
        let entry = self.remember(identity, reference, stat)?;
        if entry.attr.kind == FileKind::Directory {
            self.directories.insert(entry.attr.ino, descriptor);
        }
        Ok(entry)
    }

    pub(super) fn remember(
        &self,
        identity: Identity,
        reference: Reference,
        stat: &Statx,
    ) -> Result<Entry> {
        let kind = attr::to_kind(stat)?;
        let ino = self.inodes.remember(identity, kind, reference.clone());
        let generation = self.generation(ino, identity, &reference);
        Ok(Entry { attr: self.to_attr(ino, stat)?, generation })
    }

    /// Returns the generation to show. If the shown number is that of the lower inode, it is valid
    /// in every session. Other numbers are assigned in the order in which inodes are found. In the
    /// next session, such a number may belong to another inode, so its generation must then differ.
    pub(super) fn generation(&self, ino: Ino, identity: Identity, reference: &Reference) -> u64 {
        let is_own = identity.device == 0 && is_own_number(ino);
        reference.generation() ^ if is_own { 0 } else { self.session }
    }

    /// Attributes from a `statx` result of an inode in use.
    pub fn to_attr(&self, ino: Ino, stat: &Statx) -> Result<Attr> {
        let number = self.devices.lasting_number(attr::device_of(stat), stat.stx_ino);
        attr::to_attr(ino, number, stat)
    }

    pub fn forget(&self, ino: Ino, lookups: u64) {
        if let Some(left) = self.taken_over.as_ref().filter(|_| !self.inodes.knows(ino)) {
            // The inherited descriptor of the inode is no longer needed.
            drop(left.descriptor_of(ino));
        }
        if self.inodes.forget(ino, lookups) {
            self.directories.remove(&ino);
        }
    }

    /// Opens the inode of a name before the name is removed or replaced.
    pub fn victim(&self, directory: &OwnedFd, name: Name<'_>) -> Option<OwnedFd> {
        open_name(directory, name).ok()
    }

    /// Keeps an inode usable after its last name was removed. The removal itself has succeeded, so
    /// errors are only logged.
    pub fn pin_if_nameless(&self, victim: OwnedFd) {
        if let Err(error) = self.try_to_pin(victim) {
            tracing::warn!(
                %error,
                "can't keep a removed file open; programs that still use it may get errors"
            );
        }
    }

    fn try_to_pin(&self, victim: OwnedFd) -> Result<()> {
        let stat = attr::stat(&victim)?;
        if stat.stx_nlink == 0 || is_directory(&stat) {
            let identity = self.identity(&victim, &stat)?;
            self.expect_remembered(identity, &victim, &stat)?;
            self.inodes.pin(identity, &Arc::new(victim));
        }
        Ok(())
    }

    /// Whether closing the file may report errors of delayed writes.
    pub fn reports_at_close(&self, ino: Ino) -> Result<bool> {
        let (identity, _) = self.get(ino)?;
        Ok(self.devices.reports_at_close(identity.device))
    }

    /// The number to show for a directory entry.
    pub fn shown(&self, parent: Identity, name: &[u8], number: u64) -> Ino {
        let is_root = parent.device == 0
            && (number == self.root_number || name == b".." && parent.number == self.root_number);
        let identity = Identity { device: parent.device, number };
        if is_root { Ino::ROOT } else { identity.shown().unwrap_or(Ino(u64::MAX)) }
    }

    /// Whether this is the root of the tree.
    pub(super) fn is_root(&self, stat: &Statx) -> bool {
        stat.stx_ino == self.root_number && attr::device_of(stat) == self.root_device
    }

    pub(super) fn identity(&self, descriptor: &OwnedFd, stat: &Statx) -> Result<Identity> {
        let device = self.devices.index(attr::device_of(stat), descriptor)?;
        Ok(Identity { device, number: stat.stx_ino })
    }
}

fn is_directory(stat: &Statx) -> bool {
    attr::to_kind(stat).is_ok_and(|kind| kind == FileKind::Directory)
}

fn open_name(directory: &OwnedFd, name: Name<'_>) -> Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(directory, name.as_os_str(), flags, Mode::empty()).map_err(Error::Errno)
}

/// A path to exactly the inode of a descriptor, for calls that do not accept `O_PATH` descriptors.
pub(super) fn proc_path(descriptor: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", descriptor.as_raw_fd())
}

/// Returns the path of an open file or directory, if the kernel knows one.
pub(super) fn name_of(descriptor: &OwnedFd) -> Option<PathBuf> {
    let path = rustix::fs::readlink(proc_path(descriptor), Vec::new()).ok()?;
    Some(OsString::from_vec(path.into_bytes()).into())
}

/// Returns an `O_PATH` descriptor of the same file, for long-term use. A descriptor that is open
/// for writing would block the execution of the file.
pub(super) fn reopen_as_path(descriptor: &OwnedFd) -> Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    Ok(rustix::fs::open(proc_path(descriptor), flags, Mode::empty())?)
}

/// `AtFlags` for calls on the descriptor itself.
pub(super) const ITSELF: AtFlags = AtFlags::EMPTY_PATH;

/// Returns a random number from the kernel. A generator in this process would repeat its numbers in
/// a forked copy.
fn new_session() -> Result<u64> {
    let mut session = [0; 8];
    let drawn = rustix::rand::getrandom(&mut session, GetRandomFlags::empty())?;
    if drawn == session.len() { Ok(u64::from_ne_bytes(session)) } else { Err(Errno::IO.into()) }
}

/// Maximum number of descriptors that are kept for directories, and also the maximum for removed
/// inodes. It is a quarter of the process's limit, but at least 16 and at most 4096.
fn descriptor_budget() -> usize {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(limit / 4).unwrap_or(usize::MAX).clamp(16, 4096)
}
