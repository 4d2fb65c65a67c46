//! Files that are made, written and removed between two snapshots: most files there ever are.

use rand::RngExt;
use rand_pcg::Pcg64;

use super::numbers::Numbers;
use crate::profile::{DAY_NS, lognormal, short_life_ns, time_of_day};
use crate::workload::{Operation, OperationKind};

/// A model of files that live less than a day.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ShortLived {
    /// How many a day.
    pub per_day: f64,
    /// Mean size, in bytes.
    pub mean_bytes: f64,
    /// Spread: sigma of the logarithm of the size.
    pub sigma: f64,
    /// None is larger, in bytes.
    pub largest: u64,
}

impl ShortLived {
    /// The operations of an interval, in `directories`; all files are gone at its end.
    pub(super) fn operations(
        &self,
        from_ns: u64,
        to_ns: u64,
        directories: &[u64],
        numbers: &mut Numbers,
        random: &mut Pcg64,
    ) -> Vec<Operation> {
        let days = to_ns.saturating_sub(from_ns) as f64 / DAY_NS as f64;
        let count = (days * self.per_day).round().max(0.0) as u64;
        let mu = self.mean_bytes.max(1.0).ln() - self.sigma * self.sigma / 2.0;
        let mut rows = Vec::new();
        for _ in 0..count {
            let day = random.random_range(0..(days.ceil() as u64).max(1));
            let time_ns = from_ns + day * DAY_NS + time_of_day(random);
            let gone_ns = (time_ns + short_life_ns(random)).min(to_ns);
            let length = lognormal(random, mu, self.sigma, self.largest);
            let place = directories.get(random.random_range(0..directories.len().max(1)));
            let (file, directory) = (numbers.fresh(), place.copied().unwrap_or_default());
            if time_ns >= to_ns {
                continue;
            }
            let operation = Operation { time_ns, file, ..Operation::default() };
            let (make, write) = (OperationKind::Create, OperationKind::Write);
            rows.push(Operation { kind: make, directory, mode: 0o644, ..operation.clone() });
            rows.push(Operation { kind: write, length, ..operation.clone() });
            rows.push(Operation { kind: OperationKind::Remove, time_ns: gone_ns, ..operation });
        }
        rows
    }
}
