//! The residency xattr of a file, and the order in which it may be written.
//!
//! 1. A block is durable below before the xattr records it as resident: otherwise a crash could
//!    leave zeros in a block that is recorded as resident.
//! 2. The xattr durably records that a file is changed before a byte changes: otherwise the next
//!    release could free bytes that no archive has.
//! 3. The xattr durably records a block as offline before its bytes are freed.
//!
//! So the xattr may still name blocks as offline that were recalled. They are recalled again.

use fslab_vfs::{Attr, Errno, Ino, Result};

use crate::engine::Tier;
use crate::engine::files::edits_below::is_same;
use crate::engine::files::{FileState, KnownResidency, TieredFile};
use crate::id::Id;
use crate::lower::{OwnFile, is_missing, with_leave};
use crate::runs::Runs;
use crate::stored::format::blocks_of;
use crate::stored::residency::{ReadResidency, Unreadable};
use crate::stored::{self, BLOCK_BYTES, Residency};

/// Runs that a residency holds at most: so many always fit into the xattr.
pub const PIECES_MAX: usize = 140;

/// Whether the xattr itself must be durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durable {
    /// It may be lost with the power, and what it said before is as good.
    Later,
    /// It is durable before anything else happens.
    Now,
}

impl Tier {
    /// Writes down where the bytes of a file are, after they are durable there. That what was cut
    /// off is named no more is durable in any case: whoever lets the file grow next does not know
    /// that it was there.
    pub(in crate::engine) fn record(&self, state: &mut FileState, durable: Durable) -> Result<()> {
        self.sync_below(state)?;
        let size = self.attr_below(state.ino, None)?.size;
        let Some(known) = state.known_mut() else { return Ok(()) };
        let durable = if names_too_much(known, size) { Durable::Now } else { durable };
        let offline = if known.recorded.changed {
            known.offline.clone()
        } else {
            // What was not changed may be recalled once more.
            known.offline.joined(PIECES_MAX)
        };
        known.offline = offline.clone();
        let touched_seconds = self.now_seconds();
        let recorded = known.recorded.clone();
        let residency = Residency { offline, moving: false, touched_seconds, ..recorded };
        self.write_mark(state, residency, durable)
    }

    /// When something is touched now, as residencies say it.
    pub(in crate::engine) fn now_seconds(&self) -> u32 {
        let seconds = self.around.calendar.now().seconds;
        seconds.clamp(0, u32::MAX.into()) as u32
    }

    /// Writes a residency, and remembers that there is something to be synced at the end.
    pub(in crate::engine) fn write_residency(&self, ino: Ino, residency: &Residency) -> Result<()> {
        self.lifecycle.note_change();
        self.around.marks.write(&*self.lower, &self.request(), ino, residency)
    }

    /// What the xattr of a file says, whatever is known of the file here. Nobody may have its state
    /// locked who asks.
    pub(in crate::engine) fn residency_below(&self, ino: Ino) -> ReadResidency {
        match self.around.marks.read(&*self.lower, ino) {
            Err(Unreadable::Below(error)) if error.errno() == Errno::ACCESS => {
                let tier = self.me.upgrade().ok_or(error)?;
                let used = tier.enter(ino);
                let _state = used.file.lock();
                self.residency_at_rest(ino)
            }
            known => known,
        }
    }

    /// The same for who has the state of the file locked.
    pub(in crate::engine) fn residency_at_rest(&self, ino: Ino) -> ReadResidency {
        self.around.marks.read_at_rest(&*self.lower, ino)
    }

    /// An xattr that users set, for the policy: its owner's tier gives itself leave to read it, and
    /// what others have set on their own files is nothing to it. Nobody may have the file's state
    /// locked who asks.
    ///
    /// # Errors
    /// Errors of the file system below, where it can't tell whether there is one.
    pub(crate) fn users_xattr(&self, attr: &Attr, name: &str) -> Result<Option<Vec<u8>>> {
        let marks = self.around.marks;
        let get = || stored::marks::get(&*self.lower, attr.ino, name);
        match get() {
            Err(error) if !marks.wants_leave(&error) => Err(error),
            Err(_) if !marks.are_believed(attr) => Ok(None),
            Err(error) => {
                let tier = self.me.upgrade().ok_or(error)?;
                let used = tier.enter(attr.ino);
                let _state = used.file.lock();
                let (value, restored) = with_leave(&*self.lower, &self.request(), attr.ino, get)?;
                restored.map(|()| value)
            }
            value => value,
        }
    }

    /// Whether a file names an object, or may: then it must stay. Its inode is remembered by who
    /// asks, whatever names it has by now.
    pub(in crate::engine) fn may_name(&self, ino: Ino, object: Id) -> bool {
        match self.residency_below(ino) {
            Ok(known) => known.is_some_and(|known| known.version.object == object),
            Err(Unreadable::Below(error)) => !is_missing(&error),
            Err(Unreadable::Corrupt(_)) => true,
        }
    }

