//! fuser's requests as calls of the trait, and the answers back. No decision about files is made
//! here.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use fslab_sys::identity::has_cap_fsetid;
use fslab_vfs::{
    DirectoryEntry, Entry, Errno, Error, FallocateMode, FileKind, FileSystem, Handle, Ino, Name,
    OpenMode, Opened, RenameMode, Request, Result, SeekTo, WriteOptions, XattrMode,
};
use fuser::{
    AccessFlags, BackingId, BsdFileFlags, CopyFileRangeFlags, FileHandle, FopenFlags, Generation,
    INodeNo, IoctlFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyBmap,
    ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl,
    ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, TimeOrNow, WriteFlags,
};

use crate::backing::BackingFiles;
use crate::convert::{
    bare_file_attr, to_changes, to_file_attr, to_file_type, to_open_mode, to_request,
};
use crate::guard::run;
use crate::negotiate::{Granted, negotiate};
use crate::options::MountOptions;

/// The longest copy one COPY_FILE_RANGE reply can report, rounded to whole pages.
const COPY_BYTES_MAX: u64 = 0xffff_f000;

/// Whether anything was asked since somebody looked.
#[derive(Debug, Default)]
pub(crate) struct Activity(AtomicBool);

impl Activity {
    pub fn take(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }
}

/// Serves a file system to fuser.
pub(crate) struct Adapter {
    file_system: Arc<dyn FileSystem>,
    options: MountOptions,
    granted: Arc<OnceLock<Granted>>,
    backing: BackingFiles,
    activity: Arc<Activity>,
}

