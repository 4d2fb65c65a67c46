//! Openings by programs, as the engine counts them.

use std::sync::Arc;

use fslab_vfs::{Attr, FileSystem, Handle, OpenMode, Opened, Request, Result, SetAttr};

use super::Tier;
use super::file::TieredFile;
use super::marks::Durable;
use crate::stored::{Residency, Version};

impl Tier {
    /// Opens the file below and counts that. A file whose bytes are partly elsewhere is read and
    /// written through the daemon alone, past the kernel's cache: nobody would interrupt a request
    /// for pages that the kernel reads ahead.
    pub(crate) fn open_below(
        &self,
        file: &TieredFile,
        mode: OpenMode,
        open: impl FnOnce(&Arc<dyn FileSystem>) -> Result<Opened>,
    ) -> Result<Opened> {
        let mut state = self.state(file)?;
        let writes = mode.writes() || mode.contains(OpenMode::TRUNCATE);
        if writes {
            self.mark_changed(file, &mut state)?;
        }
        let mut opened = open(&self.lower)?;
        state.handles += 1;
        state.writers += usize::from(mode.writes());
        if mode.contains(OpenMode::TRUNCATE)
            && let Err(error) = self.emptied(file, &mut state)
        {
            // The file is empty, and its xattr names blocks behind its end: those do not count.
            let name = self.name(file.ino());
            tracing::warn!(%error, "{name}: what is known of it could not be kept");
        }
        if !state.is_resident() {
            opened.backing = None;
            opened.direct = state.has_offline();
        }
        Ok(opened)
    }

    /// Counts the opening of a file that was just made.
    pub(crate) fn opened_new(&self, file: &TieredFile, mode: OpenMode) {
        let mut state = file.lock();
        state.handles += 1;
        state.writers += usize::from(mode.writes());
        state.changes += 1;
    }

    /// An opening is no more.
    pub(crate) fn closed(&self, file: &TieredFile, mode: OpenMode) {
        let mut state = file.lock();
        state.handles = state.handles.saturating_sub(1);
        state.writers = state.writers.saturating_sub(usize::from(mode.writes()));
    }

    /// Whether a file was never archived: the engine has nothing to do with it.
    pub(crate) fn is_plain(&self, file: &TieredFile) -> Result<bool> {
        Ok(self.state(file)?.known().is_none())
    }

    /// Asks while no block of a file is being put in its place.
    pub(crate) fn at_rest<T>(
        &self,
        file: &TieredFile,
        ask: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let _state = file.lock();
        ask()
    }

    /// Changes attributes that are none of the contents. A time that is set by hand is the
    /// archived version's too: nothing else has changed.
    pub(crate) fn set_attributes(
        &self,
        file: &TieredFile,
        request: &Request,
        handle: Option<Handle>,
        changes: &SetAttr,
    ) -> Result<Attr> {
        if changes.modified.is_none() {
            return self.lower.setattr(request, file.ino(), handle, changes);
        }
        // Before the time changes: what is known of the file is checked against it.
        let mut state = self.state(file)?;
        let attr = self.lower.setattr(request, file.ino(), handle, changes)?;
        self.follow_time(file, &mut state, &attr)?;
        Ok(attr)
    }

    fn follow_time(
        &self,
        file: &TieredFile,
        state: &mut super::file::FileState,
        attr: &Attr,
    ) -> Result<()> {
        let recorded = state.known().map(|known| &known.recorded);
        let Some(recorded) = recorded.filter(|recorded| !recorded.changed) else {
            return Ok(());
        };
        let version = Version { modified: attr.modified, ..recorded.version.clone() };
        let residency = Residency { version, ..recorded.clone() };
        self.write_mark(file, state, residency, Durable::Later)
    }
}
