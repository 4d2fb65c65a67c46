//! The layer: a file system whose regular files are stored files of the lower file system.
//!
//! The layer refuses operations that it does not implement, instead of passing them to the lower
//! file system (see [`fslab_vfs::FileSystem::fallback`]).

use std::ffi::OsStr;
use std::ops::Range;
use std::sync::Arc;

use fslab_vfs::rules::{CAPABILITY, acl, set_id};
use fslab_vfs::{
    Attr, Entry, Errno, FallocateMode, FileAttr, FileAttrForm, FileKind, FileSystem, Handle, Ino,
    Name, OpenMode, Opened, Request, Result, SeekTo, SetAttr, WriteOptions, XattrMode,
};
use parking_lot::RwLock;
use slab::Slab;

use super::context::{Settings, own_request};
use super::opening::Access;
use super::read_ahead::ReadAhead;
use super::reclaim_policy::Due;
use super::reclaimer::Reclaimer;
use super::size_xattr::{self, Mark};
use super::stored_file::{OpenBelow, Place, StoredFile};

/// Maximum number of bytes that one call copies; the caller repeats the call for the rest.
const COPY_BYTES_MAX: u64 = 16 << 20;

/// A size-changing layer over a file system.
pub struct Sca {
    lower: Arc<dyn FileSystem>,
    settings: Arc<Settings>,
    access: Arc<Access>,
    reclaimer: Reclaimer,
    handles: RwLock<Slab<Arc<OpenFile>>>,
}

/// A file that was opened through the mount.
struct OpenFile {
    ino: Ino,
    mode: OpenMode,
    file: Arc<StoredFile>,
    ahead: ReadAhead,
}

/// One use of a stored file, which [`Sca::leave`] ends.
type Use = Arc<StoredFile>;

impl Sca {
    pub fn new(lower: Arc<dyn FileSystem>, settings: Settings) -> Self {
        let settings = Arc::new(settings);
        let access = Arc::new(Access::new(Arc::clone(&lower), Arc::clone(&settings)));
        let reclaimer = Reclaimer::new(Arc::clone(&access));
        Self { lower, settings, access, reclaimer, handles: RwLock::default() }
    }

    fn enter(&self, request: &Request, ino: Ino, writes: bool) -> Result<Use> {
        self.reclaimer.note_request();
        self.access.enter(request, ino, size_xattr::lower_mode(writes))
    }

    /// Starts using a file and empties it, so its content need not be read.
    fn enter_emptied(&self, request: &Request, ino: Ino, kill_set_id: bool) -> Result<Use> {
        self.reclaimer.note_request();
        self.access.enter_emptied(request, ino, kill_set_id)
    }

    /// Ends a use of a file. The last user prepares the file for a fast open (see
    /// [`StoredFile::settle`]) and closes the lower file.
    fn leave(&self, request: &Request, ino: Ino, file: &StoredFile) -> Result<()> {
        self.access.files.leave(request, ino)?;
        self.reclaimer.offer(ino, file);
        Ok(())
    }

    /// Runs the maintenance that the last changes of a file made due, or leaves it to the
    /// reclaimer.
    fn attend(&self, request: &Request, ino: Ino, file: &StoredFile) {
        match file.due() {
            Due::Nothing => {}
            Due::Soon if self.reclaimer.ask(ino) => {}
            Due::Soon | Due::Now => file.tend(request),
        }
        if file.take_began_staging() {
            self.reclaimer.offer_staging(ino);
        }
    }

    /// Calls `ask` for the lower file, with its handle if it is open.
    fn through_handle<T>(&self, ino: Ino, ask: impl Fn(Option<Handle>) -> Result<T>) -> Result<T> {
        let through =
            self.access.files.get(ino).and_then(|file| file.while_open(|handle| ask(Some(handle))));
        through.unwrap_or_else(|| ask(None))
    }

