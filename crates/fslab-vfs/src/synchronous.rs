//! A file system whose changes are durable when they are answered.

use std::ffi::OsStr;
use std::sync::Arc;

use crate::error::Result;
use crate::file_attr::FileAttr;
use crate::file_system::FileSystem;
use crate::types::{
    Attr, Entry, FallocateMode, FileKind, Handle, Ino, Name, OpenMode, Opened, RenameMode, Request,
    SetAttr, XattrMode,
};

/// What is made durable before it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Synchronous {
    /// `dirsync`: what is made, removed, linked or renamed.
    Names,
    /// `sync`: names, attributes and what is reserved, punched or copied. Whoever sends writes
    /// asks for their durability itself, as the kernel does for a mount with this option.
    Everything,
}

/// Makes changes of a file system durable before it answers them. An error of doing so is
/// answered, though the change has happened.
///
/// With [`Synchronous::Everything`], no file is handed over to the kernel (passthrough): it would
/// write there without asking for durability.
pub struct SynchronousFs {
    inner: Arc<dyn FileSystem>,
    what: Synchronous,
}

impl SynchronousFs {
    /// Makes changes of `inner` durable.
    #[must_use]
    pub fn new(inner: Arc<dyn FileSystem>, what: Synchronous) -> Self {
        Self { inner, what }
    }

    /// Makes the names in a directory durable.
    fn sync_names(&self, request: &Request, directory: Ino) -> Result<()> {
        let handle = self.inner.opendir(request, directory)?;
        let synced = self.inner.fsyncdir(request, directory, handle, false);
        self.inner.releasedir(request, directory, handle)?;
        synced
    }

    /// Makes what was made under a name durable, its own attributes included.
    fn sync_entry(&self, request: &Request, parent: Ino, entry: Entry) -> Result<Entry> {
        let made = match entry.attr.kind {
            FileKind::Directory => self.sync_names(request, entry.attr.ino),
            _ => Ok(()),
        };
        match made.and_then(|()| self.sync_names(request, parent)) {
            Ok(()) => Ok(entry),
            Err(error) => {
                self.inner.forget(entry.attr.ino, 1);
                Err(error)
            }
        }
    }

    /// Makes the attributes of an inode durable.
    fn sync_inode(&self, request: &Request, ino: Ino, handle: Option<Handle>) -> Result<()> {
        if self.what == Synchronous::Names {
            return Ok(());
        }
        if let Some(handle) = handle {
            return self.inner.fsync(request, ino, handle, false);
        }
        match self.inner.getattr(request, ino, None)?.kind {
            FileKind::Directory => self.sync_names(request, ino),
            FileKind::Regular => {
                let opened = self.inner.open(request, ino, OpenMode::NO_ACCESS_TIME)?;
                let synced = self.inner.fsync(request, ino, opened.handle, false);
                self.inner.release(request, ino, opened.handle)?;
                synced
            }
            // Nothing else can be opened to sync it alone.
            _ => self.inner.syncfs(request, ino),
        }
    }

    fn opened(&self, opened: Opened) -> Opened {
        match self.what {
            Synchronous::Names => opened,
            Synchronous::Everything => Opened { backing: None, ..opened },
        }
    }
}

impl FileSystem for SynchronousFs {
    fn fallback(&self) -> Option<&dyn FileSystem> {
        Some(&*self.inner)
    }

    fn setattr(
        &self,
        request: &Request,
        ino: Ino,
        handle: Option<Handle>,
        changes: &SetAttr,
    ) -> Result<Attr> {
        let attr = self.inner.setattr(request, ino, handle, changes)?;
        self.sync_inode(request, ino, handle)?;
        Ok(attr)
    }

    fn mknod(
        &self,
        request: &Request,
        parent: Ino,
        name: Name<'_>,
        mode: u32,
        device: u32,
    ) -> Result<Entry> {
        let entry = self.inner.mknod(request, parent, name, mode, device)?;
        self.sync_entry(request, parent, entry)
    }

