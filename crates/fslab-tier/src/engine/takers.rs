//! Which archives take copies: the first ones, in the order in which they were attached. One that
//! is full, read-only or broken rests for a while, and the next one takes its place.

use std::collections::HashMap;
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
        loop {
            let takers = self.takers()?;
            match copy(&takers) {
                Err(error) if self.is_of_one(&error, &takers) && self.are_enough_awake() => {
                    tracing::warn!("another archive takes the copy: {error}");
                }
                done => return done,
            }
        }
    }

    fn takers(&self) -> Result<Vec<Arc<dyn Archive>>> {
        let (mut archives, wanted) = (self.archives(), self.settings.copies.max(1));
        if archives.len() < wanted {
            return Err(Error::TooFewArchives { wanted, found: archives.len() });
        }
        // Those of each kind stay in their order.
        archives.sort_by_key(|archive| self.is_resting(&**archive));
        archives.truncate(wanted);
        Ok(archives)
    }

    /// Lets the one rest that failed, whether it wrote or was read back.
    fn is_of_one(&self, error: &Error, takers: &[Arc<dyn Archive>]) -> bool {
        let (Error::Archive { archive, .. } | Error::Damaged { archive, .. }) = error else {
            return false;
        };
        let Some(failed) = takers.iter().find(|taker| taker.label() == archive) else {
            return false;
        };
        let until_ns = self.around.clock.now_ns().saturating_add(REST.as_nanos() as u64);
        self.resting.0.lock().insert(failed.id(), until_ns);
        true
    }

    fn are_enough_awake(&self) -> bool {
        let archives = self.archives();
        let awake = archives.iter().filter(|archive| !self.is_resting(&***archive));
        awake.count() >= self.settings.copies.max(1)
    }

    fn is_resting(&self, archive: &dyn Archive) -> bool {
        let now_ns = self.around.clock.now_ns();
        self.resting.0.lock().get(&archive.id()).is_some_and(|until_ns| now_ns < *until_ns)
    }
}
