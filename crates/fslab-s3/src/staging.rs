//! Objects in cold storage classes, such as GLACIER: asks the store to restore them, and remembers
//! that it does.

use std::io;
use std::time::{Duration, Instant, SystemTime};

use fslab_tier::archive::{Later, Staged, cold_error};
use parking_lot::Mutex;
use quick_cache::sync::Cache;

use crate::bucket::{Bucket, ColdState, Restoring};
use crate::keys::ContainerKey;
use crate::restore_options::{RestoreOptions, Retrieval};
use crate::transport::{Cause, Failure};

/// The first interval between two checks of the same restore. Each later one is twice as long.
const CHECK_FIRST: Duration = Duration::from_secs(1);
/// The longest interval. A restore takes minutes to days, and each check costs a request.
const CHECK_MAX: Duration = Duration::from_secs(60);
/// The time after a check of a restore in which reads of the object fail without a request. Later,
/// the next read sends a request again.
const REFUSE_FOR: Duration = Duration::from_secs(300);

/// The number of remembered restores.
const REMEMBERED: usize = 1 << 16;

/// The restores that this process waits for.
pub struct Staging {
    options: RestoreOptions,
    running: Cache<ContainerKey, Running>,
    /// Held during the requests for a restore, so that each restore is requested once.
    asking: Mutex<()>,
}

/// A restore, as far as this process knows.
#[derive(Clone)]
struct Running {
    later: Later,
    checked: Instant,
    interval: Duration,
    /// Whether the last check found that the object can be read.
    has_ended: bool,
}

impl Running {
    fn is_due(&self) -> bool {
        self.checked.elapsed() >= self.interval
    }
}

impl Staging {
    pub fn new(options: RestoreOptions) -> Self {
        Self { options, running: Cache::new(REMEMBERED), asking: Mutex::default() }
    }

    /// Fails if an object is being restored, so that a read would fail.
    ///
    /// # Errors
    /// The error of a read of a cold object.
    pub fn check(&self, key: &ContainerKey) -> io::Result<()> {
        let is_running =
            |running: &Running| !running.has_ended && running.checked.elapsed() < REFUSE_FOR;
        match self.running.get(key).filter(is_running) {
            Some(running) => Err(cold_error(running.later.reason)),
            None => Ok(()),
        }
    }

    /// Forgets the restore of an object that was read or deleted.
    pub fn forget(&self, key: &ContainerKey) {
        self.running.remove(key);
    }

    /// Starts the restore of an object that could not be read, unless it is running. Checks a
    /// running restore at intervals.
    ///
    /// # Errors
    /// Fails if a request fails, or if the store does not restore the object.
    pub fn stage(&self, bucket: &Bucket, key: &ContainerKey) -> Result<Staged, Failure> {
        let _alone = self.asking.lock();
        let known = self.running.get(key);
        if let Some(running) = known.as_ref().filter(|running| !running.is_due()) {
            return Ok(if running.has_ended {
                Staged::Ready
            } else {
                Staged::Later(running.later.clone())
            });
        }
        let name = key.to_string();
        let had_ended = known.as_ref().is_some_and(|known| known.has_ended);
        let (later, has_ended) = match bucket.cold_state(&name)? {
            ColdState::Restoring => {
                // Nothing is known of a restore that an earlier process started.
                (known.as_ref().map_or_else(|| restoring(None), |known| known.later.clone()), false)
            }
            ColdState::Readable if !had_ended => (restoring(None), true),
            // The store said before that the object can be read, but refused to return it. For
            // example, the restored copy has expired.
            ColdState::Readable => (self.restore(bucket, &name, "GLACIER", true)?, false),
            ColdState::Cold { class, has_days } => {
                (self.restore(bucket, &name, &class, has_days)?, false)
            }
        };
        let next = |known: Running| (known.interval * 2).min(CHECK_MAX);
        let interval = known.map_or(CHECK_FIRST, next);
        let checked = Instant::now();
        let running = Running { later: later.clone(), checked, interval, has_ended };
        self.running.insert(*key, running);
        Ok(if has_ended { Staged::Ready } else { Staged::Later(later) })
    }

    /// Asks the store to restore an object.
    fn restore(
        &self,
        bucket: &Bucket,
        name: &str,
        class: &str,
        has_days: bool,
    ) -> Result<Later, Failure> {
        let days = has_days.then_some(self.options.days);
        let mut retrieval = self.options.retrieval.possible(class);
        loop {
            match bucket.restore(name, &Restoring { retrieval: retrieval.name(), days }) {
                Ok(()) => return Ok(restoring(Some(retrieval.usual(class)))),
                // An earlier attempt of this request may have succeeded.
                Err(failure) if failure.cause == Cause::Restoring => {
                    let usual = failure.is_ambiguous.then(|| retrieval.usual(class));
                    return Ok(restoring(usual));
                }
                // The store has no capacity for expedited restores now.
                Err(failure)
                    if failure.cause == Cause::Unsupported && retrieval == Retrieval::Expedited =>
                {
                    retrieval = Retrieval::Standard;
                }
                Err(failure) => return Err(failure),
            }
        }
    }
}

/// Describes a running restore that usually takes at most this long from now.
fn restoring(usual: Option<Duration>) -> Later {
    let end = usual.and_then(|usual| SystemTime::now().checked_add(usual));
    let since_1970 = end.and_then(|end| end.duration_since(SystemTime::UNIX_EPOCH).ok());
    Later {
        reason: "the store is restoring it from cold storage".to_owned(),
        expected: since_1970.and_then(|since| i64::try_from(since.as_secs()).ok()),
    }
}
