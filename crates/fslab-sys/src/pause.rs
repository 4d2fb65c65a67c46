//! Waits for an exact time, unless asked to stop.

use std::time::{Duration, Instant};

/// Maximum delay with which the kernel wakes a sleeping thread: 50 us of timer slack, plus the
/// wake-up. For this long before the end of a pause, the thread polls the clock instead of
/// sleeping.
const WATCHED: Duration = Duration::from_micros(150);

/// Interval between checks of `stop`.
const SLICE: Duration = Duration::from_millis(5);

/// Waits, accurately to some microseconds on an idle machine, and returns `true`. Returns `false`
/// within about 5 ms if `stop` returns `true`.
pub fn pause(duration: Duration, stop: &dyn Fn() -> bool) -> bool {
    let start = Instant::now();
    loop {
        if stop() {
            return false;
        }
        match duration.checked_sub(start.elapsed()) {
            None | Some(Duration::ZERO) => return true,
            Some(rest) if rest > WATCHED => std::thread::sleep((rest - WATCHED).min(SLICE)),
            Some(_) => std::hint::spin_loop(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_never_short_and_ends_when_stopped() {
        for duration in [Duration::from_micros(20), Duration::from_millis(12)] {
            let start = Instant::now();
            assert!(pause(duration, &|| false));
            assert!(start.elapsed() >= duration);
        }
        let start = Instant::now();
        assert!(!pause(Duration::from_secs(60), &|| start.elapsed() > Duration::from_millis(20)));
        assert!(start.elapsed() < Duration::from_secs(30));
    }
}