    fn mkdir(&self, request: &Request, parent: Ino, name: Name<'_>, mode: u32) -> Result<Entry> {
        let entry = self.inner.mkdir(request, parent, name, mode)?;
        self.sync_entry(request, parent, entry)
    }

    fn symlink(
        &self,
        request: &Request,
        parent: Ino,
        name: Name<'_>,
        target: &OsStr,
    ) -> Result<Entry> {
        let entry = self.inner.symlink(request, parent, name, target)?;
        self.sync_entry(request, parent, entry)
    }

    fn unlink(&self, request: &Request, parent: Ino, name: Name<'_>) -> Result<()> {
        self.inner.unlink(request, parent, name)?;
        self.sync_names(request, parent)
    }

    fn rmdir(&self, request: &Request, parent: Ino, name: Name<'_>) -> Result<()> {
        self.inner.rmdir(request, parent, name)?;
        self.sync_names(request, parent)
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
        self.inner.rename(request, parent, name, new_parent, new_name, mode)?;
        // First where the name is now: a crash in between leaves two names rather than none.
        self.sync_names(request, new_parent)?;
        if new_parent == parent { Ok(()) } else { self.sync_names(request, parent) }
    }

    fn link(
        &self,
        request: &Request,
        ino: Ino,
        new_parent: Ino,
        new_name: Name<'_>,
    ) -> Result<Entry> {
        let entry = self.inner.link(request, ino, new_parent, new_name)?;
        self.sync_entry(request, new_parent, entry)
    }

    fn open(&self, request: &Request, ino: Ino, mode: OpenMode) -> Result<Opened> {
        let opened = self.inner.open(request, ino, mode)?;
        if mode.contains(OpenMode::TRUNCATE)
            && let Err(error) = self.sync_inode(request, ino, Some(opened.handle))
        {
            self.inner.release(request, ino, opened.handle)?;
            return Err(error);
        }
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
        let (entry, opened) = self.inner.create(request, parent, name, mode, flags)?;
        let (ino, handle) = (entry.attr.ino, opened.handle);
        let emptied = match flags.contains(OpenMode::TRUNCATE) {
            true => self.sync_inode(request, ino, Some(handle)),
            false => Ok(()),
        };
        match emptied.and_then(|()| self.sync_names(request, parent)) {
            Ok(()) => Ok((entry, self.opened(opened))),
            Err(error) => {
                self.inner.release(request, ino, handle)?;
                self.inner.forget(ino, 1);
                Err(error)
            }
        }
    }

    fn tmpfile(
        &self,
        request: &Request,
        parent: Ino,
        mode: u32,
        flags: OpenMode,
    ) -> Result<(Entry, Opened)> {
        let (entry, opened) = self.inner.tmpfile(request, parent, mode, flags)?;
        Ok((entry, self.opened(opened)))
    }

    fn setxattr(
        &self,
        request: &Request,
        ino: Ino,
        name: &OsStr,
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()> {
        self.inner.setxattr(request, ino, name, value, mode)?;
        self.sync_inode(request, ino, None)
    }

    fn removexattr(&self, request: &Request, ino: Ino, name: &OsStr) -> Result<()> {
        self.inner.removexattr(request, ino, name)?;
        self.sync_inode(request, ino, None)
    }

    fn fileattr_set(&self, request: &Request, ino: Ino, attr: &FileAttr) -> Result<()> {
        self.inner.fileattr_set(request, ino, attr)?;
        self.sync_inode(request, ino, None)
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
        self.inner.fallocate(request, ino, handle, offset, length, mode)?;
        self.sync_inode(request, ino, Some(handle))
    }

    fn copy_file_range(
        &self,
        request: &Request,
        source: (Ino, Handle, u64),
        target: (Ino, Handle, u64),
        length: u64,
    ) -> Result<u64> {
        let copied = self.inner.copy_file_range(request, source, target, length)?;
        self.sync_inode(request, target.0, Some(target.1))?;
        Ok(copied)
    }
}
