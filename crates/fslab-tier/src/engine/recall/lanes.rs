//! The number of threads that serve each archive. One thread is reserved for each archive, so that
//! an unresponsive archive delays only its own files.

use std::collections::{BTreeMap, BTreeSet};

use crate::id::Id;

/// Numbers of threads that serve recalls from each archive.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    /// Total number of threads.
    threads: usize,
    /// Archives with a reserved thread.
    reserved: BTreeSet<Id>,
    /// Archives that are being served, with the number of their threads.
    busy: BTreeMap<Id, usize>,
}

impl Lanes {
    pub(super) fn set_threads(&mut self, threads: usize) {
        self.threads = threads;
    }

    pub(super) fn reserve(&mut self, archive: Id) {
        self.reserved.insert(archive);
    }

    /// Ends the reservation for a detached archive.
    pub(super) fn release(&mut self, archive: Id) {
        self.reserved.remove(&archive);
    }

    /// Returns whether a free thread may serve an archive. An archive gets a second thread only if
    /// one free thread remains for each other archive that no thread serves.
    pub(super) fn may_enter(&self, archive: Id) -> bool {
        let is_idle = |other: &&Id| **other != archive && !self.busy.contains_key(*other);
        let reserved = self.reserved.iter().filter(is_idle).count();
        let free = self.threads.saturating_sub(self.busy.values().sum());
        self.reserved.is_empty() || !self.busy.contains_key(&archive) || free > reserved
    }

    /// Records that a thread begins to serve an archive.
    pub(super) fn enter(&mut self, archive: Id) {
        *self.busy.entry(archive).or_default() += 1;
    }

    /// Records that a thread has stopped serving an archive.
    pub(super) fn leave(&mut self, archive: Id) {
        let Some(busy) = self.busy.get_mut(&archive) else { return };
        *busy -= 1;
        if *busy == 0 {
            self.busy.remove(&archive);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_archive_has_a_thread_reserved() {
        let [slow, fast, other] = [1, 2, 3].map(|number| Id([number; 16]));
        let mut lanes = Lanes { threads: 4, ..Lanes::default() };
        [slow, fast, other].into_iter().for_each(|archive| lanes.reserve(archive));
        lanes.enter(slow);
        assert!(lanes.may_enter(slow));
        lanes.enter(slow);
        assert!(!lanes.may_enter(slow) && lanes.may_enter(fast) && lanes.may_enter(other));
        lanes.enter(fast);
        assert!(!lanes.may_enter(slow) && !lanes.may_enter(fast) && lanes.may_enter(other));
        lanes.leave(slow);
        assert!(lanes.may_enter(slow) && lanes.may_enter(fast));
        lanes.enter(slow);
        assert!(!lanes.may_enter(slow));
        lanes.release(other);
        assert!(lanes.may_enter(slow));
    }

    #[test]
    fn single_archive_may_use_all_threads() {
        let mut lanes = Lanes { threads: 2, ..Lanes::default() };
        lanes.reserve(Id([1; 16]));
        lanes.enter(Id([1; 16]));
        assert!(lanes.may_enter(Id([1; 16])));
    }
}
