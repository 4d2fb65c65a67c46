//! The quantities of samples that claims can be about.

use serde::{Deserialize, Serialize};

use fslab_report::sample::{Record, Sample};

/// A quantity of a sample that a claim can be about.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "snake_case")]
pub enum Quantity {
    /// Wall-clock time.
    #[default]
    Elapsed,
    /// Time in the kernel, and processor time of the daemon. In the papers the layers ran in the
    /// kernel; here their work is done by the daemon.
    System,
    /// All processor time, including the daemon's.
    Processor,
    /// Bytes that the written data occupies on the device.
    Stored,
    /// Cost of an operation in the last tenth of the phase, divided by that in the first tenth. It
    /// is about 1 if the total cost is linear.
    Growth,
}

/// Ratios are multiplied by this factor and stored as nanoseconds.
const PARTS: f64 = 1e9;

impl Quantity {
    /// Returns the name for readers.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Elapsed => "elapsed time",
            Self::System => "system time",
            Self::Processor => "processor time",
            Self::Stored => "stored bytes",
            Self::Growth => "growth of the cost",
        }
    }

    /// Returns the records with this quantity in place of the elapsed time. A report of these
    /// records then handles the quantity like a time, including rounds, sums and repeated runs.
    /// Samples without the quantity are left out.
    #[must_use]
    pub fn in_place_of_time(self, records: &[Record]) -> Vec<Record> {
        let replace = |record: &Record| match record {
            Record::Sample(sample) => {
                let elapsed_ns = self.of(sample)?;
                Some(Record::Sample(Sample { elapsed_ns, ..sample.clone() }))
            }
            other => Some(other.clone()),
        };
        records.iter().filter_map(replace).collect()
    }

    /// Returns the factor that converts "seconds" in a report to this quantity.
    #[must_use]
    pub fn scale(self) -> f64 {
        if self == Self::Stored { PARTS } else { 1.0 }
    }

    fn of(self, sample: &Sample) -> Option<u64> {
        match self {
            Self::Elapsed => Some(sample.elapsed_ns),
            Self::System => Some(sample.system_ns + sample.daemon_cpu_ns.unwrap_or(0)),
            Self::Processor => {
                Some(sample.user_ns + sample.system_ns + sample.daemon_cpu_ns.unwrap_or(0))
            }
            Self::Stored => sample.stored_bytes,
            Self::Growth => growth(sample).map(|ratio| (ratio * PARTS).round() as u64),
        }
    }
}

/// Returns the cost of an operation in the last tenth of the phase, divided by that in the first
/// tenth.
fn growth(sample: &Sample) -> Option<f64> {
    let all = sample.along.last()?;
    let reached = |share: u64| {
        let wanted = all.operations.checked_mul(share)?.div_ceil(10);
        sample.along.iter().find(|milestone| milestone.operations >= wanted)
    };
    let (first, before_last) = (reached(1)?, reached(9)?);
    let each = |operations: u64, nanoseconds: u64| {
        (operations > 0 && nanoseconds > 0).then(|| nanoseconds as f64 / operations as f64)
    };
    let last = each(
        all.operations - before_last.operations,
        all.elapsed_ns.saturating_sub(before_last.elapsed_ns),
    )?;
    Some(last / each(first.operations, first.elapsed_ns)?)
}

#[cfg(test)]
mod tests {
    use super::growth;
    use fslab_report::sample::Sample;
    use fslab_stats::Milestone;

    /// If the n-th of 100 operations takes n ns, the mean is 95.5 ns for the last ten operations
    /// and 5.5 ns for the first ten.
    #[test]
    fn growth_is_the_cost_ratio_of_the_last_and_first_tenth() {
        let milestone = |n: u64| Milestone { operations: n, elapsed_ns: n * (n + 1) / 2 };
        let along = (1..=100).map(milestone).collect();
        let grown = growth(&Sample { along, ..Sample::default() }).unwrap_or(0.0);
        assert!((grown - 95.5 / 5.5).abs() < 1e-9, "{grown}");
        assert_eq!(growth(&Sample::default()), None);
    }
}
