//! Parts of the elapsed time of a phase that one thread runs: on a processor, ready to run, and
//! waiting. At each moment the thread is in exactly one of these states, so a difference in elapsed
//! time is the sum of the differences of the parts. A part is named as the explanation if the
//! rounds show that the difference would be less than half without it.

use super::merge::Merged;
use super::pairing;
use crate::sample::Sample;
use fslab_stats::RatioInterval;

/// Other threads and the programs of the workload may use at most this share of the elapsed time.
/// Otherwise the measuring thread may have waited for their work, which its own times do not show.
const OTHERS_MAX: f64 = 0.05;

/// A state of the measuring thread: its time, and its description after "because the workload",
/// where MORE is replaced by the direction.
type Part = (fn(&Times) -> f64, &'static str);

const PARTS: [Part; 3] = [
    (|times| times.running, "used a processor MORE"),
    (|times| times.queued, "was ready to run, and waited MORE for a processor"),
    (|times| times.waiting, "waited MORE for a daemon, a device or a lock"),
];

/// The seconds in each state.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Times {
    running: f64,
    queued: f64,
    waiting: f64,
}

impl Times {
    /// Returns the times of a sample; `None` if they are unknown, or if other threads or programs
    /// used much processor time.
    pub fn of(sample: &Sample) -> Option<Self> {
        let seconds = |nanoseconds: u64| nanoseconds as f64 / 1e9;
        let workload = sample.thread_times.iter().find(|one| one.kind == "workload")?;
        // This includes programs that still run, such as a database server.
        let all = sample.user_ns + sample.system_ns;
        let others = seconds(all.saturating_sub(workload.running_ns));
        if sample.workers.is_some() || others > OTHERS_MAX * sample.seconds() {
            return None;
        }
        let (running, queued) = (seconds(workload.running_ns), seconds(workload.queued_ns));
        Some(Self { running, queued, waiting: (sample.seconds() - running - queued).max(0.0) })
    }

    /// Returns the seconds in which the thread neither ran nor was ready to run.
    pub fn waiting(&self) -> f64 {
        self.waiting
    }
}

/// Returns a clause that names the part that explains most of a difference. Returns `None` if the
/// rounds do not show this for any part, or if a sample lacks the times. `ratio` is the ratio of
/// the elapsed times.
pub(super) fn explanation(
    samples: &[&Sample],
    base: &[&Sample],
    merged: &Merged<'_>,
    ratio: &RatioInterval,
) -> Option<String> {
    // Rounds with known times may differ from the others, so they alone prove nothing.
    let are_known = || samples.iter().chain(base).all(|sample| Times::of(sample).is_some());
    if !ratio.shows_difference() || !are_known() {
        return None;
    }
    PARTS.iter().find_map(|(part, state)| {
        let without = pairing::ratio_of_pairs(samples, base, merged, &|own, base| {
            let (own_times, base_times) = (Times::of(own)?, Times::of(base)?);
            let elapsed = own.seconds() - part(&own_times) + part(&base_times);
            Some((elapsed, base.seconds()))
        })?;
        explains(ratio, &without).then(|| {
            let more = if ratio.ratio > 1.0 { "longer" } else { "for a shorter time" };
            format!(
                "because the workload {} (if this time were that of the baseline, the \
                 ratio would be {:.2}\u{d7} [{:.2}, {:.2}])",
                state.replace("MORE", more),
                without.ratio,
                without.low,
                without.high
            )
        })
    })
}

/// Whether the intervals show that the difference without a part is less than half of the whole
/// difference.
fn explains(whole: &RatioInterval, without: &RatioInterval) -> bool {
    let half_of = |bound: f64| f64::midpoint(1.0, bound);
    if !whole.shows_difference() {
        false
    } else if whole.ratio > 1.0 {
        without.high < half_of(whole.low)
    } else {
        without.low > half_of(whole.high)
    }
}

#[cfg(test)]
mod tests {
    use super::{Times, explains};
    use crate::sample::{Sample, ThreadTimes};
    use fslab_stats::RatioInterval;

    fn sample(elapsed_ms: u64, kinds: &[(&str, u64, u64)]) -> Sample {
        let times = |(kind, running, queued): &(&str, u64, u64)| ThreadTimes {
            kind: (*kind).to_owned(),
            threads: 1,
            running_ns: running * 1_000_000,
            queued_ns: queued * 1_000_000,
        };
        let own = kinds.iter().filter(|(kind, ..)| !kind.contains(' '));
        Sample {
            elapsed_ns: elapsed_ms * 1_000_000,
            user_ns: own.map(|(_, running, _)| running * 1_000_000).sum(),
            thread_times: kinds.iter().map(times).collect(),
            ..Sample::default()
        }
    }

    #[test]
    fn parts_of_one_thread_add_up_to_the_elapsed_time() {
        let times = Times::of(&sample(1000, &[("workload", 300, 100), ("kernel k", 900, 0)]));
        assert_eq!(times, Some(Times { running: 0.3, queued: 0.1, waiting: 0.6 }));
        let behind = Times::of(&sample(1000, &[("workload", 1001, 0)])).unwrap();
        assert_eq!(behind.waiting(), 0.0);
    }

    #[test]
    fn phases_in_which_others_work_too_are_not_divided() {
        let workload = ("workload", 300, 0);
        assert!(Times::of(&sample(1000, &[workload, ("workers", 40, 0)])).is_some());
        assert_eq!(Times::of(&sample(1000, &[workload, ("workers", 60, 0)])), None);
        assert_eq!(Times::of(&sample(1000, &[workload, ("programs", 60, 0)])), None);
        let single = sample(1000, &[workload]);
        let server = Sample { system_ns: 60_000_000, ..single };
        assert_eq!(Times::of(&server), None, "a program that still runs");
        assert_eq!(Times::of(&sample(1000, &[])), None);
        let several = Sample { workers: Some(2), ..sample(1000, &[workload]) };
        assert_eq!(Times::of(&several), None);
    }

    #[test]
    fn a_part_explains_a_difference_if_less_than_half_remains_without_it() {
        let interval = |low: f64, high: f64| {
            let ratio = f64::midpoint(low, high);
            RatioInterval { ratio, low, high, rounds: 10, p_value: 0.0 }
        };
        let slower = interval(1.4, 1.6);
        assert!(explains(&slower, &interval(0.98, 1.19)));
        assert!(!explains(&slower, &interval(1.0, 1.21)));
        let faster = interval(0.4, 0.6);
        assert!(explains(&faster, &interval(0.81, 1.0)));
        assert!(!explains(&faster, &interval(0.79, 1.0)));
        assert!(!explains(&interval(0.9, 1.2), &interval(0.9, 1.0)));
    }
}