thread_local! {
    /// One buffer a thread for what is read; it keeps the size of the largest request.
    static READ_BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl Adapter {
    pub fn new(file_system: Arc<dyn FileSystem>, options: MountOptions) -> Self {
        Self {
            file_system,
            options,
            granted: Arc::default(),
            backing: BackingFiles::default(),
            activity: Arc::default(),
        }
    }

    pub fn grants(&self) -> Arc<OnceLock<Granted>> {
        Arc::clone(&self.granted)
    }

    pub fn activity(&self) -> Arc<Activity> {
        Arc::clone(&self.activity)
    }

    fn has(&self, feature: impl FnOnce(&Granted) -> bool) -> bool {
        self.granted.get().is_some_and(feature)
    }

    fn request(&self, request: &fuser::Request, umask: u32) -> Request {
        self.activity.0.store(true, Ordering::Relaxed);
        to_request(request, umask)
    }

    /// Runs an operation that answers with an entry.
    fn entry(
        &self,
        operation: &'static str,
        request: &fuser::Request,
        umask: u32,
        reply: ReplyEntry,
        body: impl FnOnce(&Request) -> Result<Entry>,
    ) {
        let caller = self.request(request, umask);
        match run(operation, request, || body(&caller)) {
            Ok(entry) => reply.entry_with_ttls(
                &self.options.attr_timeout,
                &self.options.entry_timeout,
                &to_file_attr(&entry.attr),
                Generation(entry.generation),
            ),
            Err(errno) => reply.error(errno),
        }
    }

    /// Runs an operation that answers with nothing.
    fn empty(
        &self,
        operation: &'static str,
        request: &fuser::Request,
        reply: ReplyEmpty,
        body: impl FnOnce(&Request) -> Result<()>,
    ) {
        let caller = self.request(request, 0);
        match run(operation, request, || body(&caller)) {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(errno),
        }
    }

    /// The backing file an opening must use; `None` for the daemon.
    fn backing(
        &self,
        ino: Ino,
        opened: &Opened,
        register: impl FnOnce(&OwnedFd) -> std::io::Result<BackingId>,
    ) -> Option<Arc<BackingId>> {
        if !self.has(|granted| granted.passthrough) {
            return None;
        }
        self.backing.open(ino, opened.backing.as_deref(), register)
    }

    fn reply_opened(&self, ino: Ino, opened: &Opened, reply: ReplyOpen) {
        let handle = FileHandle(opened.handle.0);
        match self.backing(ino, opened, |lower| reply.open_backing(lower)) {
            Some(backing) => reply.opened_passthrough(handle, passthrough_flags(opened), &backing),
            None => reply.opened(handle, daemon_flags(opened)),
        }
    }

    fn reply_created(&self, entry: &Entry, opened: &Opened, reply: ReplyCreate) {
        let handle = FileHandle(opened.handle.0);
        let ttl = &self.options.attr_timeout;
        let (attr, generation) = (to_file_attr(&entry.attr), Generation(entry.generation));
        match self.backing(entry.attr.ino, opened, |lower| reply.open_backing(lower)) {
            Some(backing) => {
                let flags = passthrough_flags(opened);
                reply.created_passthrough(ttl, &attr, generation, handle, flags, &backing);
            }
            None => reply.created(ttl, &attr, generation, handle, daemon_flags(opened)),
        }
    }

    /// Lists a directory with the attributes of every entry; each delivered one counts a lookup.
    fn list_plus(
        &self,
        caller: &Request,
        (ino, handle, offset): (Ino, Handle, u64),
        reply: &mut ReplyDirectoryPlus,
    ) -> Result<()> {
        let file_system = &*self.file_system;
        file_system.readdir(caller, ino, handle, offset, &mut |listed| {
            self.add_plus(caller, ino, &listed, reply)
        })
    }

    /// Answers `false` when there is no room.
    fn add_plus(
        &self,
        caller: &Request,
        parent: Ino,
        listed: &DirectoryEntry<'_>,
        reply: &mut ReplyDirectoryPlus,
    ) -> bool {
        // `.` and `..` are no names, and a name may be gone meanwhile: listed without attributes.
        let found = Name::new(listed.name)
            .map_err(Error::from)
            .and_then(|name| self.file_system.lookup(caller, parent, name));
        let ttl = &self.options.attr_timeout;
        let (next, name) = (listed.next_offset, listed.name);
        match found {
            Ok(entry) => {
                let attr = to_file_attr(&entry.attr);
                let generation = Generation(entry.generation);
                let full = reply.add(attr.ino, next, name, ttl, &attr, generation);
                if full {
                    self.file_system.forget(entry.attr.ino, 1);
                }
                !full
            }
            Err(_) => {
                let attr = bare_file_attr(listed.ino, listed.kind.unwrap_or(FileKind::Regular));
                !reply.add(INodeNo(0), next, name, ttl, &attr, Generation(0))
            }
        }
    }
}

fn daemon_flags(opened: &Opened) -> FopenFlags {
    let mut flags = FopenFlags::empty();
    flags.set(FopenFlags::FOPEN_KEEP_CACHE, opened.keep_cache);
    flags.set(FopenFlags::FOPEN_DIRECT_IO, opened.direct);
    flags.set(FopenFlags::FOPEN_NOFLUSH, opened.no_flush);
    flags
}

/// The kernel takes no other flag beside passthrough.
fn passthrough_flags(opened: &Opened) -> FopenFlags {
    daemon_flags(opened) & FopenFlags::FOPEN_NOFLUSH
}

fn ino(number: INodeNo) -> Ino {
    Ino(number.0)
}

fn handle(number: FileHandle) -> Handle {
    Handle(number.0)
}

impl fuser::Filesystem for Adapter {
    fn init(
        &mut self,
        _request: &fuser::Request,
        config: &mut KernelConfig,
    ) -> std::io::Result<()> {
        let granted = negotiate(config, &self.options);
        tracing::info!("the kernel granted: {granted}");
        self.granted.set(granted).map_err(|_granted| std::io::Error::other("two INIT requests"))
    }

    fn lookup(&self, request: &fuser::Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.entry("lookup", request, 0, reply, |caller| {
            self.file_system.lookup(caller, ino(parent), Name::new(name)?)
        });
    }

    fn forget(&self, _request: &fuser::Request, number: INodeNo, lookups: u64) {
        self.file_system.forget(ino(number), lookups);
    }

    fn getattr(
        &self,
        request: &fuser::Request,
        number: INodeNo,
        open: Option<FileHandle>,
        reply: ReplyAttr,
    ) {
        let caller = self.request(request, 0);
        let attr = run("getattr", request, || {
            self.file_system.getattr(&caller, ino(number), open.map(handle))
        });
        match attr {
            Ok(attr) => reply.attr(&self.options.attr_timeout, &to_file_attr(&attr)),
            Err(errno) => reply.error(errno),
        }
    }

    fn setattr(
        &self,
        request: &fuser::Request,
        number: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        accessed: Option<TimeOrNow>,
        modified: Option<TimeOrNow>,
        _changed: Option<SystemTime>,
        open: Option<FileHandle>,
        _created: Option<SystemTime>,
        _changed_by_user: Option<SystemTime>,
        _backed_up: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let caller = self.request(request, 0);
        let kill = size.is_some()
            && self.has(|granted| granted.kill_set_id)
            && !has_cap_fsetid(request.pid());
        let changes = to_changes(mode, (uid, gid), size, (accessed, modified), kill);
        let attr = run("setattr", request, || {
            self.file_system.setattr(&caller, ino(number), open.map(handle), &changes)
        });
        match attr {
            Ok(attr) => reply.attr(&self.options.attr_timeout, &to_file_attr(&attr)),
            Err(errno) => reply.error(errno),
        }
    }

    fn readlink(&self, request: &fuser::Request, number: INodeNo, reply: ReplyData) {
        let caller = self.request(request, 0);
        match run("readlink", request, || self.file_system.readlink(&caller, ino(number))) {
            Ok(target) => reply.data(target.as_encoded_bytes()),
            Err(errno) => reply.error(errno),
        }
    }

    fn mknod(
        &self,
        request: &fuser::Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        device: u32,
        reply: ReplyEntry,
    ) {
        self.entry("mknod", request, umask, reply, |caller| {
            self.file_system.mknod(caller, ino(parent), Name::new(name)?, mode, device)
        });
    }

    fn mkdir(
        &self,
        request: &fuser::Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        self.entry("mkdir", request, umask, reply, |caller| {
            self.file_system.mkdir(caller, ino(parent), Name::new(name)?, mode)
        });
    }

    fn unlink(&self, request: &fuser::Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.empty("unlink", request, reply, |caller| {
            self.file_system.unlink(caller, ino(parent), Name::new(name)?)
        });
    }

    fn rmdir(&self, request: &fuser::Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.empty("rmdir", request, reply, |caller| {
            self.file_system.rmdir(caller, ino(parent), Name::new(name)?)
        });
    }

    fn symlink(
        &self,
        request: &fuser::Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        self.entry("symlink", request, 0, reply, |caller| {
            self.file_system.symlink(caller, ino(parent), Name::new(name)?, target.as_os_str())
        });
    }

    fn rename(
        &self,
        request: &fuser::Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        self.empty("rename", request, reply, |caller| {
            let (name, new_name) = (Name::new(name)?, Name::new(new_name)?);
            let mode = RenameMode::from_bits_retain(flags.bits());
            let (parent, new_parent) = (ino(parent), ino(new_parent));
            self.file_system.rename(caller, parent, name, new_parent, new_name, mode)
        });
    }

    fn link(
        &self,
        request: &fuser::Request,
        number: INodeNo,
        new_parent: INodeNo,
        new_name: &OsStr,
        reply: ReplyEntry,
    ) {
        self.entry("link", request, 0, reply, |caller| {
            self.file_system.link(caller, ino(number), ino(new_parent), Name::new(new_name)?)
        });
    }

    fn open(&self, request: &fuser::Request, number: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let caller = self.request(request, 0);
        let mode = to_open_mode(flags.0, self.has(|granted| granted.writeback));
        match run("open", request, || self.file_system.open(&caller, ino(number), mode)) {
            Ok(opened) => self.reply_opened(ino(number), &opened, reply),
            Err(errno) => reply.error(errno),
        }
    }

    fn read(
        &self,
        request: &fuser::Request,
        number: INodeNo,
        open: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let caller = self.request(request, 0);
        READ_BUFFER.with_borrow_mut(|buffer| {
            if buffer.len() < size as usize {
                buffer.resize(size as usize, 0);
            }
            let buffer = &mut buffer[..size as usize];
            let read = run("read", request, || {
                self.file_system.read(&caller, ino(number), handle(open), offset, buffer)
            });
            match read {
                Ok(count) => reply.data(&buffer[..count]),
                Err(errno) => reply.error(errno),
            }
        });
    }

    fn write(
        &self,
        request: &fuser::Request,
        number: INodeNo,
        open: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let caller = self.request(request, 0);
        let kill_set_id = write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID);
        let options = WriteOptions { kill_set_id };
        let written = run("write", request, || {
            self.file_system.write(&caller, ino(number), handle(open), offset, data, options)
        });
        match written {
            // A request carries at most 16 MiB.
            Ok(count) => reply.written(count as u32),
            Err(errno) => reply.error(errno),
        }
    }

    fn flush(
        &self,
        request: &fuser::Request,
        number: INodeNo,
        open: FileHandle,
        _owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        self.empty("flush", request, reply, |caller| {
            self.file_system.flush(caller, ino(number), handle(open))
        });
    }

    fn release(
        &self,
        request: &fuser::Request,
        number: INodeNo,
        open: FileHandle,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.backing.close(ino(number));
        self.empty("release", request, reply, |caller| {
            self.file_system.release(caller, ino(number), handle(open))
        });
    }

    fn fsync(
        &self,
        request: &fuser::Request,
        number: INodeNo,
        open: FileHandle,
        data_only: bool,
        reply: ReplyEmpty,
    ) {
        self.empty("fsync", request, reply, |caller| {
            self.file_system.fsync(caller, ino(number), handle(open), data_only)
        });
    }

    fn opendir(
        &self,
        request: &fuser::Request,
        number: INodeNo,
        _flags: OpenFlags,
        reply: ReplyOpen,
    ) {
        let caller = self.request(request, 0);
        match run("opendir", request, || self.file_system.opendir(&caller, ino(number))) {
            Ok(opened) => reply.opened(FileHandle(opened.0), FopenFlags::empty()),
            Err(errno) => reply.error(errno),
        }
    }

    fn readdir(
        &self,
        request: &fuser::Request,
        number: INodeNo,
        open: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let caller = self.request(request, 0);
        let listed = run("readdir", request, || {
            let mut add = |entry: DirectoryEntry<'_>| {
                let kind = to_file_type(entry.kind.unwrap_or(FileKind::Regular));
                !reply.add(INodeNo(entry.ino.0), entry.next_offset, kind, entry.name)
            };
            self.file_system.readdir(&caller, ino(number), handle(open), offset, &mut add)
        });
        match listed {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(errno),
        }
    }

    fn readdirplus(
        &self,
        request: &fuser::Request,
        number: INodeNo,
        open: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let caller = self.request(request, 0);
        let place = (ino(number), handle(open), offset);
        match run("readdirplus", request, || self.list_plus(&caller, place, &mut reply)) {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(errno),
        }
    }

    fn releasedir(
        &self,
        request: &fuser::Request,
        number: INodeNo,
        open: FileHandle,
        _flags: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.empty("releasedir", request, reply, |caller| {
            self.file_system.releasedir(caller, ino(number), handle(open))
        });
    }

    fn fsyncdir(
        &self,
        request: &fuser::Request,
        number: INodeNo,
        open: FileHandle,
        data_only: bool,
        reply: ReplyEmpty,
    ) {
        self.empty("fsyncdir", request, reply, |caller| {
            self.file_system.fsyncdir(caller, ino(number), handle(open), data_only)
        });
    }

    fn statfs(&self, request: &fuser::Request, number: INodeNo, reply: ReplyStatfs) {
        let caller = self.request(request, 0);
        match run("statfs", request, || self.file_system.statfs(&caller, ino(number))) {
            Ok(stat) => reply.statfs(
                stat.blocks,
                stat.blocks_free,
                stat.blocks_available,
                stat.files,
                stat.files_free,
                stat.block_size,
                stat.name_max,
                stat.fragment_size,
            ),
            Err(errno) => reply.error(errno),
        }
    }

    fn setxattr(
        &self,
        request: &fuser::Request,
        number: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        self.empty("setxattr", request, reply, |caller| {
            let mode = XattrMode::from_bits_retain(flags as u32);
            self.file_system.setxattr(caller, ino(number), name, value, mode)
        });
    }

    fn getxattr(
        &self,
        request: &fuser::Request,
        number: INodeNo,
        name: &OsStr,
        size: u32,
        reply: ReplyXattr,
    ) {
        let caller = self.request(request, 0);
        let value =
            run("getxattr", request, || self.file_system.getxattr(&caller, ino(number), name));
        reply_xattr(value, size, reply);
    }

    fn listxattr(&self, request: &fuser::Request, number: INodeNo, size: u32, reply: ReplyXattr) {
        let caller = self.request(request, 0);
        let names = run("listxattr", request, || self.file_system.listxattr(&caller, ino(number)));
        reply_xattr(names, size, reply);
    }

    fn removexattr(
        &self,
        request: &fuser::Request,
        number: INodeNo,
        name: &OsStr,
        reply: ReplyEmpty,
    ) {
        self.empty("removexattr", request, reply, |caller| {
            self.file_system.removexattr(caller, ino(number), name)
        });
    }

    fn access(
        &self,
        _request: &fuser::Request,
        _number: INodeNo,
        _mask: AccessFlags,
        reply: ReplyEmpty,
    ) {
        // The kernel checks permissions itself and need not ask again.
        reply.error(fuser::Errno::ENOSYS);
    }

    fn create(
        &self,
        request: &fuser::Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let caller = self.request(request, umask);
        let wanted = to_open_mode(flags, self.has(|granted| granted.writeback));
        let created = run("create", request, || {
            let name = Name::new(name)?;
            // Permissions were checked for a name that did not exist. If somebody else has made
            // it meanwhile, ESTALE lets the kernel look again and check that file.
            let exclusive = wanted | OpenMode::EXCLUSIVE;
            match self.file_system.create(&caller, ino(parent), name, mode, exclusive) {
                Err(error)
                    if error.errno() == Errno::EXIST && !wanted.contains(OpenMode::EXCLUSIVE) =>
                {
                    Err(Errno::STALE.into())
                }
                created => created,
            }
        });
        match created {
            Ok((entry, opened)) => self.reply_created(&entry, &opened, reply),
            Err(errno) => reply.error(errno),
        }
    }

    fn bmap(
        &self,
        _request: &fuser::Request,
        _number: INodeNo,
        _block_size: u32,
        _block: u64,
        reply: ReplyBmap,
    ) {
        reply.error(fuser::Errno::ENOSYS);
    }

    fn ioctl(
        &self,
        _request: &fuser::Request,
        _number: INodeNo,
        _open: FileHandle,
        _flags: IoctlFlags,
        _command: u32,
        _data: &[u8],
        _size: u32,
        reply: ReplyIoctl,
    ) {
        reply.error(fuser::Errno::ENOTTY);
    }

    fn fallocate(
        &self,
        request: &fuser::Request,
        number: INodeNo,
        open: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        self.empty("fallocate", request, reply, |caller| {
            let mode = FallocateMode::from_bits_retain(mode as u32);
            self.file_system.fallocate(caller, ino(number), handle(open), offset, length, mode)
        });
    }

    fn lseek(
        &self,
        request: &fuser::Request,
        number: INodeNo,
        open: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let caller = self.request(request, 0);
        let found = run("lseek", request, || {
            let to = match whence {
                3 => SeekTo::Data,
                4 => SeekTo::Hole,
                _ => return Err(Errno::INVAL.into()),
            };
            let offset = u64::try_from(offset).map_err(|_negative| Errno::NXIO)?;
            self.file_system.lseek(&caller, ino(number), handle(open), offset, to)
        });
        match found {
            Ok(position) => reply.offset(i64::try_from(position).unwrap_or(i64::MAX)),
            Err(errno) => reply.error(errno),
        }
    }

    fn copy_file_range(
        &self,
        request: &fuser::Request,
        source: INodeNo,
        source_open: FileHandle,
        source_offset: u64,
        target: INodeNo,
        target_open: FileHandle,
        target_offset: u64,
        length: u64,
        _flags: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        let caller = self.request(request, 0);
        let copied = run("copy_file_range", request, || {
            let source = (ino(source), handle(source_open), source_offset);
            let target = (ino(target), handle(target_open), target_offset);
            let length = length.min(COPY_BYTES_MAX);
            self.file_system.copy_file_range(&caller, source, target, length)
        });
        match copied {
            Ok(count) => reply.written(u32::try_from(count).unwrap_or(u32::MAX)),
            Err(errno) => reply.error(errno),
        }
    }
}

/// Answers a value, or its size where only that was asked.
fn reply_xattr(value: std::result::Result<Vec<u8>, fuser::Errno>, size: u32, reply: ReplyXattr) {
    match value {
        Err(errno) => reply.error(errno),
        Ok(value) if size == 0 => reply.size(u32::try_from(value.len()).unwrap_or(u32::MAX)),
        Ok(value) if value.len() > size as usize => reply.error(fuser::Errno::ERANGE),
        Ok(value) => reply.data(&value),
    }
}
