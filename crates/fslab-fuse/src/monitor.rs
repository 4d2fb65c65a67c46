//! The monitor thread, which regularly checks for busy reader threads and sleeps while the mount is
//! idle.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// Interval between checks of the readers while requests arrive. A check takes some 20 us of
/// processor time on a virtual machine, where timers are expensive.
const PERIOD: Duration = Duration::from_millis(5);
/// Number of idle periods after which the monitor sleeps.
const QUIET_PERIODS_MAX: u32 = 4;

/// Wakes the monitor thread when requests arrive, and lets it sleep otherwise.
#[derive(Debug, Default)]
pub(crate) struct Monitor {
    awake: AtomicBool,
    lock: Mutex<()>,
    woken: Condvar,
}

impl Monitor {
    /// Wakes the monitor if it sleeps. Called at each request; costs one load while the monitor is
    /// awake.
    pub fn wake_if_asleep(&self) {
        if !self.awake.load(Ordering::SeqCst) {
            self.wake();
        }
    }

    pub fn wake(&self) {
        let _held = self.lock.lock();
        self.awake.store(true, Ordering::SeqCst);
        self.woken.notify_one();
    }

    /// Calls `look` once in each period, and sleeps after several calls that returned `false`. Ends
    /// when `is_over` returns `true`.
    pub fn run(&self, is_over: impl Fn() -> bool, look: impl Fn() -> bool) {
        let mut quiet_periods = 0;
        while !is_over() {
            if look() {
                quiet_periods = 0;
            } else {
                quiet_periods += 1;
            }
            if quiet_periods < QUIET_PERIODS_MAX {
                std::thread::sleep(PERIOD);
            } else {
                quiet_periods = 0;
                self.sleep(&look);
            }
        }
    }

    /// Sleeps until woken. A request that arrives just before `awake` is cleared does not wake the
    /// monitor. Therefore `look` is called once more after `awake` is cleared: either the request
    /// sees the cleared flag, or this call sees the request.
    fn sleep(&self, look: &impl Fn() -> bool) {
        let mut held = self.lock.lock();
        self.awake.store(false, Ordering::SeqCst);
        if look() {
            self.awake.store(true, Ordering::SeqCst);
            return;
        }
        while !self.awake.load(Ordering::SeqCst) {
            self.woken.wait(&mut held);
        }
    }
}
