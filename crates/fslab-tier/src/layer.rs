//! The layer: a tree as programs see it, with resident and offline files alike.
//!
//! The layer implements or refuses all operations on bytes and attributes. Operations on names are
//! passed to the lower tree, unless the layer implements them. The lower file system serves
//! resident files, and provides their descriptors for passthrough. The engine serves files with
//! offline blocks.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use fslab_vfs::{
    Attr, Entry, Errno, FallocateMode, FileAttr, FileAttrForm, FileSystem, Handle, HandleTable,
    Ino, Name, OpenMode, Opened, RenameMode, Request, Result, SeekTo, SetAttr, WriteOptions,
    XattrMode,
};

use crate::engine::{FileUse, ReadAhead, Tier};
use crate::stored::marks::is_ours;

mod attributes;
mod open;
mod user_xattrs;

pub use user_xattrs::UserQueue;

/// Maximum number of attempts to create a file while other programs create and remove its name.
const CREATE_ATTEMPTS_MAX: u32 = 1000;

/// A tree whose files may be in archives, as a file system.
pub struct TierFs {
    tier: Arc<Tier>,
    lower: Arc<dyn FileSystem>,
    handles: HandleTable<OpenFile>,
}

/// A handle of the mount.
struct OpenFile {
    /// The handle of the lower file.
    handle: Handle,
    mode: OpenMode,
    used: FileUse,
    reading: ReadAhead,
}

impl TierFs {
    /// Creates the file system over an engine.
    #[must_use]
    pub fn new(tier: Arc<Tier>) -> Self {
        tier.is_served_from_now_on();
        let lower = Arc::clone(tier.lower());
        Self { tier, lower, handles: HandleTable::default() }
    }

    /// Syncs a file after a change if the program opened the file with `O_SYNC` or `O_DSYNC`.
    fn sync_if_asked(&self, open: &OpenFile, request: &Request) -> Result<()> {
        if !open.mode.contains(OpenMode::DATA_SYNC) {
            return Ok(());
        }
        let data_only = !open.mode.contains(OpenMode::SYNC);
        self.tier.fsync(&open.used.file, request, open.handle, data_only)
    }

    fn below(&self, handle: Option<Handle>) -> Result<Option<Handle>> {
        handle.map(|handle| Ok(self.handles.get(handle)?.handle)).transpose()
    }
}

impl FileSystem for TierFs {
    fn tree_fallback(&self) -> Option<&dyn FileSystem> {
        Some(&*self.lower)
    }

    fn can_defer(&self) -> bool {
        self.tier.accept_offers();
        true
    }

    fn mknod(
        &self,
        request: &Request,
        parent: Ino,
        name: Name<'_>,
        mode: u32,
        device: u32,
    ) -> Result<Entry> {
        self.lower.mknod(request, parent, name, mode, device)
    }

    /// Refuses leases, because the engine itself opens the files.
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

