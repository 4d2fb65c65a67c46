//! Opening and closing files.
//!
//! A program that opens a file for writing may change it unnoticed, where the kernel writes to the
//! lower file itself. So opening an archived file for writing marks it as changed.

use fslab_vfs::{Entry, Errno, FileSystem, Handle, Ino, Name, OpenMode, Opened, Request, Result};

use super::{OpenFile, TierFs};
use crate::engine::{FileUse, ReadAhead};

/// How often a creation is tried while others make and remove its name.
const CREATE_ATTEMPTS_MAX: u32 = 1000;

impl TierFs {
    pub(super) fn open_file(&self, request: &Request, ino: Ino, mode: OpenMode) -> Result<Opened> {
        let used = self.tier.enter(ino);
        let opened =
            self.tier.open_below(&used.file, mode, |lower| lower.open(request, ino, mode))?;
        Ok(self.entered(used, opened, mode))
    }

    fn entered(&self, used: FileUse, opened: Opened, mode: OpenMode) -> Opened {
        let open = OpenFile { handle: opened.handle, mode, used, reading: ReadAhead::default() };
        Opened { handle: self.handles.insert(open), ..opened }
    }

    pub(super) fn enter_created(
        &self,
        (entry, opened): (Entry, Opened),
        mode: OpenMode,
    ) -> (Entry, Opened) {
        let used = self.tier.enter(entry.attr.ino);
        self.tier.opened_new(&used.file, mode);
        let opened = self.entered(used, opened, mode);
        (entry, opened)
    }

    /// A file that has the name already may be partly offline: it is opened like any other.
    pub(super) fn create_file(
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
                // Somebody has removed the name since.
                Err(error) if matches!(error.errno(), Errno::NOENT | Errno::STALE) => {}
                opened => return opened,
            }
        }
        Err(Errno::NOENT.into())
    }

    fn open_existing(
        &self,
        request: &Request,
        parent: Ino,
        name: Name<'_>,
        flags: OpenMode,
    ) -> Result<(Entry, Opened)> {
        let mut entry = self.lower.lookup(request, parent, name)?;
        let ino = entry.attr.ino;
        let opened = self.open_file(request, ino, flags);
        let opened = opened.inspect_err(|_| self.lower.forget(ino, 1))?;
        match self.getattr(request, ino, Some(opened.handle)) {
            Ok(attr) => entry.attr = attr,
            Err(error) => {
                // Nobody hears of the handle.
                if let Err(error) = self.close_file(request, ino, opened.handle) {
                    tracing::warn!(%error, ino = ino.0, "closing a file that was not opened");
                }
                self.lower.forget(ino, 1);
                return Err(error);
            }
        }
        Ok((entry, opened))
    }

    pub(super) fn close_file(&self, request: &Request, ino: Ino, handle: Handle) -> Result<()> {
        let open = self.handles.remove(handle)?;
        let closed = self.lower.release(request, ino, open.handle);
        self.tier.closed(&open.used.file, open.mode);
        closed
    }
}
