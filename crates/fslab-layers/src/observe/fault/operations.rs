//! The layer's operations: each asks the program first.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};

use fslab_vfs::{
    Attr, DirectorySink, Entry, FallocateMode, FileAttr, FileAttrForm, FileSystem, Handle, Ino,
    Name, OpenMode, Opened, RenameMode, Request, Result, SeekTo, SetAttr, StatFs, WriteOptions,
    XattrMode,
};

use crate::observe::operation::Operation;

use super::program::{Call, Verdict};
use super::{Fault, Named};

/// For calls whose answer needs no taking back.
fn keep<T>(_: &T) {}

impl FileSystem for Fault {
    fn fallback(&self) -> Option<&dyn FileSystem> {
        Some(&*self.inner)
    }

    fn lookup(&self, request: &Request, parent: Ino, name: Name<'_>) -> Result<Entry> {
        self.around_entry(request, Operation::Lookup, (parent, name.as_os_str()), || {
            self.inner.lookup(request, parent, name)
        })
    }

    fn forget(&self, ino: Ino, lookups: u64) {
        self.paths.forget(ino, lookups);
        self.inner.forget(ino, lookups);
    }

    fn getattr(&self, request: &Request, ino: Ino, handle: Option<Handle>) -> Result<Attr> {
        let work = || self.inner.getattr(request, ino, handle);
        self.around(request, Operation::Getattr, &[Named::Inode(ino)], work, keep)
    }

    fn setattr(
        &self,
        request: &Request,
        ino: Ino,
        handle: Option<Handle>,
        changes: &SetAttr,
    ) -> Result<Attr> {
        let work = || self.inner.setattr(request, ino, handle, changes);
        self.around(request, Operation::Setattr, &[Named::Inode(ino)], work, keep)
    }

    fn readlink(&self, request: &Request, ino: Ino) -> Result<OsString> {
        let work = || self.inner.readlink(request, ino);
        self.around(request, Operation::Readlink, &[Named::Inode(ino)], work, keep)
    }

    fn mknod(
        &self,
        request: &Request,
        parent: Ino,
        name: Name<'_>,
        mode: u32,
        device: u32,
    ) -> Result<Entry> {
        self.around_entry(request, Operation::Mknod, (parent, name.as_os_str()), || {
            self.inner.mknod(request, parent, name, mode, device)
        })
    }

    fn mkdir(&self, request: &Request, parent: Ino, name: Name<'_>, mode: u32) -> Result<Entry> {
        self.around_entry(request, Operation::Mkdir, (parent, name.as_os_str()), || {
            self.inner.mkdir(request, parent, name, mode)
        })
    }

    fn symlink(
        &self,
        request: &Request,
        parent: Ino,
        name: Name<'_>,
        target: &OsStr,
    ) -> Result<Entry> {
        self.around_entry(request, Operation::Symlink, (parent, name.as_os_str()), || {
            self.inner.symlink(request, parent, name, target)
        })
    }

    fn unlink(&self, request: &Request, parent: Ino, name: Name<'_>) -> Result<()> {
        let named = [Named::Entry(parent, name.as_os_str())];
        self.around_change(request, Operation::Unlink, &named, || {
            self.inner.unlink(request, parent, name)
        })
    }

    fn rmdir(&self, request: &Request, parent: Ino, name: Name<'_>) -> Result<()> {
        let named = [Named::Entry(parent, name.as_os_str())];
        self.around_change(request, Operation::Rmdir, &named, || {
            self.inner.rmdir(request, parent, name)
        })
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
        let named = [
            Named::Entry(parent, name.as_os_str()),
            Named::Entry(new_parent, new_name.as_os_str()),
        ];
        self.around_change(request, Operation::Rename, &named, || {
            self.inner.rename(request, parent, name, new_parent, new_name, mode)?;
            self.follow(request, new_parent, new_name);
            if mode.contains(RenameMode::EXCHANGE) {
                self.follow(request, parent, name);
            }
            Ok(())
        })
    }

    fn link(
        &self,
        request: &Request,
        ino: Ino,
        new_parent: Ino,
        new_name: Name<'_>,
    ) -> Result<Entry> {
        let place = (new_parent, new_name.as_os_str());
        let named = [Named::Inode(ino), Named::Entry(place.0, place.1)];
        let work = || self.inner.link(request, ino, new_parent, new_name);
        let entry = self.around(request, Operation::Link, &named, work, |entry| {
            self.inner.forget(entry.attr.ino, 1);
        })?;
        self.paths.learn(entry.attr.ino, Some(place));
        Ok(entry)
    }

    fn open(&self, request: &Request, ino: Ino, mode: OpenMode) -> Result<Opened> {
        let work = || self.inner.open(request, ino, mode);
        let opened =
            self.around(request, Operation::Open, &[Named::Inode(ino)], work, |opened| {
                self.drop_opened(request, ino, opened);
            })?;
        Ok(self.opened(opened))
    }

