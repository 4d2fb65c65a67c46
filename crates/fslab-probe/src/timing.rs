//! Finds attributes by timing, or refuses to answer. This is the method of Hu and Bursum, with more
//! checks.
//!
//! Hu and Bursum timed reads and writes with the processor's cycle counter and looked for jumps.
//! Here the counter is validated first ([`validation`]), and the thread stays on one processor. All
//! points are measured once per round, in alternating directions, and the shortest time of each is
//! used. A jump is accepted only under the conditions of the module `steps`. If the times of a
//! machine are too noisy, timing gives no answer. Counting has no noise and still works.

mod block_size;
mod cache_size;
mod clock;
mod direct_pointers;
mod read_ahead;
pub mod validation;

use std::io;

pub use clock::{Clock, ClockError};
pub use validation::Validation;

use super::finding::{Method, Point, Value};
use super::ground::Ground;

/// Clears a file system's caches, including metadata.
pub type MakeCold<'a> = &'a dyn Fn() -> io::Result<()>;

/// The clock and settings for timing.
#[derive(Clone, Copy)]
pub struct Timing<'a> {
    /// The clock.
    pub clock: &'a Clock,
    /// Clears the file system's caches, if possible.
    pub make_cold: Option<MakeCold<'a>>,
    /// Seed of random draws.
    pub seed: u64,
}

/// Finds an attribute by timing. Returns `None` if there is no timing method for it. Errors are
/// part of the outcome.
#[must_use]
pub fn time(attribute: &str, ground: &Ground, timing: &Timing<'_>) -> Option<Method> {
    let found = match attribute {
        "block-size" => block_size::find(ground, timing),
        "read-ahead-max" => read_ahead::find(ground, timing),
        "cache-size" => cache_size::find(ground, timing),
        "direct-pointers" => direct_pointers::find(ground, timing),
        _ => return None,
    };
    Some(found.unwrap_or_else(|error| {
        Method::failed("timing", format!("could not be timed: {error}"), Vec::new())
    }))
}

/// Whether two values can both be right.
#[must_use]
pub fn agree(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Between { low, high }, Value::Between { low: other_low, high: other_high }) => {
            low < other_high && other_low < high
        }
        (Value::Between { high, .. }, Value::BytesAtLeast(least))
        | (Value::BytesAtLeast(least), Value::Between { high, .. }) => least < high,
        _ => one == other,
    }
}

/// Measured times in ticks: several for each point.
type Times = Vec<Vec<f64>>;

/// Measures every point once per round, forwards in even rounds and backwards in odd ones. If
/// `time` returns `None`, the measurement was disturbed and is skipped.
fn in_turns(
    points: usize,
    rounds: usize,
    mut time: impl FnMut(usize) -> io::Result<Option<u64>>,
) -> io::Result<Times> {
    let mut times = vec![Vec::new(); points];
    for round in 0..rounds {
        for turn in 0..points {
            let point = if round % 2 == 0 { turn } else { points - 1 - turn };
            times[point].extend(time(point)?.map(|ticks| ticks.max(1) as f64));
        }
    }
    Ok(times)
}

/// Makes the result of timing. Its series contains the shortest time of each point, and its samples
/// all times.
fn method(
    name: &'static str,
    outcome: Result<Value, String>,
    xs: &[u64],
    times: &Times,
    clock: &Clock,
) -> Method {
    let nanoseconds = |ticks: f64| clock.nanoseconds(ticks).round() as u64;
    let least = |times: &[f64]| times.iter().copied().fold(f64::INFINITY, f64::min);
    let pairs = || xs.iter().zip(times);
    Method {
        name,
        outcome,
        series: pairs().map(|(x, times)| Point { x: *x, y: nanoseconds(least(times)) }).collect(),
        samples: pairs()
            .flat_map(|(x, times)| times.iter().map(|time| Point { x: *x, y: nanoseconds(*time) }))
            .collect(),
        jump: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_measured_forwards_and_then_backwards() {
        let mut order = Vec::new();
        in_turns(3, 2, |point| {
            order.push(point);
            Ok(Some(1))
        })
        .unwrap();
        assert_eq!(order, [0, 1, 2, 2, 1, 0]);
        assert_eq!(in_turns(1, 2, |_| Ok(None)).unwrap(), [Vec::<f64>::new()]);
    }

    #[test]
    fn overlapping_ranges_agree() {
        let between = |low, high| Value::Between { low, high };
        assert!(agree(&between(34, 35), &between(32, 36)));
        assert!(!agree(&between(34, 35), &between(36, 40)));
        assert!(agree(&Value::BytesAtLeast(30), &between(32, 36)));
        assert!(!agree(&between(32, 36), &Value::BytesAtLeast(64)));
        assert!(agree(&Value::Count(12), &Value::Count(12)));
        assert!(!agree(&Value::Count(12), &Value::Count(13)));
    }
}
