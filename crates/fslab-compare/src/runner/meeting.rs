//! A barrier at which concurrent workloads wait for each other before each phase.

use std::time::Duration;

use fslab_sys::signals::Interrupt;
use fslab_sys::usage::Instant;
use parking_lot::{Condvar, Mutex};

use crate::error::{Error, Result};

/// Interval at which a waiting workload checks for an interrupt.
const LOOK: Duration = Duration::from_millis(100);

/// Returns the name of a phase in the samples of concurrent workloads.
pub(crate) fn name_of_part(label: &str, phase: &str) -> String {
    format!("{label}: {phase}")
}

/// The barrier of one run's concurrent workloads.
pub(crate) struct Meeting {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// The number of workloads that have not ended.
    present: usize,
    /// The number of workloads that wait at the barrier.
    waiting: usize,
    /// The number of phases that have begun.
    begun: u64,
    /// The number of workloads in a phase. `since` is the time of the last change of this number,
    /// and `alone` the total time during which it was 1.
    active: usize,
    since: Instant,
    alone: Duration,
}

impl State {
    fn set_active(&mut self, active: usize) {
        let now = Instant::now();
        if self.active == 1 {
            self.alone += now - self.since;
        }
        (self.active, self.since) = (active, now);
    }

    /// Begins the phase if every remaining workload is waiting.
    fn begin_if_complete(&mut self, changed: &Condvar) {
        if self.waiting > 0 && self.waiting == self.present {
            self.set_active(self.active + self.waiting);
            self.waiting = 0;
            self.begun += 1;
            changed.notify_all();
        }
    }
}

impl Meeting {
    /// Creates a barrier for `present` workloads.
    pub fn of(present: usize) -> Self {
        let state = State {
            present,
            waiting: 0,
            begun: 0,
            active: 0,
            since: Instant::now(),
            alone: Duration::ZERO,
        };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Waits until all workloads that have not ended are waiting here.
    pub(super) fn begin(&self, interrupt: &Interrupt) -> Result<Active<'_>> {
        let mut state = self.state.lock();
        let begun = state.begun;
        state.waiting += 1;
        state.begin_if_complete(&self.changed);
        while state.begun == begun {
            if interrupt.is_raised() {
                state.waiting -= 1;
                return Err(Error::Interrupted);
            }
            self.changed.wait_for(&mut state, LOOK);
        }
        let alone = state.alone;
        Ok(Active { meeting: self, alone_before: alone, ended: false })
    }
}

/// A running phase of one workload. It ends when this is dropped.
pub(super) struct Active<'a> {
    meeting: &'a Meeting,
    alone_before: Duration,
    ended: bool,
}

impl Active<'_> {
    /// Ends the phase. Returns the time during which no other workload was in a phase.
    pub fn end(mut self) -> Duration {
        self.leave()
    }

    fn leave(&mut self) -> Duration {
        if self.ended {
            return Duration::ZERO;
        }
        self.ended = true;
        let mut state = self.meeting.state.lock();
        let active = state.active.saturating_sub(1);
        state.set_active(active);
        state.alone.saturating_sub(self.alone_before)
    }
}

impl Drop for Active<'_> {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Registers a workload at the barrier. When this is dropped, the other workloads no longer wait
/// for the workload.
pub(super) struct Seat<'a>(pub &'a Meeting);

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.present -= 1;
        state.begin_if_complete(&self.0.changed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two workloads have two and three phases. They wait for each other while both have phases
    /// left.
    #[test]
    fn phases_of_the_same_number_begin_together() {
        let meeting = Meeting::of(2);
        let order = Mutex::new(Vec::new());
        let work = |name: &'static str, phases: u64, pause: u64| {
            let _seat = Seat(&meeting);
            for phase in 0..phases {
                std::thread::sleep(Duration::from_millis(pause));
                let active = meeting.begin(&Interrupt::default()).unwrap();
                order.lock().push((phase, name));
                active.end();
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| work("slow", 2, 30));
            scope.spawn(|| work("quick", 3, 0));
        });
        let order = order.into_inner();
        assert_eq!(order.len(), 5);
        assert!(order.is_sorted_by_key(|(phase, _)| *phase), "{order:?}");
    }

    /// One workload ends its phase first. The other one then runs alone for at least `pause`.
    #[test]
    fn time_alone_is_reported_to_the_workload_that_ran_alone() {
        let meeting = &Meeting::of(2);
        let pause = Duration::from_millis(50);
        let (ended, has_ended) = std::sync::mpsc::channel();
        let (began, has_begun) = std::sync::mpsc::channel();
        let (short, long) = std::thread::scope(|scope| {
            let short = scope.spawn(move || {
                let _seat = Seat(meeting);
                let active = meeting.begin(&Interrupt::default()).unwrap();
                has_begun.recv().unwrap();
                let alone = active.end();
                ended.send(()).unwrap();
                alone
            });
            let long = scope.spawn(move || {
                let _seat = Seat(meeting);
                let active = meeting.begin(&Interrupt::default()).unwrap();
                began.send(()).unwrap();
                has_ended.recv().unwrap();
                std::thread::sleep(pause);
                active.end()
            });
            (short.join().unwrap(), long.join().unwrap())
        });
        assert!(long >= pause && short == Duration::ZERO, "{short:?} {long:?}");
    }

    #[test]
    fn waiting_for_others_can_be_interrupted() {
        let meeting = Meeting::of(2);
        let interrupt = Interrupt::default();
        interrupt.raise();
        assert!(matches!(meeting.begin(&interrupt), Err(Error::Interrupted)));
    }
}