    /// Runs `change`, which changes attributes that packing preserves. Never runs it during a step
    /// of packing, because the step would restore the values that it read at its start.
    fn between_steps<T>(
        &self,
        request: &Request,
        ino: Ino,
        change: impl Fn(Option<Handle>) -> Result<T>,
    ) -> Result<T> {
        self.reclaimer.note_request();
        let used = |file: &StoredFile| file.while_open(|handle| change(Some(handle)));
        let done = self.access.files.look(request, ino, used, || Ok(Some(change(None))))?;
        done.unwrap_or_else(|| change(None))
    }

    fn handle(&self, handle: Handle) -> Result<Arc<OpenFile>> {
        let key = usize::try_from(handle.0).or(Err(Errno::BADF))?;
        Ok(Arc::clone(self.handles.read().get(key).ok_or(Errno::BADF)?))
    }

    fn readable(&self, handle: Handle) -> Result<Arc<OpenFile>> {
        let open = self.handle(handle)?;
        if open.mode.contains(OpenMode::WRITE_ONLY) { Err(Errno::BADF.into()) } else { Ok(open) }
    }

    fn writable(&self, handle: Handle) -> Result<Arc<OpenFile>> {
        let open = self.handle(handle)?;
        if open.mode.writes() { Ok(open) } else { Err(Errno::BADF.into()) }
    }

    /// Lets workers decode the chunks that will probably be read next.
    fn decode_ahead(&self, open: &OpenFile, read: Range<u64>) {
        for (chunk, slot) in open.file.to_decode_ahead(&open.ahead, read) {
            let file = Arc::clone(&open.file);
            self.settings.workers.spawn(move || file.decode_ahead(&own_request(), chunk, &slot));
        }
    }

    fn opened(&self, ino: Ino, mode: OpenMode, file: Use) -> Opened {
        let open = Arc::new(OpenFile { ino, mode, file, ahead: ReadAhead::default() });
        let handle = Handle(self.handles.write().insert(open) as u64);
        Opened { keep_cache: true, no_flush: !mode.writes(), ..Opened::new(handle) }
    }

    /// Returns the attributes that the mount shows, based on those of the lower file. If the
    /// logical size can't be determined, the size of the lower file is shown. A user who can't read
    /// the file can then still rename and remove it.
    fn shown(&self, request: &Request, attr: Attr) -> Result<Attr> {
        if attr.kind != FileKind::Regular {
            return Ok(attr);
        }
        let block_size = attr.block_size.max(1 << self.settings.chunk_log2);
        match self.logical_size(request, &attr) {
            Ok(size) => Ok(Attr { size, block_size, ..attr }),
            // Opening the file reports the same error.
            Err(error) if matches!(error.errno(), Errno::ACCESS | Errno::IO) => {
                Ok(Attr { is_size_known: false, block_size, ..attr })
            }
            Err(error) => Err(error),
        }
    }

    fn logical_size(&self, request: &Request, attr: &Attr) -> Result<u64> {
        self.reclaimer.note_request();
        if let Some(file) = self.access.files.get(attr.ino) {
            return Ok(file.size().unwrap_or(attr.size));
        }
        if attr.size == 0 {
            return Ok(0);
        }
        if self.settings.size_xattr {
            match size_xattr::read(&*self.lower, request, attr.ino)? {
                Some(Mark::Clean(clean)) if clean.holds(attr.size, &self.settings.session) => {
                    return Ok(clean.file_size);
                }
                Some(Mark::Foreign) => return Ok(attr.size),
                _ => {}
            }
        }
        self.peek(request, attr)
    }

    /// Reads the size of an unused file from the file itself, without changing its access time.
    fn peek(&self, request: &Request, attr: &Attr) -> Result<u64> {
        let shown = |file: &StoredFile| file.size().unwrap_or(attr.size);
        // No writer may start during the lookup of the size, because the size may then be stored in
        // the xattr.
        self.access.files.look(request, attr.ino, shown, || {
            let handle = self.open_to_look(request, attr.ino)?;
            let opened = OpenBelow { ino: attr.ino, handle, is_writable: false, is_new: false };
            let size = StoredFile::open(&self.lower, &self.settings, request, opened)
                .and_then(|file| file.settle(request).map(|()| shown(&file)));
            self.lower.release(request, attr.ino, handle)?;
            size
        })
    }

