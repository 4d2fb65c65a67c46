//! Maintenance: what a mount does by itself every so often. What the policy in the tier's home says is
//! done, names go to the archives for a rebuild, and versions that were kept for long enough go.
//!
//! A round begins once the time between rounds has passed since the last one ended: rounds never
//! overlap, and a machine that is too slow for them has pauses all the same.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use fslab_vfs::{Cancellation, Request};
use parking_lot::{Condvar, Mutex};

use crate::command::Event;
use crate::engine::Tier;
use crate::error::{Error, Result};

/// How often the clock is looked at: it is not the one that the system waits by.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// How long the end of an engine waits for a round to end: an archive may hold it up for ever.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// What a cancelled round finds in its request.
const CANCELLED: u64 = 1;

/// Whether rounds go on.
#[derive(Default)]
pub(crate) struct Maintenance {
    going: Mutex<Going>,
    changed: Condvar,
    /// Seen by a round under way, between two blocks.
    cancelled: Arc<AtomicU64>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Going {
    /// There are none.
    #[default]
    Never,
    /// A thread does them.
    On,
    /// The thread is to end.
    Stopping,
    /// It has ended.
    Ended,
}

impl Maintenance {
    /// Ends rounds; `false` where one is still under way.
    pub(crate) fn stop(&self) -> bool {
        self.cancelled.store(CANCELLED, Ordering::SeqCst);
        let mut going = self.going.lock();
        if *going == Going::On {
            *going = Going::Stopping;
        }
        self.changed.notify_all();
        let is_stopping = |going: &mut Going| *going == Going::Stopping;
        !self.changed.wait_while_for(&mut going, is_stopping, PATIENCE).timed_out()
    }

    /// Waits a little; `false` once rounds are to end.
    fn wait(&self) -> bool {
        let mut going = self.going.lock();
        if *going == Going::On {
            self.changed.wait_for(&mut going, LOOK_EVERY);
        }
        *going == Going::On
    }

    fn ended(&self) {
        *self.going.lock() = Going::Ended;
        self.changed.notify_all();
    }

    fn request(&self) -> Request {
        let cancellation = Cancellation::new(Arc::clone(&self.cancelled), CANCELLED);
        Request { cancellation, ..Request::default() }
    }
}

impl Tier {
    /// Begins to do rounds, one every so often.
    ///
    /// # Errors
    /// Where a thread can't be started.
    pub fn start_maintenance(self: &Arc<Self>, every: Duration) -> Result<()> {
        let (tier, rounds) = (Arc::downgrade(self), Arc::clone(self.rounds()));
        *rounds.going.lock() = Going::On;
        let begun_ns = self.surroundings().clock.now_ns();
        let work = move || {
            keep_rounds(&tier, &rounds, begun_ns, every);
            rounds.ended();
        };
        let thread = std::thread::Builder::new().name("fslab-rounds".to_owned());
        let started = thread.spawn(work).map(drop).map_err(|source| Error::Refused {
            what: format!("can't start a thread that does what the policy says: {source}"),
        });
        started.inspect_err(|_| self.rounds().ended())
    }

    /// Does what the tier's policy says, where it has one, archives the tree, and removes what was
    /// kept for long enough. Problems are said in the log and counted; what can be done besides is
    /// done.
    pub fn round(self: &Arc<Self>, request: &Request) {
        let problems = self.do_round(request);
        self.counters().round(problems);
    }

    /// Answers how many problems there were.
    fn do_round(self: &Arc<Self>, request: &Request) -> u64 {
        if let Err(error) = self.check_copy_targets() {
            tracing::error!("a round over the tier: {error}");
            return 1;
        }
        let mut problems = 0;
        let policy = self.follow_policy(request, &mut problems);
        let tree = self.round_tree(request, &mut problems);
        let outcomes = [policy, tree, self.expire(request).map(drop)];
        for error in outcomes.into_iter().filter_map(Result::err) {
            if !matches!(error, Error::Interrupted) {
                problems += 1;
                tracing::error!("a round over the tier: {error}");
            }
        }
        problems
    }

    fn round_tree(self: &Arc<Self>, request: &Request, problems: &mut u64) -> Result<()> {
        let made = self.archive_tree(request)?;
        *problems += made.problems.len() as u64;
        made.problems.iter().for_each(|what| tracing::warn!("a round over the tier: {what}"));
        Ok(())
    }

    fn follow_policy(self: &Arc<Self>, request: &Request, problems: &mut u64) -> Result<()> {
        let policy = self.settings().policy.as_ref();
        // One that is there and can't be read is a problem, and is said to be one.
        if policy.is_none_or(|policy| matches!(policy.try_exists(), Ok(false))) {
            return Ok(());
        }
        let mut tell = |event| {
            if let Event::Problem { what } = event {
                *problems += 1;
                tracing::warn!("a round over the tier: {what}");
            }
            true
        };
        crate::policy::run(self, None, false, request, &mut tell)
    }
}

fn keep_rounds(tier: &Weak<Tier>, rounds: &Maintenance, begun_ns: u64, every: Duration) {
    let mut last_ns = begun_ns;
    while rounds.wait() {
        let Some(tier) = tier.upgrade() else { return };
        let clock = &tier.surroundings().clock;
        if Duration::from_nanos(clock.now_ns().saturating_sub(last_ns)) >= every {
            let problems = tier.do_round(&rounds.request());
            // Before anybody can see that there was a round.
            last_ns = clock.now_ns();
            tier.counters().round(problems);
        }
    }
}
