//! Files that are created, written and removed between two snapshots. In real use, most files are
//! of this kind.

mod days;

use rand::RngExt;
use rand_pcg::Pcg64;

pub use days::Days;

use super::inode_reuse::Numbers;
use crate::profile::{DAY_NS, lognormal, short_life_ns, time_of_day};
use crate::workload::{Operation, OperationKind};

/// The source of files that live less than a day.
#[derive(Clone, Debug, PartialEq)]
pub enum ShortLived {
    /// A statistical model.
    Drawn(Model),
    /// Recorded days. For each day of the workload, one of them is chosen at random, as in Smith
    /// and Seltzer (1997). Their days came from a trace.
    Recorded(Days),
}

/// A statistical model of files that live less than a day.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Model {
    /// Number of files per day.
    pub per_day: f64,
    /// Mean size, in bytes.
    pub mean_bytes: f64,
    /// Standard deviation of the natural logarithm of the size.
    pub sigma: f64,
    /// Maximum size in bytes.
    pub largest: u64,
}

/// A file that is removed within a day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Brief {
    /// Time of creation, in nanoseconds since the start of its day.
    pub made_ns: u64,
    /// Lifetime in nanoseconds.
    pub life_ns: u64,
    /// Final size in bytes.
    pub bytes: u64,
    /// The rank of the file's directory by activity; 0 is the busiest directory.
    pub rank: usize,
}

impl ShortLived {
    /// Returns the operations on the short-lived files of an interval. All of these files are
    /// removed by the end of the interval. `directories` contains the numbers of directories with
    /// the numbers of files created or changed in them, busiest first.
    pub(super) fn operations(
        &self,
        from_ns: u64,
        to_ns: u64,
        directories: &[(u64, u64)],
        numbers: &mut Numbers,
        random: &mut Pcg64,
    ) -> Vec<Operation> {
        let mut rows = Vec::new();
        let busy = Busy::new(directories);
        for (day, file) in self.files(to_ns.saturating_sub(from_ns), &busy, random) {
            let time_ns = from_ns + day * DAY_NS + file.made_ns;
            if time_ns >= to_ns {
                continue;
            }
            let gone_ns = time_ns.saturating_add(file.life_ns).min(to_ns);
            let place = file.rank % directories.len().max(1);
            let directory = directories.get(place).map_or(0, |(directory, _)| *directory);
            let operation = Operation { time_ns, file: numbers.fresh(), ..Operation::default() };
            let (make, write) = (OperationKind::Create, OperationKind::Write);
            rows.push(Operation { kind: make, directory, mode: 0o644, ..operation.clone() });
            if file.bytes > 0 {
                rows.push(Operation { kind: write, length: file.bytes, ..operation.clone() });
            }
            rows.push(Operation { kind: OperationKind::Remove, time_ns: gone_ns, ..operation });
        }
        rows
    }

    /// Returns the files of an interval of `length_ns` nanoseconds, each with its day.
    fn files(&self, length_ns: u64, busy: &Busy, random: &mut Pcg64) -> Vec<(u64, Brief)> {
        let days = length_ns.div_ceil(DAY_NS);
        match self {
            Self::Drawn(model) => {
                let whole = length_ns as f64 / DAY_NS as f64 * model.per_day;
                let file = |_| (random.random_range(0..days.max(1)), model.draw(busy, random));
                (0..whole.round().max(0.0) as u64).map(file).collect()
            }
            Self::Recorded(recorded) => {
                let of_day = |day| recorded.draw(random).iter().map(move |file| (day, *file));
                (0..days).flat_map(of_day).collect()
            }
        }
    }
}

impl Model {
    fn draw(&self, busy: &Busy, random: &mut Pcg64) -> Brief {
        let mu = libm::log(self.mean_bytes.max(1.0)) - self.sigma * self.sigma / 2.0;
        Brief {
            made_ns: time_of_day(random),
            life_ns: short_life_ns(random),
            bytes: lognormal(random, mu, self.sigma, self.largest),
            rank: busy.draw(random),
        }
    }
}

/// For each directory, the number of files created or changed in it, as cumulative sums, busiest
/// directory first.
struct Busy(Vec<u64>);

impl Busy {
    fn new(directories: &[(u64, u64)]) -> Self {
        let sum = |sum: &mut u64, (_, count): &(u64, u64)| {
            *sum += count;
            Some(*sum)
        };
        Self(directories.iter().scan(0, sum).collect())
    }

    /// Returns the index of a random directory, weighted by the number of files created or changed
    /// in it.
    fn draw(&self, random: &mut Pcg64) -> usize {
        let Some(total) = self.0.last() else { return 0 };
        let at = random.random_range(0..*total);
        self.0.partition_point(|sum| *sum <= at)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use rand::SeedableRng;

    use super::*;

    #[test]
    fn short_lived_files_are_spread_by_directory_activity() {
        let mut numbers = Numbers::default();
        (0..10_000).for_each(|_| numbers.note_active(7));
        (0..90_000).for_each(|_| numbers.note_active(8));
        let active = numbers.take_active();
        assert_eq!(active, [(8, 90_000), (7, 10_000)]);
        let model = Model { per_day: 2000.0, mean_bytes: 1000.0, sigma: 1.0, largest: 1 << 20 };
        let mut random = Pcg64::seed_from_u64(1);
        let rows =
            ShortLived::Drawn(model).operations(0, DAY_NS, &active, &mut numbers, &mut random);
        let mut made: BTreeMap<u64, u32> = BTreeMap::new();
        for row in rows.iter().filter(|row| row.kind == OperationKind::Create) {
            *made.entry(row.directory).or_default() += 1;
        }
        assert_eq!(made.values().sum::<u32>(), 2000);
        // A tenth of the files is expected, within five standard deviations.
        assert!((133..267).contains(&made[&7]), "{made:?}");
    }
}