    fn create(
        &self,
        request: &Request,
        parent: Ino,
        name: Name<'_>,
        mode: u32,
        flags: OpenMode,
    ) -> Result<(Entry, Opened)> {
        let place = (parent, name.as_os_str());
        let work = || self.inner.create(request, parent, name, mode, flags);
        let named = [Named::Entry(place.0, place.1)];
        self.around_creation(request, Operation::Create, &named, Some(place), work)
    }

    fn tmpfile(
        &self,
        request: &Request,
        parent: Ino,
        mode: u32,
        flags: OpenMode,
    ) -> Result<(Entry, Opened)> {
        let work = || self.inner.tmpfile(request, parent, mode, flags);
        self.around_creation(request, Operation::Tmpfile, &[Named::Inode(parent)], None, work)
    }

    fn read(
        &self,
        request: &Request,
        ino: Ino,
        handle: Handle,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<usize> {
        let length = buffer.len() as u64;
        let call = Call { operation: Operation::Read, length, divisible: true };
        let Some(mut verdict) = self.judge(call, &[Named::Inode(ino)]) else {
            return self.inner.read(request, ino, handle, offset, buffer);
        };
        self.begin(&verdict, request)?;
        let buffer = &mut buffer[..limited(&verdict, length)];
        let done = self.inner.read(request, ino, handle, offset, buffer)?;
        verdict.spoil(offset, &mut buffer[..done]);
        Ok(verdict.late.map_or(Ok(done), Err)?)
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
        let call = Call { operation: Operation::Write, length: data.len() as u64, divisible: true };
        let Some(mut verdict) = self.judge(call, &[Named::Inode(ino)]) else {
            return self.inner.write(request, ino, handle, offset, data, options);
        };
        self.begin(&verdict, request)?;
        let data = &data[..limited(&verdict, call.length)];
        let answer = if verdict.skip {
            Ok(data.len())
        } else {
            let data = spoiled(&mut verdict, offset, data);
            self.inner.write(request, ino, handle, offset, &data, options)
        };
        verdict.settle(answer.as_ref().map_or(0, |written| *written as u64));
        let written = answer?;
        Ok(verdict.late.map_or(Ok(written), Err)?)
    }

    fn flush(&self, request: &Request, ino: Ino, handle: Handle) -> Result<()> {
        self.around_change(request, Operation::Flush, &[Named::Inode(ino)], || {
            self.inner.flush(request, ino, handle)
        })
    }

    fn release(&self, request: &Request, ino: Ino, handle: Handle) -> Result<()> {
        self.around_release(request, Operation::Release, ino, || {
            self.inner.release(request, ino, handle)
        })
    }

    fn fsync(&self, request: &Request, ino: Ino, handle: Handle, data_only: bool) -> Result<()> {
        self.around_change(request, Operation::Fsync, &[Named::Inode(ino)], || {
            self.inner.fsync(request, ino, handle, data_only)
        })
    }

    fn opendir(&self, request: &Request, ino: Ino) -> Result<Handle> {
        let work = || self.inner.opendir(request, ino);
        self.around(request, Operation::Opendir, &[Named::Inode(ino)], work, |handle| {
            // The caller is told of an error; a second one would not help.
            self.inner.releasedir(request, ino, *handle).ok();
        })
    }

    fn readdir(
        &self,
        request: &Request,
        ino: Ino,
        handle: Handle,
        offset: u64,
        sink: &mut DirectorySink<'_>,
    ) -> Result<()> {
        let work = || self.inner.readdir(request, ino, handle, offset, sink);
        self.around(request, Operation::Readdir, &[Named::Inode(ino)], work, keep)
    }

    fn releasedir(&self, request: &Request, ino: Ino, handle: Handle) -> Result<()> {
        self.around_release(request, Operation::Releasedir, ino, || {
            self.inner.releasedir(request, ino, handle)
        })
    }

    fn fsyncdir(&self, request: &Request, ino: Ino, handle: Handle, data_only: bool) -> Result<()> {
        self.around_change(request, Operation::Fsyncdir, &[Named::Inode(ino)], || {
            self.inner.fsyncdir(request, ino, handle, data_only)
        })
    }

    fn syncfs(&self, request: &Request, ino: Ino) -> Result<()> {
        self.around_change(request, Operation::Syncfs, &[Named::Inode(ino)], || {
            self.inner.syncfs(request, ino)
        })
    }

    fn statfs(&self, request: &Request, ino: Ino) -> Result<StatFs> {
        let work = || self.inner.statfs(request, ino);
        self.around(request, Operation::Statfs, &[Named::Inode(ino)], work, keep)
    }

    fn getxattr(&self, request: &Request, ino: Ino, name: &OsStr) -> Result<Vec<u8>> {
        let call = Call { operation: Operation::Getxattr, length: 0, divisible: false };
        let Some(mut verdict) = self.judge(call, &[Named::Inode(ino)]) else {
            return self.inner.getxattr(request, ino, name);
        };
        self.begin(&verdict, request)?;
        let mut value = self.inner.getxattr(request, ino, name)?;
        verdict.spoil(0, &mut value);
        Ok(verdict.late.map_or(Ok(value), Err)?)
    }

    fn setxattr(
        &self,
        request: &Request,
        ino: Ino,
        name: &OsStr,
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()> {
        let call = Call { operation: Operation::Setxattr, length: 0, divisible: false };
        let Some(mut verdict) = self.judge(call, &[Named::Inode(ino)]) else {
            return self.inner.setxattr(request, ino, name, value, mode);
        };
        self.begin(&verdict, request)?;
        if !verdict.skip {
            let value = spoiled(&mut verdict, 0, value);
            self.inner.setxattr(request, ino, name, &value, mode)?;
        }
        Ok(verdict.late.map_or(Ok(()), Err)?)
    }

    fn listxattr(&self, request: &Request, ino: Ino) -> Result<Vec<u8>> {
        let work = || self.inner.listxattr(request, ino);
        self.around(request, Operation::Listxattr, &[Named::Inode(ino)], work, keep)
    }

    fn removexattr(&self, request: &Request, ino: Ino, name: &OsStr) -> Result<()> {
        self.around_change(request, Operation::Removexattr, &[Named::Inode(ino)], || {
            self.inner.removexattr(request, ino, name)
        })
    }

    fn fileattr_get(&self, request: &Request, ino: Ino, form: FileAttrForm) -> Result<FileAttr> {
        let work = || self.inner.fileattr_get(request, ino, form);
        self.around(request, Operation::FileattrGet, &[Named::Inode(ino)], work, keep)
    }

    fn fileattr_set(&self, request: &Request, ino: Ino, attr: &FileAttr) -> Result<()> {
        self.around_change(request, Operation::FileattrSet, &[Named::Inode(ino)], || {
            self.inner.fileattr_set(request, ino, attr)
        })
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
        let work = || self.inner.fallocate(request, ino, handle, offset, length, mode);
        let frees = FallocateMode::PUNCH_HOLE | FallocateMode::COLLAPSE_RANGE;
        let taken = if mode.intersects(frees) { 0 } else { length };
        let call = Call { operation: Operation::Fallocate, length: taken, divisible: false };
        let Some(verdict) = self.judge(call, &[Named::Inode(ino)]) else { return work() };
        self.begin(&verdict, request)?;
        let answer = if verdict.skip { Ok(()) } else { work() };
        verdict.settle(if answer.is_ok() { taken } else { 0 });
        answer?;
        Ok(verdict.late.map_or(Ok(()), Err)?)
    }

    fn lseek(
        &self,
        request: &Request,
        ino: Ino,
        handle: Handle,
        offset: u64,
        to: SeekTo,
    ) -> Result<u64> {
        let work = || self.inner.lseek(request, ino, handle, offset, to);
        self.around(request, Operation::Lseek, &[Named::Inode(ino)], work, keep)
    }

    fn copy_file_range(
        &self,
        request: &Request,
        source: (Ino, Handle, u64),
        target: (Ino, Handle, u64),
        length: u64,
    ) -> Result<u64> {
        let call = Call { operation: Operation::CopyFileRange, length, divisible: true };
        let named = [Named::Inode(source.0), Named::Inode(target.0)];
        let Some(verdict) = self.judge(call, &named) else {
            return self.inner.copy_file_range(request, source, target, length);
        };
        self.begin(&verdict, request)?;
        let length = length.min(verdict.limit);
        let answer = self.inner.copy_file_range(request, source, target, length);
        verdict.settle(answer.as_ref().map_or(0, |copied| *copied));
        let copied = answer?;
        Ok(verdict.late.map_or(Ok(copied), Err)?)
    }
}

impl Fault {
    fn around_creation(
        &self,
        request: &Request,
        operation: Operation,
        named: &[Named<'_>],
        place: Option<(Ino, &OsStr)>,
        work: impl FnOnce() -> Result<(Entry, Opened)>,
    ) -> Result<(Entry, Opened)> {
        let (entry, opened) = self.around(request, operation, named, work, |(entry, opened)| {
            self.drop_opened(request, entry.attr.ino, opened);
            self.inner.forget(entry.attr.ino, 1);
        })?;
        self.paths.learn(entry.attr.ino, place);
        Ok((entry, self.opened(opened)))
    }

    /// Closes what the caller will not hear of. The caller is told of an error as it is; a second
    /// one would not help.
    fn drop_opened(&self, request: &Request, ino: Ino, opened: &Opened) {
        self.inner.release(request, ino, opened.handle).ok();
    }
}

/// How much of a transfer is left by the rules.
fn limited(verdict: &Verdict, length: u64) -> usize {
    // The length is that of a buffer.
    length.min(verdict.limit) as usize
}

/// The bytes to be stored.
fn spoiled<'a>(verdict: &mut Verdict, offset: u64, data: &'a [u8]) -> Cow<'a, [u8]> {
    if verdict.flips.is_empty() {
        return Cow::Borrowed(data);
    }
    let mut copy = data.to_vec();
    verdict.spoil(offset, &mut copy);
    Cow::Owned(copy)
}
