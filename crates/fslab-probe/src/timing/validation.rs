//! Validates the cycle counter. The processor must report a constant rate, and the kernel must use
//! the counter as its clock source. The counters of all processors must agree, and be proportional
//! to time.
//!
//! The last check is that of Hu and Bursum: a sleep is timed by the counter and by a kernel clock.
//! Three things are added here: sleeps of many lengths, residuals, and a clock that is never
//! adjusted (CLOCK_MONOTONIC_RAW).

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use std::{io, thread};

use fslab_compare::{Pinned, allowed_processors};
use fslab_sys::cycles::{CycleCounter, clock_source};
use fslab_sys::usage::{Instant, MachineTime};
use serde::Serialize;

/// The thoroughness of the validation.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    /// The longest sleep. Each sleep is twice as long as the one before.
    pub longest_sleep: Duration,
    /// Number of repetitions of each sleep.
    pub repeats: u32,
}

impl Default for Extent {
    fn default() -> Self {
        Self { longest_sleep: Duration::from_millis(256), repeats: 2 }
    }
}

/// The shortest sleep.
const SHORTEST_SLEEP: Duration = Duration::from_millis(1);

/// Number of readings that each pair of processors exchanges.
const EXCHANGES: u64 = 2_000;

/// Number of empty intervals that are timed to find the overhead.
const OVERHEADS: usize = 100_000;

/// Minimum coefficient of determination of the regression.
const R_SQUARED_LEAST: f64 = 0.9999;

/// The results of the validation.
#[derive(Clone, Debug, Serialize)]
pub struct Validation {
    /// The kernel's clock source.
    pub clock_source: String,
    /// Whether the processor reports that the counter has one rate in all its states.
    pub invariant: bool,
    /// Number of compared processors.
    pub processors: usize,
    /// Number of readings that were smaller than an earlier reading on another processor.
    pub went_back: u64,
    /// The linear regression of ticks over seconds.
    pub regression: Regression,
    /// The ticks of an empty interval.
    pub overhead: Overhead,
    /// The share of the machine's time that the hypervisor gave to other machines, from 0 to 1.
    pub stolen: f64,
}

/// A least-squares line of ticks over seconds.
#[derive(Clone, Debug, Serialize)]
pub struct Regression {
    /// The slope.
    pub ticks_per_second: f64,
    /// The intercept in ticks.
    pub intercept: f64,
    /// The coefficient of determination.
    pub r_squared: f64,
    /// The largest residual in nanoseconds.
    pub residual_max_ns: f64,
    /// The points.
    pub points: Vec<Timed>,
}

/// One sleep, timed by the counter and by CLOCK_MONOTONIC_RAW.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Timed {
    /// The length of the sleep by CLOCK_MONOTONIC_RAW.
    pub seconds: f64,
    /// The length of the sleep by the counter.
    pub ticks: u64,
    /// The distance of the sleep from the regression line in nanoseconds.
    pub residual_ns: f64,
}

/// The duration of an empty interval in ticks.
#[derive(Clone, Debug, Serialize)]
pub struct Overhead {
    /// The minimum.
    pub least: u64,
    /// The median.
    pub median: u64,
    /// The 99th percentile.
    pub percentile_99: u64,
    /// The histogram of intervals: upper bounds (powers of two) in ticks, and counts.
    pub histogram: Vec<(u64, u64)>,
}

impl Validation {
    /// Validates a counter. This takes about twice the longest sleep for each repetition.
    pub(super) fn of(counter: CycleCounter, extent: Extent) -> io::Result<Self> {
        let before = MachineTime::now()?;
        let start = Instant::now();
        let processors = allowed_processors()?;
        let went_back = went_back(counter, &processors)?;
        let regression = Regression::of(&sleeps(counter, extent));
        let overhead = Overhead::of(counter);
        let stolen = (MachineTime::now()? - before).steal.as_secs_f64();
        let machine_seconds = start.elapsed().as_secs_f64() * processors.len().max(1) as f64;
        Ok(Self {
            clock_source: clock_source()?,
            invariant: counter.is_invariant(),
            processors: processors.len(),
            went_back,
            regression,
            overhead,
            stolen: stolen / machine_seconds.max(f64::MIN_POSITIVE),
        })
    }

