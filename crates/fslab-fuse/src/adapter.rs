//! fuser's requests as calls of the trait, and the answers back. No decision about files is made
//! here.

mod answer;

use std::cell::RefCell;
use std::ffi::OsStr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use fslab_sys::identity::has_cap_fsetid;
use fslab_vfs::{
    DirectoryEntry, Errno, FallocateMode, FileKind, FileSystem, Handle, Ino, Name, OpenMode,
    RenameMode, Result, SeekTo, WriteOptions, XattrMode,
};
use fuser::{
    AccessFlags, BsdFileFlags, CopyFileRangeFlags, FileHandle, FopenFlags, INodeNo, IoctlFlags,
    KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyBmap, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen,
    ReplyStatfs, ReplyWrite, ReplyXattr, TimeOrNow, WriteFlags,
};

use crate::adapter::answer::reply_xattr;
use crate::backing::BackingFiles;
use crate::convert::{to_changes, to_file_attr, to_file_type, to_open_mode};
use crate::guard::run;
use crate::negotiate::{Granted, negotiate};
use crate::notices::Notices;
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
    notices: Notices,
}

thread_local! {
    /// One buffer a thread for what is read; it keeps the size of the largest request.
    static READ_BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl Adapter {
    pub fn new(file_system: Arc<dyn FileSystem>, options: MountOptions, notices: Notices) -> Self {
        Self {
            file_system,
            options,
            granted: Arc::default(),
            backing: BackingFiles::default(),
            activity: Arc::default(),
            notices,
        }
    }

    pub fn grants(&self) -> Arc<OnceLock<Granted>> {
        Arc::clone(&self.granted)
    }

    pub fn activity(&self) -> Arc<Activity> {
        Arc::clone(&self.activity)
    }
}

/// What an LSEEK request looks for.
fn to_seek(offset: i64, whence: i32) -> Result<(u64, SeekTo)> {
    let to = match whence {
        3 => SeekTo::Data,
        4 => SeekTo::Hole,
        _ => return Err(Errno::INVAL.into()),
    };
    let offset = u64::try_from(offset).map_err(|_negative| Errno::NXIO)?;
    Ok((offset, to))
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
        let attr = run("getattr", request.unique().0, || {
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
        let attr = run("setattr", request.unique().0, || {
            self.file_system.setattr(&caller, ino(number), open.map(handle), &changes)
        });
        match attr {
            Ok(attr) => reply.attr(&self.options.attr_timeout, &to_file_attr(&attr)),
            Err(errno) => reply.error(errno),
        }
    }

    fn readlink(&self, request: &fuser::Request, number: INodeNo, reply: ReplyData) {
        let caller = self.request(request, 0);
        match run("readlink", request.unique().0, || {
            self.file_system.readlink(&caller, ino(number))
        }) {
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
        match run("open", request.unique().0, || self.file_system.open(&caller, ino(number), mode))
        {
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
            let read = run("read", request.unique().0, || {
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
        let written = run("write", request.unique().0, || {
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
        match run("opendir", request.unique().0, || self.file_system.opendir(&caller, ino(number)))
        {
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
        let listed = run("readdir", request.unique().0, || {
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
        match run("readdirplus", request.unique().0, || self.list_plus(&caller, place, &mut reply))
        {
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
        match run("statfs", request.unique().0, || self.file_system.statfs(&caller, ino(number))) {
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
        let value = run("getxattr", request.unique().0, || {
            self.file_system.getxattr(&caller, ino(number), name)
        });
        reply_xattr(value, size, reply);
    }

    fn listxattr(&self, request: &fuser::Request, number: INodeNo, size: u32, reply: ReplyXattr) {
        let caller = self.request(request, 0);
        let names = run("listxattr", request.unique().0, || {
            self.file_system.listxattr(&caller, ino(number))
        });
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
        let created = run("create", request.unique().0, || {
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
        let unique = request.unique().0;
        let file_system = Arc::clone(&self.file_system);
        let seek = move || {
            let found = run("lseek", unique, || {
                let (offset, to) = to_seek(offset, whence)?;
                file_system.lseek(&caller, ino(number), handle(open), offset, to)
            });
            match found {
                Ok(position) => reply.offset(i64::try_from(position).unwrap_or(i64::MAX)),
                Err(errno) => reply.error(errno),
            }
        };
        if self.has(|granted| granted.writeback) {
            // Bytes that only the kernel's cache holds are data too.
            self.notices.write_back_then(ino(number), seek);
        } else {
            seek();
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
        let copied = run("copy_file_range", request.unique().0, || {
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
