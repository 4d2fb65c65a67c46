//! Where workloads that run at the same time wait for each other before each phase.

use std::time::Duration;

use fslab_sys::signals::Interrupt;
use fslab_sys::usage::Instant;
use parking_lot::{Condvar, Mutex};

use crate::error::{Error, Result};

/// A waiting workload looks this often at whether it must stop.
const LOOK: Duration = Duration::from_millis(100);

/// The name of a phase of one of several workloads.
pub(crate) fn name_of_part(label: &str, phase: &str) -> String {
    format!("{label}: {phase}")
}

/// Where workloads wait for each other before each phase.
pub(crate) struct Meeting {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// Workloads that have not ended.
    present: usize,
    /// Of them, those that wait.
    waiting: usize,
    /// Phases that have begun.
    begun: u64,
    /// Workloads in a phase, since when that is so, and how long there was one alone in all.
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

    /// Begins the phase where nobody is missing.
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
    /// Of so many workloads.
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

    /// Waits until all workloads that have not ended wait here, too.
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

/// A workload in a phase.
pub(super) struct Active<'a> {
    meeting: &'a Meeting,
    alone_before: Duration,
    ended: bool,
}

impl Active<'_> {
    /// Ends the phase, and answers how long no other workload was in one.
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

/// A workload's seat at the meeting: the others don't wait for it once it is left.
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

    /// Two workloads of two and three phases: each waits for the other as long as it has more.
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

    /// One is alone from when the other has ended until it was alone for so long.
    #[test]
    fn time_alone_is_told_to_whoever_was_alone() {
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
