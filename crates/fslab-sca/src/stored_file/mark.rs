//! The mark of a file in use: its size xattr. It records the kind of the file and, for a stored
//! file that was closed, the size.

use fslab_vfs::{Request, Result};

use super::{Kind, State, StoredFile};
use crate::context::{Io, Settings};
use crate::log::Log;
use crate::size_xattr::{self, Clean, Mark};

/// State of the size xattr.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum MarkState {
    /// The xattr is missing or marks the file as dirty.
    Void,
    /// The xattr contains a size.
    Given,
    /// The xattr marks the file as foreign.
    Foreign,
}

impl From<Option<&Mark>> for MarkState {
    fn from(found: Option<&Mark>) -> Self {
        match found {
            Some(Mark::Clean(_)) => Self::Given,
            Some(Mark::Foreign) => Self::Foreign,
            Some(Mark::Dirty) | None => Self::Void,
        }
    }
}

impl StoredFile {
    /// Invalidates the size xattr now if the file is open for writing. Later this may be
    /// impossible, because the user who opened the file may lose the right to set xattrs.
    pub fn expect_other_rights(&self, request: &Request) -> Result<()> {
        // The file may have been emptied and still have its foreign mark.
        if self.state.read().is_writable {
            self.void_foreign_mark(request)?;
        }
        let mut state = self.state.write();
        if state.is_closed || !state.is_writable {
            return Ok(());
        }
        match &state.kind {
            Kind::Foreign => state.mark_foreign(request),
            _ => state.void_mark(request),
        }
    }

    /// Durably replaces the foreign mark of an emptied file, because a foreign mark is trusted at
    /// any length.
    pub(super) fn void_foreign_mark(&self, request: &Request) -> Result<()> {
        let is_foreign =
            |state: &State| matches!(state.kind, Kind::Empty) && state.mark == MarkState::Foreign;
        let lower = {
            let state = self.state.read();
            if !is_foreign(&state) {
                return Ok(());
            }
            size_xattr::write(&*self.fs, request, state.lower.ino, &Mark::Dirty)?;
            state.lower.clone()
        };
        // The file is synced without the lock, because the disk may be slow.
        lower.sync(request, false)?;
        let mut state = self.state.write();
        if is_foreign(&state) {
            state.mark = MarkState::Void;
        }
        Ok(())
    }
}

impl State {
    /// Whether a stored file in use was changed since its size xattr was written.
    pub(super) fn was_changed(&self) -> bool {
        let Kind::Stored(log) = &self.kind else { return false };
        let is_marked = self.mark != MarkState::Void;
        !self.is_closed && self.is_writable && !is_marked && log.journal.has_head()
    }

    /// Stores the size of a stored file in its xattr, if the file is whole.
    pub(super) fn keep_size(&mut self, request: &Request, settings: &Settings) {
        let Kind::Stored(log) = &self.kind else { return };
        if self.is_closed || !settings.size_xattr || self.is_believed || !log.is_whole() {
            return;
        }
        let mark = clean_mark(Io::new(&self.lower, request, settings), log);
        match size_xattr::write(&*self.lower.fs, request, self.lower.ino, &mark) {
            Ok(()) => (self.mark, self.is_believed) = (MarkState::Given, true),
            // The old value was invalidated before, so the next open determines the size from the
            // frames.
            Err(error) => tracing::debug!(%error, "can't store a size in an xattr"),
        }
    }

    /// Invalidates the size xattr, if it contains a size. If that fails, the file must not be
    /// changed.
    ///
    /// A size is trusted only for a stored file of the length that the xattr records. So appended
    /// data invalidates the xattr even if a crash restores its old value. A foreign mark is trusted
    /// at any length (see [`StoredFile::void_foreign_mark`]).
    pub(super) fn void_mark(&mut self, request: &Request) -> Result<()> {
        if self.mark == MarkState::Given {
            size_xattr::write(&*self.lower.fs, request, self.lower.ino, &Mark::Dirty)?;
            self.mark = MarkState::Void;
        }
        self.is_believed = false;
        Ok(())
    }

    /// Marks a foreign file at its first change through the mount. It then remains foreign,
    /// whatever it contains.
    pub(super) fn mark_foreign(&mut self, request: &Request) -> Result<()> {
        if self.mark != MarkState::Foreign {
            match size_xattr::write(&*self.lower.fs, request, self.lower.ino, &Mark::Foreign) {
                // The lower file system has no xattrs, so only the content shows the kind of the
                // file.
                Err(error) if crate::lower::is_absence(error.errno()) => {}
                answer => answer?,
            }
        }
        self.mark = MarkState::Foreign;
        Ok(())
    }
}

fn clean_mark(io: Io<'_>, log: &Log) -> Mark {
    Mark::Clean(Clean {
        file_size: log.size(),
        // A whole file ends with its last frame, optionally followed by a seek table.
        stored_length: log.end() + log.journal.closing_bytes(),
        sequence: log.journal.sequence(),
        durable: !log.is_unsynced() && log.journal.closing_bytes() == 0,
        session: io.settings.session.number,
        checkpoint: log.commits.checkpoint(),
    })
}
