//! Decides when there are enough rounds. The stop rule depends only on the widths of the intervals,
//! not on whether they show a difference. Stopping at the first difference would eventually find
//! one between equal targets.

use std::collections::BTreeMap;

use fslab_report::sample::Sample;
use fslab_stats::half_width;

/// The times measured so far, by workload and round. The times of all sizes of a sweep are added
/// up.
#[derive(Debug, Default)]
pub(super) struct Precision {
    baseline: String,
    /// The second copy of the baseline; the width of its interval does not matter.
    second_copy: Option<String>,
    workloads: BTreeMap<String, BTreeMap<u32, Block>>,
}

/// Seconds by phase and target.
type Block = BTreeMap<(String, String), f64>;

/// The width of the interval of one target in one phase.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Width {
    pub phase: String,
    pub target: String,
    /// Half the width of the interval of the log ratio; infinite after one round.
    pub half: f64,
}

impl Precision {
    pub fn new(baseline: &str, second_copy: Option<String>) -> Self {
        Self { baseline: baseline.to_owned(), second_copy, ..Self::default() }
    }

    /// Sets the samples of a block and drops those of an earlier attempt.
    pub fn set_block(&mut self, workload: &str, round: u32, samples: &[Sample]) {
        let mut block = Block::new();
        for sample in samples.iter().filter(|s| Some(&s.target) != self.second_copy.as_ref()) {
            *block.entry((sample.phase.clone(), sample.target.clone())).or_default() +=
                sample.seconds();
        }
        self.workloads.entry(workload.to_owned()).or_default().insert(round, block);
    }

    /// Returns the widths of a workload's intervals; empty if no target was measured together with
    /// the baseline.
    pub fn widths(&self, workload: &str) -> Vec<Width> {
        let mut pairs: BTreeMap<(&str, &str), Vec<(f64, f64)>> = BTreeMap::new();
        for block in self.workloads.get(workload).into_iter().flat_map(BTreeMap::values) {
            for ((phase, target), seconds) in block {
                let base = block.get(&(phase.clone(), self.baseline.clone()));
                if let Some(base) = base.filter(|_| *target != self.baseline) {
                    pairs.entry((phase, target)).or_default().push((*seconds, *base));
                }
            }
        }
        let width = |((phase, target), pairs): ((&str, &str), Vec<(f64, f64)>)| Width {
            phase: phase.to_owned(),
            target: target.to_owned(),
            half: half_width(&pairs).unwrap_or(f64::INFINITY),
        };
        pairs.into_iter().map(width).collect()
    }

    /// Whether an interval of a workload is wider than requested.
    pub fn is_wide(&self, workload: &str, half_width: f64) -> bool {
        self.widths(workload).iter().any(|width| width.half > half_width)
    }
}

#[cfg(test)]
mod tests {
    use super::Precision;
    use fslab_report::sample::Sample;

    fn sample(target: &str, phase: &str, milliseconds: u64) -> Sample {
        Sample {
            target: target.to_owned(),
            phase: phase.to_owned(),
            elapsed_ns: milliseconds * 1_000_000,
            ..Sample::default()
        }
    }

    /// Returns measurements in which the read times of the baseline and of `even` vary together
    /// from round to round. The write times of `uneven` vary, but those of the baseline do not.
    fn precision(rounds: u32) -> Precision {
        let mut precision = Precision::new("base", None);
        for round in 0..rounds {
            let base = 100 + 10 * u64::from(round % 3);
            let samples = [
                sample("base", "read", base),
                sample("even", "read", 2 * base),
                sample("uneven", "write", base),
                sample("base", "write", 100),
            ];
            precision.set_block("w", round, &samples);
        }
        precision
    }

    #[test]
    fn only_correlated_times_give_narrow_intervals() {
        let widths = precision(6).widths("w");
        assert_eq!(widths.len(), 2);
        assert!(widths[0].target == "even" && widths[0].half < 1e-9, "{widths:?}");
        assert!(widths[1].target == "uneven" && widths[1].half > 0.05, "{widths:?}");
        assert!(precision(6).is_wide("w", 0.025));
        assert!(!precision(6).is_wide("w", 0.5));
    }

    #[test]
    fn one_round_gives_a_wide_interval_but_one_target_gives_none() {
        assert!(precision(1).is_wide("w", 1e9));
        assert!(!precision(1).is_wide("another", 0.0));
        let mut alone = Precision::new("gone", None);
        alone.set_block("w", 0, &[sample("a", "read", 1)]);
        assert!(!alone.is_wide("w", 0.0));
    }

    #[test]
    fn a_later_attempt_replaces_an_earlier_one_and_sizes_are_summed() {
        let mut precision = precision(6);
        for round in 0..6 {
            let samples = [
                sample("base", "write", 50),
                sample("base", "write", 50),
                sample("uneven", "write", 300),
            ];
            precision.set_block("w", round, &samples);
        }
        let widths = precision.widths("w");
        assert!(widths.len() == 1 && widths[0].half < 1e-9, "{widths:?}");
    }

    #[test]
    fn second_copy_does_not_prolong_a_run() {
        let mut precision = Precision::new("base", Some("base, second copy".to_owned()));
        for round in 0..6 {
            let copy = 50 << round;
            let samples = [
                sample("base", "read", 100),
                sample("even", "read", 200),
                sample("base, second copy", "read", copy),
            ];
            precision.set_block("w", round, &samples);
        }
        assert!(!precision.is_wide("w", 0.025), "{:?}", precision.widths("w"));
    }
}
