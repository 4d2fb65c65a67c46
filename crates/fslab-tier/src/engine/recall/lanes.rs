//! The number of threads that work for each archive. Each archive has a thread reserved, so that an
//! archive that hangs delays its own files only.

use std::collections::{BTreeMap, BTreeSet};

use crate::id::Id;

/// How many threads serve recalls from each archive.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    /// All threads there are.
    threads: usize,
    /// Archives for which one is reserved.
    reserved: BTreeSet<Id>,
    /// Those that some serve.
    busy: BTreeMap<Id, usize>,
}

impl Lanes {
    /// Reserves a thread for an archive, of so many that there are for all.
    pub(super) fn reserve(&mut self, archive: Id, threads: usize) {
        self.reserved.insert(archive);
        self.threads = threads;
    }

    /// Whether a free thread may serve an archive: others are left for those that have none.
    pub(super) fn may_enter(&self, archive: Id) -> bool {
        let is_idle = |other: &&Id| **other != archive && !self.busy.contains_key(*other);
        let reserved = self.reserved.iter().filter(is_idle).count();
        let free = self.threads.saturating_sub(self.busy.values().sum());
        self.reserved.is_empty() || !self.busy.contains_key(&archive) || free > reserved
    }

    /// A thread begins to serve an archive.
    pub(super) fn enter(&mut self, archive: Id) {
        *self.busy.entry(archive).or_default() += 1;
    }

    /// It has ended.
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
        let mut lanes = Lanes::default();
        [slow, fast, other].into_iter().for_each(|archive| lanes.reserve(archive, 4));
        lanes.enter(slow);
        assert!(lanes.may_enter(slow));
        lanes.enter(slow);
        assert!(!lanes.may_enter(slow) && lanes.may_enter(fast) && lanes.may_enter(other));
        lanes.enter(fast);
        assert!(!lanes.may_enter(slow) && !lanes.may_enter(fast) && lanes.may_enter(other));
        lanes.leave(slow);
        assert!(lanes.may_enter(slow) && lanes.may_enter(fast));
    }

    #[test]
    fn only_archive_has_all_threads() {
        let mut lanes = Lanes::default();
        lanes.reserve(Id([1; 16]), 2);
        lanes.enter(Id([1; 16]));
        assert!(lanes.may_enter(Id([1; 16])));
    }
}