    /// Writes a residency as it is.
    pub(in crate::engine) fn write_mark(
        &self,
        state: &mut FileState,
        residency: Residency,
        durable: Durable,
    ) -> Result<()> {
        self.write_residency(state.ino, &residency)?;
        state.known_mut().iter_mut().for_each(|known| known.unsynced = true);
        if durable == Durable::Now {
            // What is not durable was not said.
            self.sync_below(state)?;
        }
        if let Some(known) = state.known_mut() {
            known.recorded = residency;
            known.unsynced = durable == Durable::Later;
        }
        Ok(())
    }

    /// Changes the residency that is recorded, if there is one.
    pub(in crate::engine) fn change_mark(
        &self,
        state: &mut FileState,
        durable: Durable,
        change: impl FnOnce(&mut Residency),
    ) -> Result<()> {
        let Some(mut residency) = state.recorded().cloned() else { return Ok(()) };
        change(&mut residency);
        self.write_mark(state, residency, durable)
    }

    /// Records durably that a file is about to be changed, if that was not said.
    pub(in crate::engine) fn mark_changed(&self, state: &mut FileState) -> Result<()> {
        state.changes += 1;
        if state.recorded().is_none_or(|recorded| recorded.changed) {
            return Ok(());
        }
        self.change_mark(state, Durable::Now, |residency| {
            (residency.changed, residency.moving) = (true, false);
            residency.touched_seconds = self.now_seconds();
        })
    }

    /// Leaves a file in order: the xattr says what is known.
    pub(in crate::engine) fn settle(&self, file: &TieredFile) -> Result<()> {
        let mut state = file.lock();
        if state.known().is_none_or(KnownResidency::is_in_order) {
            return Ok(());
        }
        let size = self.attr_below(file.ino(), None)?.size;
        if let Some(known) = state.known_mut() {
            forget_surplus(known, size);
        }
        self.record(&mut state, Durable::Later)
    }

    /// Puts right what a crash left of times, and finds what was changed below the mount.
    ///
    /// Where blocks were on their way, another time may be that of a block which was being put in
    /// its place, or of a change below the mount since. The file counts as changed, and has its
    /// time back only once that is said for good: nothing else tells of a change.
    pub(super) fn repair_times(
        &self,
        ino: Ino,
        attr: &Attr,
        known: &mut KnownResidency,
    ) -> Result<()> {
        let recorded = &known.recorded;
        let (modified, size) = (recorded.version.modified, recorded.version.size);
        let is_same = is_same(recorded, attr);
        if !recorded.moving && (recorded.changed || is_same) {
            return Ok(());
        }
        let own = self.open_own(ino, true)?;
        if !is_same && !recorded.changed {
            tracing::warn!("{}: changed behind the mount since it was archived", self.name(ino));
            let moving = recorded.moving && attr.size == size;
            self.repair(&own, known, Residency { changed: true, moving, ..recorded.clone() })?;
        }
        if known.recorded.moving {
            if attr.size == size {
                own.set_modified(modified)?;
            }
            self.repair(&own, known, Residency { moving: false, ..known.recorded.clone() })?;
        }
        Ok(())
    }

    pub(in crate::engine) fn repair(
        &self,
        own: &OwnFile,
        known: &mut KnownResidency,
        residency: Residency,
    ) -> Result<()> {
        self.write_residency(own.ino(), &residency)?;
        own.sync()?;
        known.recorded = residency;
        Ok(())
    }

    /// Before a file grows: what the xattr names behind its present end, or as its last block,
    /// would otherwise come back from the archive into what is new.
    pub(super) fn record_before_growth(&self, state: &mut FileState, size: u64) -> Result<()> {
        if state.known().is_some_and(|known| names_too_much(known, size)) {
            if let Some(known) = state.known_mut() {
                known.offline.cut(blocks_of(size));
            }
            self.record(state, Durable::Now)?;
        }
        Ok(())
    }
}

/// Whether the xattr names blocks behind the end of a file, or its last one though it is here.
fn names_too_much(known: &KnownResidency, size: u64) -> bool {
    behind(&known.recorded.offline, size) != behind(&known.offline, size)
}

/// Forgets what was recalled of a changed file where that leaves more runs than its xattr takes:
/// before the last block, what the xattr names and is here was recalled and not changed.
fn forget_surplus(known: &mut KnownResidency, size: u64) {
    if !known.recorded.changed || known.offline.pieces() <= PIECES_MAX {
        return;
    }
    let last = behind(&known.offline, size);
    known.offline = known.recorded.offline.clone();
    known.offline.cut(size / BLOCK_BYTES);
    last.iter().for_each(|run| known.offline.insert(run));
}

/// The last block of a file, if it is not a whole one, and all behind it.
fn behind(runs: &Runs, size: u64) -> Runs {
    let mut behind = runs.clone();
    behind.remove(0..size / BLOCK_BYTES);
    behind
}
