//! How answers are put together: what several operations of the adapter share.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use fslab_vfs::{
    DirectoryEntry, Entry, Error, FileKind, Handle, Ino, Name, Opened, Request, Result,
};
use fuser::{
    BackingId, FileHandle, FopenFlags, Generation, INodeNo, ReplyCreate, ReplyDirectoryPlus,
    ReplyEmpty, ReplyEntry, ReplyOpen, ReplyXattr,
};

use crate::adapter::Adapter;
use crate::convert::{bare_file_attr, to_file_attr, to_request};
use crate::guard::run;
use crate::negotiate::Granted;

impl Adapter {
    pub(super) fn has(&self, feature: impl FnOnce(&Granted) -> bool) -> bool {
        self.granted.get().is_some_and(feature)
    }

    pub(super) fn request(&self, request: &fuser::Request, umask: u32) -> Request {
        self.activity.0.store(true, Ordering::Relaxed);
        to_request(request, umask)
    }

    /// Runs an operation that answers with an entry.
    pub(super) fn entry(
        &self,
        operation: &'static str,
        request: &fuser::Request,
        umask: u32,
        reply: ReplyEntry,
        body: impl FnOnce(&Request) -> Result<Entry>,
    ) {
        let caller = self.request(request, umask);
        match run(operation, request.unique().0, || body(&caller)) {
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
    pub(super) fn empty(
        &self,
        operation: &'static str,
        request: &fuser::Request,
        reply: ReplyEmpty,
        body: impl FnOnce(&Request) -> Result<()>,
    ) {
        let caller = self.request(request, 0);
        match run(operation, request.unique().0, || body(&caller)) {
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

    pub(super) fn reply_opened(&self, ino: Ino, opened: &Opened, reply: ReplyOpen) {
        let handle = FileHandle(opened.handle.0);
        match self.backing(ino, opened, |lower| reply.open_backing(lower)) {
            Some(backing) => reply.opened_passthrough(handle, passthrough_flags(opened), &backing),
            None => reply.opened(handle, daemon_flags(opened)),
        }
    }

    pub(super) fn reply_created(&self, entry: &Entry, opened: &Opened, reply: ReplyCreate) {
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
    pub(super) fn list_plus(
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

/// Answers a value, or its size where only that was asked.
pub(super) fn reply_xattr(
    value: std::result::Result<Vec<u8>, fuser::Errno>,
    size: u32,
    reply: ReplyXattr,
) {
    match value {
        Err(errno) => reply.error(errno),
        Ok(value) if size == 0 => reply.size(u32::try_from(value.len()).unwrap_or(u32::MAX)),
        Ok(value) if value.len() > size as usize => reply.error(fuser::Errno::ERANGE),
        Ok(value) => reply.data(&value),
    }
}