    fn open_to_look(&self, request: &Request, ino: Ino) -> Result<Handle> {
        let opened = match self.lower.open(request, ino, OpenMode::NO_ACCESS_TIME) {
            // Only the owner of a file may open it without updating the access time.
            Err(error) if error.errno() == Errno::PERM => {
                self.lower.open(request, ino, OpenMode::empty())
            }
            opened => opened,
        };
        Ok(opened?.handle)
    }

    fn shown_entry(&self, request: &Request, entry: Entry) -> Result<Entry> {
        let ino = entry.attr.ino;
        match self.shown(request, entry.attr) {
            Ok(attr) => Ok(Entry { attr, generation: entry.generation }),
            Err(error) => {
                self.lower.forget(ino, 1);
                Err(error)
            }
        }
    }

    /// Prepares an open file for a new owner or new permissions, by invalidating its size xattr.
    /// After the change, the layer may no longer have the right to invalidate it, although users
    /// who have the file open can still write.
    fn expect_other_rights(&self, request: &Request, ino: Ino) -> Result<()> {
        let files = &self.access.files;
        let Some(file) = files.enter_used(request, ino)? else { return Ok(()) };
        let expected = file.expect_other_rights(request);
        let left = files.leave(request, ino);
        expected.and(left)
    }

    fn emptied(&self, request: &Request, mode: OpenMode, file: &StoredFile) -> Result<()> {
        if mode.contains(OpenMode::TRUNCATE) {
            return file.set_size(request, 0, !set_id::may_keep(request));
        }
        Ok(())
    }

    /// Makes a handle from an open lower file, whether it existed or was just created.
    fn enter_created(
        &self,
        request: &Request,
        (entry, opened): (Entry, Opened),
        is_new: bool,
        flags: OpenMode,
    ) -> Result<(Entry, Opened)> {
        let ino = entry.attr.ino;
        let opened = OpenBelow { ino, handle: opened.handle, is_writable: true, is_new };
        let file = self.enter_opened(request, opened);
        let file = file.inspect_err(|_| self.lower.forget(ino, 1))?;
        let empty = || {
            self.emptied(request, flags, &file)?;
            self.lower.getattr(request, ino, Some(file.lower_handle()))
        };
        let attr = if is_new { Ok(entry.attr) } else { empty() };
        let emptied = attr.and_then(|attr| self.shown(request, attr));
        match emptied {
            Ok(attr) => {
                let opened = self.opened(ino, flags, file);
                Ok((Entry { attr, generation: entry.generation }, opened))
            }
            Err(error) => {
                self.lower.forget(ino, 1);
                self.leave(request, ino, &file)?;
                Err(error)
            }
        }
    }

    fn enter_opened(&self, request: &Request, opened: OpenBelow) -> Result<Use> {
        let (ino, mut is_taken) = (opened.ino, false);
        let file = self.access.files.enter(request, ino, || {
            is_taken = true;
            self.access.take_over(request, opened)
        })?;
        if !is_taken {
            let ready = self.lower.release(request, ino, opened.handle);
            if let Err(error) = ready.and_then(|()| file.make_writable(request)) {
                self.leave(request, ino, &file)?;
                return Err(error);
            }
        }
        Ok(file)
    }

    fn copy(
        &self,
        request: &Request,
        (source, source_offset): (&OpenFile, u64),
        (target, target_offset): (&OpenFile, u64),
        length: u64,
    ) -> Result<u64> {
        let mut buffer = vec![0; length.min(COPY_BYTES_MAX) as usize];
        let count = source.file.read(request, source_offset, &mut buffer, None)?;
        let options = WriteOptions { kill_set_id: !set_id::may_keep(request), append: false };
        let place = Place::At(target_offset);
        let copied = target.file.write(request, place, &buffer[..count], options)?;
        self.attend(request, target.ino, &target.file);
        if target.mode.contains(OpenMode::DATA_SYNC) {
            target.file.sync(request, !target.mode.contains(OpenMode::SYNC))?;
        }
        Ok(copied as u64)
    }
}

