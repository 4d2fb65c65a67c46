//! Which archives take copies: the first ones, in the order in which they were attached. One that
//! is full, read-only or broken rests for a while, and the next one takes its place.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::Tier;
use crate::archive::Archive;
use crate::error::{Error, Result};
use crate::id::Id;

/// How long an archive that took no copy is asked only where there are not enough others.
const REST: Duration = Duration::from_secs(10 * 60);

/// Until when archives rest, in nanoseconds by the engine's clock.
#[derive(Default)]
pub(super) struct Resting(Mutex<HashMap<Id, u64>>);

impl Tier {
    /// Makes copies in archives; once more in others where one of them fails, as long as there are
    /// enough of them. What was copied before a failure is for `copy` to take back.
    pub(super) fn with_takers<T>(
        &self,
        mut copy: impl FnMut(&[Arc<dyn Archive>]) -> Result<T>,
    ) -> Result<T> {
        // What took long to fail may have outlasted the rest of one that failed before.
        let mut failed = HashSet::new();
        loop {
            let takers = self.takers(&failed)?;
            let error = match copy(&takers) {
                Err(error) => error,
                done => return done,
            };
            let Some(one) = taker_of(&error, &takers) else { return Err(error) };
            // One that is away takes nothing before it is back, and then at once.
            if !error.is_away() {
                self.let_rest(one);
            }
            failed.insert(one);
            if !self.are_enough_awake(&failed) {
                return Err(error);
            }
            tracing::warn!("another archive takes the copy: {error}");
        }
    }

    fn takers(&self, failed: &HashSet<Id>) -> Result<Vec<Arc<dyn Archive>>> {
        let (mut archives, wanted) = (self.archives(), self.settings.copies.max(1));
        if archives.len() < wanted {
            let away = self.archives_away();
            return Err(Error::TooFewArchives { wanted, found: archives.len(), away });
        }
        // Those of each kind stay in their order.
        archives
            .sort_by_key(|archive| (failed.contains(&archive.id()), self.is_resting(&**archive)));
        archives.truncate(wanted);
        Ok(archives)
    }

    fn let_rest(&self, archive: Id) {
        let until_ns = self.around.clock.now_ns().saturating_add(REST.as_nanos() as u64);
        self.resting.0.lock().insert(archive, until_ns);
    }

    fn are_enough_awake(&self, failed: &HashSet<Id>) -> bool {
        let archives = self.archives();
        let is_awake = |archive: &&Arc<dyn Archive>| {
            !failed.contains(&archive.id()) && !self.is_resting(&***archive)
        };
        archives.iter().filter(is_awake).count() >= self.settings.copies.max(1)
    }

    fn is_resting(&self, archive: &dyn Archive) -> bool {
        let now_ns = self.around.clock.now_ns();
        self.resting.0.lock().get(&archive.id()).is_some_and(|until_ns| now_ns < *until_ns)
    }
}

/// The one that failed, whether it wrote or was read back.
fn taker_of(error: &Error, takers: &[Arc<dyn Archive>]) -> Option<Id> {
    let (Error::Archive { archive, .. } | Error::Damaged { archive, .. }) = error else {
        return None;
    };
    takers.iter().find(|taker| taker.label() == archive).map(|taker| taker.id())
}
