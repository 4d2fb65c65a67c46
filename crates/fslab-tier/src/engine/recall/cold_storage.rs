//! Decides which copy in cold storage is staged, and when. Staging may cost money and take hours,
//! so a container is staged in one archive only, and not during a short failure of another archive
//! that has a readable copy.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use quick_cache::sync::Cache;

use crate::archive::Later;
use crate::id::Id;

/// How long an archive must have been unavailable before a copy in another one is staged.
const WAIT: Duration = Duration::from_secs(60);

/// Recalls for programs are tried again at shorter intervals. So if an archive was opened again,
/// and not seen as unavailable for this long, its next failure is a new one.
const UNSEEN: Duration = WAIT.saturating_mul(2);

/// Maximum number of containers whose archives are remembered.
const BEGUN_MAX: usize = 10_000;

/// The facts for decisions about copies in cold storage. They are lost when the tier is closed.
pub(in crate::engine) struct ColdStorage {
    /// Containers that were staged, each with the archive that stages it.
    begun: Cache<Id, Id>,
    failures: Mutex<HashMap<Id, Failure>>,
}

/// A failure of an archive that was seen while another archive had a copy in cold storage.
struct Failure {
    /// When the failure was first and last seen, in nanoseconds of the engine's clock.
    first_ns: u64,
    last_ns: u64,
    /// Whether the archive has been unavailable since the tier was opened.
    is_from_start: bool,
    /// Whether the archive was opened again meanwhile. Perhaps it became unavailable at once.
    was_opened: bool,
}

impl Failure {
    fn new(now_ns: u64) -> Self {
        Self { first_ns: now_ns, last_ns: now_ns, is_from_start: false, was_opened: false }
    }
}

/// The kind of caller that needs a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) enum Asker {
    /// A program that waits for the block.
    Program,
    /// A command that continues with other files. Its tier may have been opened for this command
    /// alone, so an archive that is unavailable from the start is not expected to return.
    Command,
}

/// Whether an archive stages a block that is in cold storage.
#[derive(Clone, Debug)]
pub(in crate::engine) enum Staging {
    /// An archive is staging the block.
    Begun(Later),
    /// No archive was asked to stage the block yet.
    NotYet,
}

/// Whether a copy in cold storage may be staged, which may cost money and take hours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) enum MayStage {
    /// No copy is staged.
    No,
    /// One copy is staged for this asker, unless another archive has just become unavailable.
    For(Asker),
}

impl Default for ColdStorage {
    fn default() -> Self {
        Self { begun: Cache::new(BEGUN_MAX), failures: Mutex::default() }
    }
}

impl ColdStorage {
    /// Records that an archive was unavailable when the tier was opened.
    pub(in crate::engine) fn note_absent(&self, archive: Id, now_ns: u64) {
        let failure = Failure { is_from_start: true, ..Failure::new(now_ns) };
        self.failures.lock().insert(archive, failure);
    }

    /// Records that an archive could be opened again.
    pub(in crate::engine) fn note_opened(&self, archive: Id) {
        if let Some(failure) = self.failures.lock().get_mut(&archive) {
            (failure.is_from_start, failure.was_opened) = (false, true);
        }
    }

    /// Records that a block was read from an archive.
    pub(super) fn note_read(&self, archive: Id) {
        self.failures.lock().remove(&archive);
    }

    /// Returns whether no copy should be staged yet, because one of these archives, which have
    /// other copies, became unavailable a short time ago.
    pub(super) fn must_wait(&self, unavailable: &[Id], asker: Asker, now_ns: u64) -> bool {
        let mut failures = self.failures.lock();
        let since = |past_ns| Duration::from_nanos(now_ns.saturating_sub(past_ns));
        let are_new = unavailable.iter().map(|archive| {
            let failure = failures.entry(*archive).or_insert(Failure::new(now_ns));
            if failure.was_opened && since(failure.last_ns) > UNSEEN {
                *failure = Failure::new(now_ns);
            }
            failure.last_ns = now_ns;
            let is_awaited = !failure.is_from_start || asker == Asker::Program;
            is_awaited && since(failure.first_ns) < WAIT
        });
        // Each failure is recorded, so this does not stop at the first one.
        are_new.fold(false, |any, is_new| any | is_new)
    }

    /// Returns the archive that began to stage a container.
    pub(super) fn begun_in(&self, container: Id) -> Option<Id> {
        self.begun.get(&container)
    }

    /// Records the archive that stages a container.
    pub(super) fn note_begun(&self, container: Id, archive: Id) {
        self.begun.insert(container, archive);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Id = Id([1; 16]);
    const B: Id = Id([2; 16]);

    fn must_wait(cold: &ColdStorage, asker: Asker, at: u64) -> bool {
        cold.must_wait(&[A, B], asker, at * 1_000_000_000)
    }

    #[test]
    fn nothing_is_staged_in_the_first_minute_of_a_failure() {
        let cold = ColdStorage::default();
        // However often a recall is tried, only the time counts.
        for at in 100..160 {
            assert!(must_wait(&cold, Asker::Program, at) && must_wait(&cold, Asker::Command, at));
        }
        assert!(!must_wait(&cold, Asker::Program, 160));
        assert!(!must_wait(&cold, Asker::Program, 190));
        cold.note_read(A);
        assert!(must_wait(&cold, Asker::Program, 191), "a new failure");
    }

    #[test]
    fn failure_after_the_archive_was_opened_again_is_new() {
        let cold = ColdStorage::default();
        assert!(must_wait(&cold, Asker::Command, 100));
        assert!(!must_wait(&cold, Asker::Command, 5000), "a command may be run seldom");
        [A, B].iter().for_each(|archive| cold.note_opened(*archive));
        assert!(!must_wait(&cold, Asker::Command, 5100), "it became unavailable at once");
        assert!(must_wait(&cold, Asker::Command, 5221));
        assert!(!must_wait(&cold, Asker::Command, 5281));
    }

    #[test]
    fn only_programs_wait_for_archives_that_are_unavailable_from_the_start() {
        let cold = ColdStorage::default();
        [A, B].iter().for_each(|archive| cold.note_absent(*archive, 0));
        assert!(!must_wait(&cold, Asker::Command, 1) && must_wait(&cold, Asker::Program, 2));
        assert!(!must_wait(&cold, Asker::Program, 60));
        cold.note_opened(B);
        assert!(must_wait(&cold, Asker::Command, 200), "it was available meanwhile");
    }
}