    fn shutdown(&self) -> Result<()> {
        self.tier.shutdown()?;
        self.lower.shutdown()
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

    fn getattr(&self, request: &Request, ino: Ino, handle: Option<Handle>) -> Result<Attr> {
        let handle = self.below(handle)?;
        let ask = || self.lower.getattr(request, ino, handle);
        self.tier.shown(self.settled(ino, ask)?)
    }

    fn setattr(
        &self,
        request: &Request,
        ino: Ino,
        handle: Option<Handle>,
        changes: &SetAttr,
    ) -> Result<Attr> {
        let handle = self.below(handle)?;
        if ino == Ino::ROOT {
            let set = self.tier.root().set_attributes(&*self.lower, request, handle, changes);
            return self.tier.shown(set?);
        }
        let used = self.tier.enter(ino);
        let attr = match changes.size {
            Some(size) => self.tier.resize(&used.file, request, handle, size, changes)?,
            None => self.tier.set_attributes(&used.file, request, handle, changes)?,
        };
        self.tier.shown(attr)
    }

    fn unlink(&self, request: &Request, parent: Ino, name: Name<'_>) -> Result<()> {
        self.tier.removing((parent, name), || self.lower.unlink(request, parent, name))
    }

    fn rename(
        &self,
        request: &Request,
        parent: Ino,
        name: Name<'_>,
        new_parent: Ino,
        new_name: Name<'_>,
        mode: RenameMode,
    ) -> Result<()> {
        let replaces = !mode.intersects(RenameMode::NO_REPLACE | RenameMode::EXCHANGE);
        let (from, to) = ((parent, name), (new_parent, new_name));
        let rename = || {
            let rename = || self.lower.rename(request, parent, name, new_parent, new_name, mode);
            self.tier.naming(&[from, to], rename)
        };
        if replaces { self.tier.removing(to, rename) } else { rename() }
    }

    fn link(
        &self,
        request: &Request,
        ino: Ino,
        new_parent: Ino,
        new_name: Name<'_>,
    ) -> Result<Entry> {
        let names = [(new_parent, new_name)];
        let link = || self.lower.link(request, ino, new_parent, new_name);
        self.shown_entry(request, self.tier.naming(&names, link)?)
    }

    fn open(&self, request: &Request, ino: Ino, mode: OpenMode) -> Result<Opened> {
        let used = self.tier.enter(ino);
        let open = |lower: &Arc<dyn FileSystem>| lower.open(request, ino, mode);
        let opened = self.tier.open_below(&used.file, mode, open)?;
        Ok(self.entered(used, opened, mode))
    }

    fn create(
        &self,
        request: &Request,
        parent: Ino,
        name: Name<'_>,
        mode: u32,
        flags: OpenMode,
    ) -> Result<(Entry, Opened)> {
        let exclusive = flags | OpenMode::EXCLUSIVE;
        for _ in 0..CREATE_ATTEMPTS_MAX {
            match self.lower.create(request, parent, name, mode, exclusive) {
                Err(error)
                    if error.errno() == Errno::EXIST && !flags.contains(OpenMode::EXCLUSIVE) => {}
                created => return Ok(self.enter_created(created?, flags)),
            }
            match self.open_existing(request, parent, name, flags) {
                // The name was removed after the exclusive creation had found it.
                Err(error) if matches!(error.errno(), Errno::NOENT | Errno::STALE) => {}
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
        let created = self.lower.tmpfile(request, parent, mode, flags)?;
        Ok(self.enter_created(created, flags))
    }

    fn read(
        &self,
        request: &Request,
        _ino: Ino,
        handle: Handle,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<usize> {
        let open = self.handles.get(handle)?;
        if open.mode.contains(OpenMode::WRITE_ONLY) {
            return Err(Errno::BADF.into());
        }
        let from = (open.handle, &open.reading);
        self.tier.read(&open.used.file, request, from, offset, buffer)
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
        let open = self.handles.get(handle)?;
        if !open.mode.writes() {
            return Err(Errno::BADF.into());
        }
        if data.is_empty() || self.tier.is_plain(&open.used.file)? {
            return self.lower.write(request, ino, open.handle, offset, data, options);
        }
        let file = &open.used.file;
        let count = self.tier.write(file, request, open.handle, offset, data, options)?;
        self.sync_if_asked(&open, request)?;
        Ok(count)
    }

    fn flush(&self, request: &Request, _ino: Ino, handle: Handle) -> Result<()> {
        let open = self.handles.get(handle)?;
        self.tier.flush(&open.used.file, request, open.handle)
    }

    fn release(&self, request: &Request, ino: Ino, handle: Handle) -> Result<()> {
        let open = self.handles.remove(handle)?;
        let closed = self.lower.release(request, ino, open.handle);
        self.tier.closed(&open.used.file, open.mode);
        closed
    }

    fn fsync(&self, request: &Request, _ino: Ino, handle: Handle, data_only: bool) -> Result<()> {
        let open = self.handles.get(handle)?;
        self.tier.fsync(&open.used.file, request, open.handle, data_only)
    }

    fn getxattr(&self, request: &Request, ino: Ino, name: &OsStr) -> Result<Vec<u8>> {
        if let Some(computed) = self.computed_xattr(request, ino, name) {
            return computed;
        }
        if is_ours(name) {
            return Err(Errno::NODATA.into());
        }
        let value = self.settled(ino, || self.lower.getxattr(request, ino, name))?;
        Ok(self.tier.shown_xattr(ino, name, value))
    }

    fn setxattr(
        &self,
        request: &Request,
        ino: Ino,
        name: &OsStr,
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()> {
        if is_ours(name) {
            return Err(Errno::PERM.into());
        }
        if ino == Ino::ROOT {
            return self.tier.root().set_xattr(&*self.lower, request, name, value, mode);
        }
        let used = self.tier.enter(ino);
        let set = || self.lower.setxattr(request, ino, name, value, mode);
        self.tier.at_rest(&used.file, set)
    }

    fn listxattr(&self, request: &Request, ino: Ino) -> Result<Vec<u8>> {
        let names = self.settled(ino, || self.lower.listxattr(request, ino))?;
        let shown = names.split_inclusive(|byte| *byte == 0).filter(|name| {
            let name = name.strip_suffix(&[0]).unwrap_or(name);
            !is_ours(OsStr::from_bytes(name))
        });
        Ok(shown.flatten().copied().collect())
    }

    fn removexattr(&self, request: &Request, ino: Ino, name: &OsStr) -> Result<()> {
        if is_ours(name) {
            return Err(Errno::NODATA.into());
        }
        let used = self.tier.enter(ino);
        self.tier.at_rest(&used.file, || self.lower.removexattr(request, ino, name))
    }

    fn fileattr_get(&self, request: &Request, ino: Ino, form: FileAttrForm) -> Result<FileAttr> {
        self.settled(ino, || self.lower.fileattr_get(request, ino, form))
    }

    /// Refuses to make a file immutable or append-only, because recalls and releases write to the
    /// file.
    fn fileattr_set(&self, request: &Request, ino: Ino, attr: &FileAttr) -> Result<()> {
        attr.refuse_change_of_protection(&*self.lower, request, ino)?;
        let used = self.tier.enter(ino);
        self.tier.at_rest(&used.file, || self.lower.fileattr_set(request, ino, attr))
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
        let open = self.handles.get(handle)?;
        if length == 0 || self.tier.is_plain(&open.used.file)? {
            return self.lower.fallocate(request, ino, open.handle, offset, length, mode);
        }
        if !open.mode.writes() {
            return Err(Errno::BADF.into());
        }
        let file = &open.used.file;
        self.tier.fallocate(file, request, open.handle, (offset, length), mode)?;
        self.sync_if_asked(&open, request)
    }

    fn lseek(
        &self,
        request: &Request,
        _ino: Ino,
        handle: Handle,
        offset: u64,
        to: SeekTo,
    ) -> Result<u64> {
        let open = self.handles.get(handle)?;
        self.tier.seek(&open.used.file, request, open.handle, offset, to)
    }

    fn copy_file_range(
        &self,
        request: &Request,
        (source_ino, source, source_offset): (Ino, Handle, u64),
        (target_ino, target, target_offset): (Ino, Handle, u64),
        length: u64,
    ) -> Result<u64> {
        let (source, target) = (self.handles.get(source)?, self.handles.get(target)?);
        let are_plain =
            self.tier.is_plain(&source.used.file)? && self.tier.is_plain(&target.used.file)?;
        if are_plain || !target.mode.writes() {
            let from = (source_ino, source.handle, source_offset);
            let to = (target_ino, target.handle, target_offset);
            return self.lower.copy_file_range(request, from, to, length);
        }
        let from = (&source.used.file, source.handle, source_offset);
        let to = (&target.used.file, target.handle, target_offset);
        let count = self.tier.copy(request, from, to, length)?;
        self.sync_if_asked(&target, request)?;
        Ok(count)
    }
}