/// Whether an xattr grants rights. Writing to the file may remove or change such xattrs.
fn is_of_rights(name: &OsStr) -> bool {
    name == CAPABILITY || name == acl::ACCESS
}

/// Returns the first error and logs the others.
fn first_error(answers: Vec<Result<()>>) -> Result<()> {
    let mut errors = answers.into_iter().filter_map(Result::err);
    let first = errors.next();
    errors.for_each(|error| tracing::warn!(%error, "can't shut down a layer cleanly"));
    first.map_or(Ok(()), Err)
}

impl FileSystem for Sca {
    fn tree_fallback(&self) -> Option<&dyn FileSystem> {
        Some(&*self.lower)
    }

    /// Leases are refused, because the layer has the lower file open through several handles at
    /// once.
    fn take_lease(&self, _ino: Ino, _handle: Handle) -> Result<()> {
        Err(Errno::OPNOTSUPP.into())
    }

    fn end_lease(&self, _ino: Ino, _handle: Handle) {}

    fn clone_range(
        &self,
        _source: (Ino, Handle, u64),
        _target: (Ino, Handle, u64),
        _length: u64,
    ) -> Result<()> {
        Err(Errno::OPNOTSUPP.into())
    }

    /// Continues after errors. If [`StoredFile::settle`] fails for a file, only that file has no
    /// valid size xattr. The next mount need not inspect the other files.
    fn shutdown(&self) -> Result<()> {
        let request = own_request();
        // On unmount the kernel drops RELEASE requests that the daemon has not read yet.
        for (_, open) in &*self.handles.read() {
            self.reclaimer.offer(open.ino, &open.file);
        }
        self.reclaimer.finish();
        let files = self.access.files.all();
        let mut answers: Vec<_> = files.iter().map(|file| file.settle(&request)).collect();
        let synced = self.lower.syncfs(&request, Ino::ROOT);
        if synced.is_ok()
            && let Err(error) =
                size_xattr::end_session(&self.lower, &request, &self.settings.session)
        {
            tracing::warn!(
                %error,
                "can't record the end of this mount; the next mount must open every file to \
                 determine its size"
            );
        }
        answers.extend([synced, self.lower.shutdown()]);
        first_error(answers)
    }

    fn syncfs(&self, request: &Request, ino: Ino) -> Result<()> {
        for file in self.access.files.all() {
            file.end_staging(request)?;
        }
        self.lower.syncfs(request, ino)
    }

    fn resolve(&self, request: &Request, ino: Ino) -> Result<Entry> {
        self.shown_entry(request, self.lower.resolve(request, ino)?)
    }

    fn parent_of(&self, request: &Request, ino: Ino) -> Result<Entry> {
        self.shown_entry(request, self.lower.parent_of(request, ino)?)
    }

    fn lookup(&self, request: &Request, parent: Ino, name: Name<'_>) -> Result<Entry> {
        self.shown_entry(request, self.lower.lookup(request, parent, name)?)
    }

    fn getattr(&self, request: &Request, ino: Ino, _handle: Option<Handle>) -> Result<Attr> {
        let attr = self.through_handle(ino, |handle| self.lower.getattr(request, ino, handle))?;
        self.shown(request, attr)
    }

    fn setattr(
        &self,
        request: &Request,
        ino: Ino,
        _handle: Option<Handle>,
        changes: &SetAttr,
    ) -> Result<Attr> {
        if let Some(size) = changes.size {
            let file = match size {
                0 => self.enter_emptied(request, ino, changes.kill_set_id)?,
                _ => self.enter(request, ino, true)?,
            };
            let done = match size {
                0 => Ok(()),
                _ => file.set_size(request, size, changes.kill_set_id),
            };
            self.attend(request, ino, &file);
            let left = self.leave(request, ino, &file);
            done.and(left)?;
        }
        let rest = SetAttr { size: None, kill_set_id: false, ..changes.clone() };
        if rest.permissions.is_some() || rest.uid.is_some() {
            self.expect_other_rights(request, ino)?;
        }
        let change = |handle| self.lower.setattr(request, ino, handle, &rest);
        let attr = self.between_steps(request, ino, change)?;
        self.shown(request, attr)
    }

