//! Maintenance rounds: at intervals, a mount runs the policy in the tier's home, archives the tree,
//! and deletes old versions past their retention time.
//!
//! A round begins when the interval has passed since the end of the last round. So rounds never
//! overlap, and even a slow machine has pauses.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::time::Duration;

use fslab_vfs::Request;

use crate::engine::{BackgroundThread, Counter, Tier};
use crate::error::{Error, Result};
use crate::event::Event;

impl Tier {
    /// Starts a thread that runs a maintenance round at each interval.
    ///
    /// # Errors
    /// If the thread can't be started.
    pub fn start_maintenance(self: &Arc<Self>, every: Duration) -> Result<()> {
        let (tier, rounds) = (Arc::downgrade(self), Arc::clone(self.background()));
        rounds.begin();
        let begun_ns = self.surroundings().clock.now_ns();
        let work = move || {
            keep_rounds(&tier, &rounds, begun_ns, every);
            rounds.ended();
        };
        let thread = std::thread::Builder::new().name("fslab-rounds".to_owned());
        let started = thread.spawn(work).map(drop).map_err(|source| Error::Refused {
            what: format!("can't start the thread for maintenance rounds: {source}"),
        });
        started.inspect_err(|_| self.background().ended())
    }

    /// Runs the tier's policy if it has one, archives the tree, and deletes expired versions.
    /// Problems are logged and counted; they do not stop the other steps. A round does nothing if
    /// other trees write to archives that are needed for the copies.
    pub fn round(self: &Arc<Self>, request: &Request) {
        let problems = self.do_round(request);
        self.note_round(problems);
    }

    fn note_round(&self, problems: u64) {
        self.record_usage();
        self.counters().add(Counter::RoundProblems, problems);
        self.counters().add(Counter::Rounds, 1);
    }

    /// Runs a round; returns the number of problems.
    fn do_round(self: &Arc<Self>, request: &Request) -> u64 {
        if let Err(error) = self.check_copy_targets() {
            tracing::error!("maintenance round: {error}");
            return 1;
        }
        let mut problems = 0;
        let policy = self.follow_policy(request, &mut problems);
        let tree = self.round_tree(request, &mut problems);
        let outcomes = [policy, tree, self.expire(request).map(drop)];
        for error in outcomes.into_iter().filter_map(Result::err) {
            if !matches!(error, Error::Interrupted) {
                problems += 1;
                tracing::error!("maintenance round: {error}");
            }
        }
        problems
    }

    fn round_tree(self: &Arc<Self>, request: &Request, problems: &mut u64) -> Result<()> {
        let made = self.archive_tree(request)?;
        *problems += made.problems.len() as u64;
        made.problems.iter().for_each(|what| tracing::warn!("maintenance round: {what}"));
        Ok(())
    }

    fn follow_policy(self: &Arc<Self>, request: &Request, problems: &mut u64) -> Result<()> {
        let policy = self.settings().policy.as_ref();
        // A policy that exists but can't be read is reported as a problem by the run below.
        if policy.is_none_or(|policy| matches!(policy.try_exists(), Ok(false))) {
            return Ok(());
        }
        let mut tell = |event| {
            if let Event::Problem { what } = event {
                *problems += 1;
                tracing::warn!("maintenance round: {what}");
            }
            true
        };
        crate::policy::run(self, None, false, request, &mut tell)
    }
}

fn keep_rounds(tier: &Weak<Tier>, rounds: &BackgroundThread, begun_ns: u64, every: Duration) {
    let mut last_ns = begun_ns;
    while rounds.wait() {
        let Some(tier) = tier.upgrade() else { return };
        let clock = &tier.surroundings().clock;
        if Duration::from_nanos(clock.now_ns().saturating_sub(last_ns)) >= every {
            let round = || tier.do_round(&rounds.request());
            let problems = catch_unwind(AssertUnwindSafe(round)).unwrap_or_else(|_| {
                tracing::error!("a maintenance round panicked; please report this");
                1
            });
            // Set before the round is counted, so that an observer of the counter can rely on the
            // new interval.
            last_ns = clock.now_ns();
            tier.note_round(problems);
        }
    }
}
