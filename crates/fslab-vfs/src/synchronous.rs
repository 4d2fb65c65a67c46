//! A file system whose changes are durable when the operations return.

use std::sync::Arc;

use crate::call::{Answer, Reply};
use crate::error::Result;
use crate::file_system::FileSystem;
use crate::interceptor::{Intercepted, Interceptor};
use crate::operation::Call;
use crate::types::{Entry, FileKind, Handle, Ino, OpenMode, Opened, Request};

/// Selects which changes are made durable before an operation returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Synchronous {
    /// `dirsync`: creations, removals, links and renames.
    Names,
    /// `sync`: names, attributes, reservations, punches and copies. Writes are not included,
    /// because their sender syncs them itself, as the kernel does for a mount with this option.
    Everything,
}

/// Makes changes of a file system durable before the operation returns. An error of the sync is
/// returned although the change has been made.
///
/// With [`Synchronous::Everything`], no file is passed to the kernel (passthrough), because the
/// kernel would write to it without a sync.
pub type SynchronousFs = Intercepted<Synchronous>;

impl SynchronousFs {
    /// Makes changes of `inner` durable.
    #[must_use]
    pub fn new(inner: Arc<dyn FileSystem>, what: Synchronous) -> Self {
        Self { inner, interceptor: what }
    }
}

impl Interceptor for Synchronous {
    fn around<T: Reply>(
        &self,
        inner: &dyn FileSystem,
        request: Option<&Request>,
        call: Call<'_>,
        perform: impl FnOnce(&Call<'_>) -> Result<T>,
    ) -> Result<T> {
        let reply = perform(&call)?;
        let Some(request) = request else { return Ok(reply) };
        let answer = reply.seen(&call);
        match self.sync(inner, request, &call, &answer) {
            Ok(()) => Ok(reply),
            Err(error) => {
                answer.take_back(inner, request, &call);
                Err(error)
            }
        }
    }

    fn opened(&self, opened: &mut Opened) {
        if *self == Self::Everything {
            opened.backing = None;
        }
    }
}

impl Synchronous {
    /// Makes the changes of a call durable.
    fn sync(
        self,
        inner: &dyn FileSystem,
        request: &Request,
        call: &Call<'_>,
        answer: &Answer<'_>,
    ) -> Result<()> {
        let sync_inode = |ino, handle| self.sync_inode(inner, request, ino, handle);
        match (*call, *answer) {
            (
                Call::Mknod { parent, .. }
                | Call::Mkdir { parent, .. }
                | Call::Symlink { parent, .. }
                | Call::Link { new_parent: parent, .. },
                Answer::Entry(entry),
            ) => sync_entry(inner, request, parent, entry),
            (Call::Unlink { parent, .. } | Call::Rmdir { parent, .. }, _) => {
                sync_names(inner, request, parent)
            }
            (Call::Rename { parent, new_parent, .. }, _) => {
                // The new directory is synced first, so that a crash in between leaves two names
                // instead of none.
                sync_names(inner, request, new_parent)?;
                if new_parent == parent { Ok(()) } else { sync_names(inner, request, parent) }
            }
            (Call::Open { ino, mode }, Answer::Opened(opened))
                if mode.contains(OpenMode::TRUNCATE) =>
            {
                sync_inode(ino, Some(opened.handle))
            }
            (Call::Create { parent, flags, .. }, Answer::Created(entry, opened)) => {
                if flags.contains(OpenMode::TRUNCATE) {
                    sync_inode(entry.attr.ino, Some(opened.handle))?;
                }
                sync_names(inner, request, parent)
            }
            (Call::Setattr { ino, handle, .. }, _) => sync_inode(ino, handle),
            (
                Call::Setxattr { ino, .. }
                | Call::Removexattr { ino, .. }
                | Call::FileattrSet { ino, .. },
                _,
            ) => sync_inode(ino, None),
            (Call::Fallocate { ino, handle, .. }, _) => sync_inode(ino, Some(handle)),
            (Call::CopyFileRange { target, .. }, _) => sync_inode(target.0, Some(target.1)),
            _ => Ok(()),
        }
    }

    /// Makes the attributes of an inode durable.
    fn sync_inode(
        self,
        inner: &dyn FileSystem,
        request: &Request,
        ino: Ino,
        handle: Option<Handle>,
    ) -> Result<()> {
        if self == Self::Names {
            return Ok(());
        }
        if let Some(handle) = handle {
            return inner.fsync(request, ino, handle, false);
        }
        match inner.getattr(request, ino, None)?.kind {
            FileKind::Directory => sync_names(inner, request, ino),
            FileKind::Regular => {
                let opened = inner.open(request, ino, OpenMode::NO_ACCESS_TIME)?;
                let synced = inner.fsync(request, ino, opened.handle, false);
                inner.release(request, ino, opened.handle)?;
                synced
            }
            // Files of other kinds can't be opened, so they can't be synced separately.
            _ => inner.syncfs(request, ino),
        }
    }
}

/// Makes the names in a directory durable.
fn sync_names(inner: &dyn FileSystem, request: &Request, directory: Ino) -> Result<()> {
    let handle = inner.opendir(request, directory)?;
    let synced = inner.fsyncdir(request, directory, handle, false);
    inner.releasedir(request, directory, handle)?;
    synced
}

/// Makes a new inode's name and attributes durable.
fn sync_entry(inner: &dyn FileSystem, request: &Request, parent: Ino, entry: &Entry) -> Result<()> {
    if entry.attr.kind == FileKind::Directory {
        sync_names(inner, request, entry.attr.ino)?;
    }
    sync_names(inner, request, parent)
}