    fn mknod(
        &self,
        request: &Request,
        parent: Ino,
        name: Name<'_>,
        mode: u32,
        device: u32,
    ) -> Result<Entry> {
        self.shown_entry(request, self.lower.mknod(request, parent, name, mode, device)?)
    }

    fn link(
        &self,
        request: &Request,
        ino: Ino,
        new_parent: Ino,
        new_name: Name<'_>,
    ) -> Result<Entry> {
        self.shown_entry(request, self.lower.link(request, ino, new_parent, new_name)?)
    }

    fn open(&self, request: &Request, ino: Ino, mode: OpenMode) -> Result<Opened> {
        let file = match mode.contains(OpenMode::TRUNCATE) {
            true => self.enter_emptied(request, ino, !set_id::may_keep(request))?,
            false => self.enter(request, ino, mode.writes())?,
        };
        Ok(self.opened(ino, mode, file))
    }

    fn create(
        &self,
        request: &Request,
        parent: Ino,
        name: Name<'_>,
        mode: u32,
        flags: OpenMode,
    ) -> Result<(Entry, Opened)> {
        let lower_flags = size_xattr::lower_mode(true);
        let exclusive = lower_flags | OpenMode::EXCLUSIVE;
        match self.lower.create(request, parent, name, mode, exclusive) {
            Err(error) if error.errno() == Errno::EXIST && !flags.contains(OpenMode::EXCLUSIVE) => {
                let found = self.lower.create(request, parent, name, mode, lower_flags)?;
                self.enter_created(request, found, false, flags)
            }
            created => self.enter_created(request, created?, true, flags),
        }
    }

    fn tmpfile(
        &self,
        request: &Request,
        parent: Ino,
        mode: u32,
        flags: OpenMode,
    ) -> Result<(Entry, Opened)> {
        // For `tmpfile`, `EXCLUSIVE` means that the file can never get a name.
        let lower_flags = size_xattr::lower_mode(true) | (flags & OpenMode::EXCLUSIVE);
        let created = self.lower.tmpfile(request, parent, mode, lower_flags)?;
        self.enter_created(request, created, true, flags)
    }