    /// Returns the reasons why the counter is not reliable; empty if it is.
    #[must_use]
    pub fn objections(&self) -> Vec<String> {
        let Self { clock_source, invariant, went_back, regression, .. } = self;
        let objection = |holds: bool, text: String| holds.then_some(text);
        [
            objection(
                clock_source != "tsc",
                format!("the kernel's clock source is {clock_source}, not the cycle counter (tsc)"),
            ),
            objection(!invariant, "the counter's rate depends on the processor's state".to_owned()),
            objection(
                *went_back > 0,
                format!(
                    "{went_back} readings were lower than earlier readings on other processors"
                ),
            ),
            objection(
                // The condition is negated, so that NaN is refused too.
                !(regression.r_squared >= R_SQUARED_LEAST && regression.ticks_per_second > 0.0),
                format!(
                    "the counter is not proportional to time: R^2 is {:.6}",
                    regression.r_squared
                ),
            ),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

/// Lets the first processor exchange readings with every other processor. Returns how many readings
/// were smaller than the previous one.
fn went_back(counter: CycleCounter, processors: &[usize]) -> io::Result<u64> {
    let Some((first, others)) = processors.split_first() else { return Ok(0) };
    let mut sum = 0;
    for other in others {
        sum += exchange(counter, *first, *other)?;
    }
    Ok(sum)
}

fn exchange(counter: CycleCounter, first: usize, other: usize) -> io::Result<u64> {
    // Even turns belong to the first processor, odd ones to the other. A reading is published
    // before the turn is passed on.
    let (turn, reading) = (AtomicU64::new(0), AtomicU64::new(0));
    let play = |own: u64, processor: usize| -> io::Result<u64> {
        let pinned = Pinned::on(&[processor]);
        let mut back = 0;
        for number in (own..EXCHANGES).step_by(2) {
            let mut spins = 0_u32;
            while turn.load(Ordering::Acquire) != number {
                spins += 1;
                if spins.is_multiple_of(1 << 10) {
                    thread::yield_now();
                }
                std::hint::spin_loop();
            }
            let now = counter.begin();
            back += u64::from(now < reading.load(Ordering::Relaxed));
            reading.store(now, Ordering::Relaxed);
            turn.store(number + 1, Ordering::Release);
        }
        pinned.map(|_until_here| back)
    };
    thread::scope(|scope| {
        let answering = scope.spawn(|| play(1, other));
        let asked = play(0, first);
        let answered = answering.join().map_err(|_panic| io::Error::other("a thread panicked"))?;
        Ok(asked? + answered?)
    })
}

/// Sleeps for growing times and returns seconds and ticks.
fn sleeps(counter: CycleCounter, extent: Extent) -> Vec<(f64, u64)> {
    let mut timed = Vec::new();
    for _ in 0..extent.repeats {
        let mut length = SHORTEST_SLEEP;
        while length <= extent.longest_sleep {
            let (begin, start) = (counter.begin(), Instant::now());
            thread::sleep(length);
            let (seconds, end) = (start.elapsed().as_secs_f64(), counter.end().ticks);
            timed.push((seconds, end.saturating_sub(begin)));
            length *= 2;
        }
    }
    timed
}

impl Regression {
    fn of(timed: &[(f64, u64)]) -> Self {
        let count = timed.len() as f64;
        let mean_x = timed.iter().map(|(x, _)| x).sum::<f64>() / count;
        let mean_y = timed.iter().map(|(_, y)| *y as f64).sum::<f64>() / count;
        let sum_of = |f: &dyn Fn(f64, f64) -> f64| -> f64 {
            timed.iter().map(|(x, y)| f(x - mean_x, *y as f64 - mean_y)).sum()
        };
        let slope = sum_of(&|x, y| x * y) / sum_of(&|x, _| x * x);
        let intercept = mean_y - slope * mean_x;
        let unexplained = sum_of(&|x, y| (y - slope * x).powi(2));
        let point = |(seconds, ticks): &(f64, u64)| Timed {
            seconds: *seconds,
            ticks: *ticks,
            residual_ns: (*ticks as f64 - intercept - slope * seconds) / slope * 1e9,
        };
        let points: Vec<Timed> = timed.iter().map(point).collect();
        let largest = points.iter().map(|point| point.residual_ns.abs()).fold(0.0, f64::max);
        Self {
            ticks_per_second: slope,
            intercept,
            r_squared: 1.0 - unexplained / sum_of(&|_, y| y * y),
            residual_max_ns: largest,
            points,
        }
    }
}

impl Overhead {
    fn of(counter: CycleCounter) -> Self {
        let one = || {
            let begin = counter.begin();
            counter.end().ticks.saturating_sub(begin)
        };
        Self::summary((0..OVERHEADS).map(|_| one()).collect())
    }

    fn summary(mut ticks: Vec<u64>) -> Self {
        ticks.sort_unstable();
        let at = |share: f64| ticks[((ticks.len() - 1) as f64 * share) as usize];
        let mut histogram: Vec<(u64, u64)> = Vec::new();
        for ticks in &ticks {
            let bin = ticks.next_power_of_two();
            match histogram.last_mut() {
                Some((end, count)) if *end == bin => *count += 1,
                _ => histogram.push((bin, 1)),
            }
        }
        Self { least: at(0.0), median: at(0.5), percentile_99: at(0.99), histogram }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn validation(regression: Regression) -> Validation {
        Validation {
            clock_source: "tsc".to_owned(),
            invariant: true,
            processors: 2,
            went_back: 0,
            regression,
            overhead: Overhead::summary(vec![20, 22, 30, 500]),
            stolen: 0.0,
        }
    }

    fn straight() -> Regression {
        let ticks = |second: u32| 3_000_000_000 * u64::from(second) + 5_000;
        Regression::of(
            &(1..=10).map(|second| (f64::from(second), ticks(second))).collect::<Vec<_>>(),
        )
    }

    #[test]
    fn regression_finds_a_straight_line() {
        let regression = straight();
        assert!((regression.ticks_per_second - 3e9).abs() < 1.0);
        assert!((regression.intercept - 5000.0).abs() < 1.0);
        assert!(regression.r_squared > 0.999_999_9 && regression.residual_max_ns < 1.0);
    }

    #[test]
    fn every_clock_fault_raises_an_objection() {
        assert_eq!(validation(straight()).objections(), Vec::<String>::new());
        let other = Validation { clock_source: "hpet".to_owned(), ..validation(straight()) };
        assert!(other.objections()[0].contains("hpet"));
        let varying = Validation { invariant: false, ..validation(straight()) };
        assert_eq!(varying.objections().len(), 1);
        let skewed = Validation { went_back: 3, ..validation(straight()) };
        assert!(skewed.objections()[0].starts_with("3 readings"));
        let crooked = [(1.0, 3_000_000_000), (2.0, 3_100_000_000), (3.0, 9_000_000_000)];
        assert_eq!(validation(Regression::of(&crooked)).objections().len(), 1);
        assert_eq!(validation(Regression::of(&[])).objections().len(), 1, "no points, no line");
    }

    #[test]
    fn intervals_are_sorted_into_powers_of_two() {
        let overhead = Overhead::summary(vec![500, 20, 30, 22]);
        assert_eq!((overhead.least, overhead.median), (20, 22));
        assert_eq!(overhead.histogram, [(32, 3), (512, 1)]);
    }
}
