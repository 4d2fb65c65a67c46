//! Opening and closing of files. Counts the open handles of each file, and those that may write.

use std::sync::Arc;

use fslab_vfs::{Attr, FileSystem, Handle, OpenMode, Opened, Request, Result, SetAttr};

use crate::engine::Tier;
use crate::engine::files::edits_below::is_same;
use crate::engine::files::residency_xattr::Durable;
use crate::engine::files::{FileState, TieredFile};
use crate::stored::Residency;

/// If a file's modification time is at least this many seconds old, a write now sets a different
/// time. This is true for every timestamp resolution of lower file systems.
const SETTLED_SECONDS: i64 = 2;

impl Tier {
    /// Opens the lower file and counts the handle. A file with offline bytes bypasses the kernel's
    /// page cache, because requests for pages that the kernel reads ahead can't be interrupted.
    pub(crate) fn open_below(
        &self,
        file: &TieredFile,
        mode: OpenMode,
        open: impl FnOnce(&Arc<dyn FileSystem>) -> Result<Opened>,
    ) -> Result<Opened> {
        let mut state = self.state(file)?;
        let truncates = mode.contains(OpenMode::TRUNCATE);
        if mode.writes() || truncates {
            let may_stay = !truncates && self.would_show_a_write(&state);
            self.mark_changed(&mut state)?;
            state.untouched = may_stay.then_some(state.changes);
        }
        let mut opened = open(&self.lower)?;
        state.handles += 1;
        state.writers += usize::from(mode.writes());
        if truncates && let Err(error) = self.emptied(&mut state) {
            // The error is only logged: the xattr still records blocks past the end as offline, but
            // they are ignored.
            let name = self.name(file.ino());
            tracing::warn!(%error, "{name}: can't update its residency xattr");
        }
        if !state.is_resident() {
            opened.backing = None;
            opened.direct = state.has_offline();
            // Before Linux 6.6, direct writes do not update pages that an earlier handle left in
            // the cache.
            opened.keep_cache &= !opened.direct;
        }
        Ok(opened)
    }

    /// Counts the handle of a newly created file.
    pub(crate) fn opened_new(&self, file: &TieredFile, mode: OpenMode) {
        let mut state = file.lock();
        state.handles += 1;
        state.writers += usize::from(mode.writes());
        state.changes += 1;
    }

    /// Counts a closed handle, and clears the changed flag if possible.
    pub(crate) fn closed(&self, file: &TieredFile, mode: OpenMode) {
        let mut state = file.lock();
        state.handles = state.handles.saturating_sub(1);
        state.writers = state.writers.saturating_sub(usize::from(mode.writes()));
        if let Err(error) = self.unmark_untouched(&mut state) {
            let name = self.name(file.ino());
            tracing::warn!(%error, "{name}: can't be marked unchanged; it will be archived again");
        }
    }

    /// Returns whether the file is unchanged since it was archived, and every later write would
    /// change its modification time. The daemon does not see writes that the kernel makes directly
    /// to the lower file; only the modification time reveals them.
    fn would_show_a_write(&self, state: &FileState) -> bool {
        let Some(known) = state.known() else { return false };
        let (now, modified) = (self.around.calendar.now(), known.recorded.version.modified);
        let is_old = now.seconds.saturating_sub(modified.seconds) >= SETTLED_SECONDS;
        is_old && (!known.recorded.changed || state.untouched == Some(state.changes))
    }

    /// Clears the changed flag if no handle for writing remains and nothing was written. Archives
    /// then still contain the file's version.
    fn unmark_untouched(&self, state: &mut FileState) -> Result<()> {
        let untouched = state.untouched == Some(state.changes) && state.writers == 0;
        let recorded = state.recorded().filter(|recorded| untouched && recorded.changed);
        let Some(recorded) = recorded else { return Ok(()) };
        if !is_same(recorded, &self.attr_below(state.ino, None)?) {
            return Ok(());
        }
        self.change_mark(state, Durable::Later, |residency| residency.changed = false)
    }

    /// Returns whether a file was never archived, so that the engine need not handle it.
    pub(crate) fn is_plain(&self, file: &TieredFile) -> Result<bool> {
        Ok(self.state(file)?.known().is_none())
    }

    /// Queries a file, or changes its attributes or xattrs, while no recalled block is being
    /// written. Writing a recalled block temporarily changes the file's permissions and times.
    pub(crate) fn at_rest<T>(
        &self,
        file: &TieredFile,
        ask: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let _state = file.lock();
        ask()
    }

    /// Changes attributes of a file. If its bytes are unchanged since it was archived, an
    /// explicitly set modification time is also recorded for the archived version.
    pub(crate) fn set_attributes(
        &self,
        file: &TieredFile,
        request: &Request,
        handle: Option<Handle>,
        changes: &SetAttr,
    ) -> Result<Attr> {
        if changes.modified.is_none() {
            let set = || self.lower.setattr(request, file.ino(), handle, changes);
            return self.at_rest(file, set);
        }
        // Edits in the lower directory are recorded first, because only the old modification time
        // reveals them.
        let mut state = self.state(file)?;
        // A modification time that was set explicitly no longer reveals writes.
        state.untouched = None;
        self.mark_edited_below(&mut state)?;
        let before = self.attr_below(file.ino(), None)?.modified;
        let attr = self.lower.setattr(request, file.ino(), handle, changes)?;
        if state.recorded().is_some_and(|recorded| !recorded.changed) {
            let follow = |residency: &mut Residency| residency.version.modified = attr.modified;
            if let Err(error) = self.change_mark(&mut state, Durable::Later, follow) {
                // Otherwise the time would look like that of a change in the lower directory.
                self.open_own(file.ino(), false)?.set_modified(before)?;
                return Err(error);
            }
        }
        Ok(attr)
    }

    /// Marks a file as changed if its size or time shows that it was edited in the lower directory.
    /// Must run before the time is overwritten, because only the old time reveals an edit.
    fn mark_edited_below(&self, state: &mut FileState) -> Result<()> {
        let Some(recorded) = state.recorded() else { return Ok(()) };
        if is_same(recorded, &self.attr_below(state.ino, None)?) {
            return Ok(());
        }
        self.mark_changed(state)
    }
}
