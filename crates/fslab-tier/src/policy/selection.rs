//! Selects the files of a tree that a policy archives or releases, without changing anything.

use std::collections::HashMap;
use std::sync::Arc;

use fslab_vfs::{FileKind, Ino};

use super::candidates::Candidate;
use super::file_facts::{PAGE_BYTES, facts, last_use};
use super::{Action, Policy};
use crate::engine::{Tier, WalkEntry};
use crate::error::{Error, Result, shown};
use crate::event::{FileSummary, Residence};
use crate::lower::SECTOR_BYTES;

/// A file that is to be archived or may be released.
pub(super) struct Chosen {
    pub(super) action: Action,
    pub(super) state: FileSummary,
    pub(super) candidate: Candidate,
}

impl Chosen {
    pub(super) fn needs_archiving(&self) -> bool {
        self.state.state == Residence::Resident || self.state.changed
    }

    pub(super) fn may_go(&self) -> bool {
        self.action == Action::Release && self.state.resident_bytes > 0
    }
}

/// The files that a walk has found.
#[derive(Default)]
pub(super) struct Met {
    /// Files with several names, with the greatest action for the names so far.
    linked: HashMap<Ino, Action>,
    pub(super) files: u64,
}

impl Met {
    /// Decides what to do with an entry. Returns `None` if it is not a regular file, or needs no
    /// action in addition to the action for its other names.
    ///
    /// # Errors
    /// If the facts about the file can't be read, its residency is damaged, or another user owns
    /// it.
    pub(super) fn choose(
        &mut self,
        tier: &Arc<Tier>,
        policy: &Policy,
        place: &WalkEntry<'_>,
    ) -> Result<Option<Chosen>> {
        if place.found.attr.kind != FileKind::Regular {
            return Ok(None);
        }
        let action = policy.decide(&facts(tier, policy, place)?);
        let before = self.note(place, action);
        self.files += u64::from(before.is_none());
        if action == Action::Keep || before.is_some_and(|before| before >= action) {
            return Ok(None);
        }
        if !tier.surroundings().marks.are_believed(&place.found.attr) {
            return Err(Error::Foreign { path: shown(place.path) });
        }
        let state = tier.file_summary(&place.found.attr, place.path)?;
        if state.state == Residence::Damaged {
            let why = "its residency xattr is damaged or was copied from another file; run \
                `fslab tier scan` for details";
            return Err(Error::NotNow { path: shown(place.path), why });
        }
        let candidate = candidate(place, &state);
        Ok(Some(Chosen { action, state, candidate }))
    }

    /// Records an action for a file; returns the action for its other names so far.
    fn note(&mut self, place: &WalkEntry<'_>, action: Action) -> Option<Action> {
        if place.found.attr.links < 2 {
            return None;
        }
        let before = self.linked.get(&place.found.ino()).copied();
        self.linked.insert(place.found.ino(), before.map_or(action, |before| before.max(action)));
        before
    }
}

fn candidate(place: &WalkEntry<'_>, state: &FileSummary) -> Candidate {
    let attr = &place.found.attr;
    let here = state.resident_bytes.next_multiple_of(PAGE_BYTES);
    let space = here.min(attr.blocks * SECTOR_BYTES);
    Candidate { used: last_use(attr), ino: attr.ino, path: place.path.to_vec(), space }
}
