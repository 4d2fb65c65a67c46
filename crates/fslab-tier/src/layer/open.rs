//! Opening and closing files.
//!
//! A program that opens a file for writing may change it unnoticed, because the kernel may write to
//! the lower file itself. So opening an archived file for writing marks it as changed.

use fslab_vfs::{Entry, FileSystem, Ino, Name, OpenMode, Opened, Request, Result};

use super::{OpenFile, TierFs};
use crate::engine::{FileUse, ReadAhead};

impl TierFs {
    pub(super) fn entered(&self, used: FileUse, opened: Opened, mode: OpenMode) -> Opened {
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

    /// Opens a file that already has this name. It may be partly offline.
    pub(super) fn open_existing(
        &self,
        request: &Request,
        parent: Ino,
        name: Name<'_>,
        flags: OpenMode,
    ) -> Result<(Entry, Opened)> {
        let mut entry = self.lower.lookup(request, parent, name)?;
        let ino = entry.attr.ino;
        let opened = self.open(request, ino, flags);
        let opened = opened.inspect_err(|_| self.lower.forget(ino, 1))?;
        match self.getattr(request, ino, Some(opened.handle)) {
            Ok(attr) => entry.attr = attr,
            Err(error) => {
                // The caller does not get the handle, so the handle is closed here.
                if let Err(error) = self.release(request, ino, opened.handle) {
                    tracing::warn!(%error, ino = ino.0, "can't close a file whose opening failed");
                }
                self.lower.forget(ino, 1);
                return Err(error);
            }
        }
        Ok((entry, opened))
    }
}
