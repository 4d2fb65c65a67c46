//! Opening and closing: how many programs have a file open, and how many may write.

use std::sync::Arc;

use fslab_vfs::{Attr, FileSystem, Handle, OpenMode, Opened, Request, Result, SetAttr};

use crate::engine::Tier;
use crate::engine::files::edits_below::is_same;
use crate::engine::files::residency_xattr::Durable;
use crate::engine::files::{FileState, TieredFile};
use crate::stored::Residency;

/// A time this long ago is not that of a change that comes now, whatever the clock of the file
/// system below counts in.
const SETTLED_SECONDS: i64 = 2;

impl Tier {
    /// Opens the file below and counts that. A file whose bytes are partly offline is read and
    /// written through the daemon alone, past the kernel's cache: nobody would interrupt a request
    /// for pages that the kernel reads ahead.
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
            // The file is empty, and its xattr names blocks behind its end: those do not count.
            let name = self.name(file.ino());
            tracing::warn!(%error, "{name}: what is known of it could not be kept");
        }
        if !state.is_resident() {
            opened.backing = None;
            opened.direct = state.has_offline();
            // Before Linux 6.6 what is written directly leaves pages of an earlier opening as they
            // were.
            opened.keep_cache &= !opened.direct;
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
        if let Err(error) = self.unmark_untouched(&mut state) {
            let name = self.name(file.ino());
            tracing::warn!(%error, "{name}: not changed, and will be archived again all the same");
        }
    }

    /// Whether the file is as it was archived, and whoever writes to it from now on gives it
    /// another time, though it may be the kernel that writes and nobody else hears of it.
    fn would_show_a_write(&self, state: &FileState) -> bool {
        let Some(known) = state.known() else { return false };
        let (now, modified) = (self.around.calendar.now(), known.recorded.version.modified);
        let is_old = now.seconds.saturating_sub(modified.seconds) >= SETTLED_SECONDS;
        is_old && (!known.recorded.changed || state.untouched == Some(state.changes))
    }

    /// The last who might have written is gone, and nobody did: archives hold the file as before.
    fn unmark_untouched(&self, state: &mut FileState) -> Result<()> {
        let untouched = state.untouched == Some(state.changes) && state.writers == 0;
        let recorded = state.recorded().filter(|recorded| untouched && recorded.changed);
        let Some(recorded) = recorded else { return Ok(()) };
        if !is_same(recorded, &self.attr_below(state.ino, None)?) {
            return Ok(());
        }
        self.change_mark(state, Durable::Later, |residency| residency.changed = false)
    }

    /// Whether a file was never archived: the engine has nothing to do with it.
    pub(crate) fn is_plain(&self, file: &TieredFile) -> Result<bool> {
        Ok(self.state(file)?.known().is_none())
    }

    /// Asks, or changes what is none of the contents, while no block of a file is being put in its
    /// place: that takes rights and times away and gives them back.
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
            let set = || self.lower.setattr(request, file.ino(), handle, changes);
            return self.at_rest(file, set);
        }
        // Before the time changes: what is known of the file is checked against it.
        let mut state = self.state(file)?;
        // A time that was set by hand shows nothing any more.
        state.untouched = None;
        self.mark_edited_below(&mut state)?;
        let attr = self.lower.setattr(request, file.ino(), handle, changes)?;
        if state.recorded().is_some_and(|recorded| !recorded.changed) {
            let follow = |residency: &mut Residency| residency.version.modified = attr.modified;
            self.change_mark(&mut state, Durable::Later, follow)?;
        }
        Ok(attr)
    }

    /// Says of a file that it was changed below the mount since it was looked at, where its time
    /// tells that and is about to be another.
    fn mark_edited_below(&self, state: &mut FileState) -> Result<()> {
        let Some(recorded) = state.recorded() else { return Ok(()) };
        if is_same(recorded, &self.attr_below(state.ino, None)?) {
            return Ok(());
        }
        self.mark_changed(state)
    }
}