    fn read(
        &self,
        request: &Request,
        _ino: Ino,
        handle: Handle,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<usize> {
        self.reclaimer.note_request();
        let open = self.readable(handle)?;
        self.decode_ahead(&open, offset..offset.saturating_add(buffer.len() as u64));
        open.file.read(request, offset, buffer, Some(&open.ahead))
    }

    fn write(
        &self,
        request: &Request,
        _ino: Ino,
        handle: Handle,
        offset: u64,
        data: &[u8],
        options: WriteOptions,
    ) -> Result<usize> {
        self.reclaimer.note_request();
        let open = self.writable(handle)?;
        if data.is_empty() {
            return Ok(0);
        }
        let place = if options.append { Place::End } else { Place::At(offset) };
        let count = open.file.write(request, place, data, options.placed())?;
        self.attend(request, open.ino, &open.file);
        if open.mode.contains(OpenMode::DATA_SYNC) {
            open.file.sync(request, !open.mode.contains(OpenMode::SYNC))?;
        }
        Ok(count)
    }

    fn flush(&self, request: &Request, _ino: Ino, handle: Handle) -> Result<()> {
        let open = self.handle(handle)?;
        if open.mode.writes() { open.file.settle(request) } else { Ok(()) }
    }

    fn release(&self, request: &Request, _ino: Ino, handle: Handle) -> Result<()> {
        let key = usize::try_from(handle.0).or(Err(Errno::BADF))?;
        let open = self.handles.write().try_remove(key).ok_or(Errno::BADF)?;
        self.leave(request, open.ino, &open.file)
    }

    fn fsync(&self, request: &Request, _ino: Ino, handle: Handle, data_only: bool) -> Result<()> {
        let open = self.handle(handle)?;
        open.file.sync(request, data_only)?;
        self.attend(request, open.ino, &open.file);
        Ok(())
    }

    fn getxattr(&self, request: &Request, ino: Ino, name: &OsStr) -> Result<Vec<u8>> {
        if size_xattr::is_ours(name) {
            return Err(Errno::NODATA.into());
        }
        self.lower.getxattr(request, ino, name)
    }

    fn setxattr(
        &self,
        request: &Request,
        ino: Ino,
        name: &OsStr,
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()> {
        if size_xattr::is_ours(name) {
            return Err(Errno::PERM.into());
        }
        let change = |_| self.lower.setxattr(request, ino, name, value, mode);
        if is_of_rights(name) { self.between_steps(request, ino, change) } else { change(None) }
    }

    fn listxattr(&self, request: &Request, ino: Ino) -> Result<Vec<u8>> {
        let names = self.lower.listxattr(request, ino)?;
        let shown = names.split_inclusive(|byte| *byte == 0).filter(|name| {
            let name = name.strip_suffix(&[0]).unwrap_or(name);
            !size_xattr::is_ours(std::os::unix::ffi::OsStrExt::from_bytes(name))
        });
        Ok(shown.flatten().copied().collect())
    }

    fn removexattr(&self, request: &Request, ino: Ino, name: &OsStr) -> Result<()> {
        if size_xattr::is_ours(name) {
            return Err(Errno::NODATA.into());
        }
        let change = |_| self.lower.removexattr(request, ino, name);
        if is_of_rights(name) { self.between_steps(request, ino, change) } else { change(None) }
    }

    fn fileattr_get(&self, request: &Request, ino: Ino, form: FileAttrForm) -> Result<FileAttr> {
        self.lower.fileattr_get(request, ino, form)
    }

    /// Immutable and append-only files are refused, because the layer still writes to stored files
    /// after their users have closed them.
    fn fileattr_set(&self, request: &Request, ino: Ino, attr: &FileAttr) -> Result<()> {
        attr.refuse_change_of_protection(&*self.lower, request, ino)?;
        self.lower.fileattr_set(request, ino, attr)
    }

    fn fallocate(
        &self,
        request: &Request,
        _ino: Ino,
        handle: Handle,
        offset: u64,
        length: u64,
        mode: FallocateMode,
    ) -> Result<()> {
        // As in the kernel, this is checked before the write permission.
        if length == 0 {
            return Err(Errno::INVAL.into());
        }
        let open = self.writable(handle)?;
        open.file.fallocate(request, offset, length, mode)?;
        self.attend(request, open.ino, &open.file);
        Ok(())
    }

    fn lseek(
        &self,
        request: &Request,
        _ino: Ino,
        handle: Handle,
        offset: u64,
        to: SeekTo,
    ) -> Result<u64> {
        self.handle(handle)?.file.seek(request, offset, to)
    }

    fn copy_file_range(
        &self,
        request: &Request,
        (source_ino, source, source_offset): (Ino, Handle, u64),
        (target_ino, target, target_offset): (Ino, Handle, u64),
        length: u64,
    ) -> Result<u64> {
        let (source, target) = (self.readable(source)?, self.writable(target)?);
        let size = match source.file.size() {
            Some(size) => size,
            None => self.getattr(request, source_ino, None)?.size,
        };
        let length = length.min(size.saturating_sub(source_offset));
        target_offset.checked_add(length).ok_or(Errno::OVERFLOW)?;
        if source_ino == target_ino && source_offset.abs_diff(target_offset) < length {
            return Err(Errno::INVAL.into());
        }
        if length == 0 {
            return Ok(0);
        }
        self.copy(request, (&source, source_offset), (&target, target_offset), length)
    }
}
