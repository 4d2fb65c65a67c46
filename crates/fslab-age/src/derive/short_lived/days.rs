//! Recorded days: for each day of a workload, the files that lived less than a day.

use std::collections::{BTreeMap, HashMap};

use rand::RngExt;
use rand_pcg::Pcg64;

use super::Brief;
use crate::error::{Error, Result};
use crate::profile::DAY_NS;
use crate::workload::{Operation, OperationKind};

/// Files that lived less than a day, by the day of their creation. Days without files are included,
/// so that they are drawn as often as they occurred.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Days {
    days: Vec<Vec<Brief>>,
}

/// Maximum length of a recording in days. Wrong times must not cause a huge allocation.
const DAYS_MAX: u64 = 36_500;

/// A file that has not been removed yet.
#[derive(Clone, Copy)]
struct Living {
    made_ns: u64,
    bytes: u64,
    directory: u64,
}

impl Days {
    /// Collects the files of a workload that lived less than a day.
    ///
    /// # Errors
    /// Returns errors of the iterator. Also fails if no file lived less than a day, or if the
    /// recording covers too many days.
    pub fn of(operations: impl Iterator<Item = Result<Operation>>) -> Result<Self> {
        let mut living: HashMap<u64, Living> = HashMap::new();
        let mut gone: BTreeMap<u64, Vec<(Living, u64)>> = BTreeMap::new();
        let mut last_day = 0;
        for operation in operations {
            let Operation { kind, file, time_ns, directory, offset, length, .. } = operation?;
            last_day = time_ns / DAY_NS;
            if last_day >= DAYS_MAX {
                return Err(too_long(last_day));
            }
            match kind {
                OperationKind::Create => {
                    living.insert(file, Living { made_ns: time_ns, bytes: 0, directory });
                }
                OperationKind::Write => {
                    if let Some(file) = living.get_mut(&file) {
                        file.bytes = file.bytes.max(offset.saturating_add(length));
                    }
                }
                OperationKind::Remove => {
                    if let Some(file) = living.remove(&file)
                        && time_ns.saturating_sub(file.made_ns) < DAY_NS
                    {
                        gone.entry(file.made_ns / DAY_NS).or_default().push((file, time_ns));
                    }
                }
                _ => {}
            }
        }
        if gone.is_empty() {
            let what = "no file of the recording lived less than a day, so there are no \
                        short-lived files to add";
            return Err(Error::parameter(what));
        }
        let days = (0..=last_day).map(|day| gone.remove(&day).unwrap_or_default());
        Ok(Self { days: days.map(|files| ranked(&files)).collect() })
    }

    /// Returns the number of days and the total number of files.
    #[must_use]
    pub fn counts(&self) -> (usize, usize) {
        (self.days.len(), self.days.iter().map(Vec::len).sum())
    }

    /// Returns the files of a random day.
    pub(super) fn draw(&self, random: &mut Pcg64) -> &[Brief] {
        &self.days[random.random_range(0..self.days.len())]
    }
}

fn too_long(last_day: u64) -> Error {
    Error::parameter(format!(
        "the recording lasts until day {last_day}, but at most {DAYS_MAX} days (100 years) are \
         supported; correct the recorded times, or split the recording"
    ))
}

/// Returns the files of a day in order of creation, each with the rank of its directory.
fn ranked(files: &[(Living, u64)]) -> Vec<Brief> {
    let mut counts: HashMap<u64, usize> = HashMap::new();
    files.iter().for_each(|(file, _)| *counts.entry(file.directory).or_default() += 1);
    let mut order: Vec<(usize, u64)> =
        counts.into_iter().map(|(directory, count)| (count, directory)).collect();
    order.sort_unstable_by_key(|(count, directory)| (std::cmp::Reverse(*count), *directory));
    let places = order.iter().enumerate().map(|(rank, (_, directory))| (*directory, rank));
    let ranks: HashMap<u64, usize> = places.collect();
    let brief = |(file, gone_ns): &(Living, u64)| Brief {
        made_ns: file.made_ns % DAY_NS,
        life_ns: gone_ns - file.made_ns,
        bytes: file.bytes,
        rank: ranks.get(&file.directory).copied().unwrap_or_default(),
    };
    let mut briefs: Vec<_> = files.iter().map(brief).collect();
    briefs.sort_unstable_by_key(|file| (file.made_ns, file.life_ns));
    briefs
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u64 = 3_600_000_000_000;

    fn file(file: u64, directory: u64, made_ns: u64, bytes: u64, gone_ns: u64) -> [Operation; 3] {
        let at = |time_ns, kind| Operation { time_ns, kind, file, ..Operation::default() };
        [
            Operation { directory, ..at(made_ns, OperationKind::Create) },
            Operation { length: bytes, ..at(made_ns, OperationKind::Write) },
            at(gone_ns, OperationKind::Remove),
        ]
    }

    #[test]
    fn days_contain_only_files_that_lived_less_than_a_day() {
        let operations = [
            file(1, 7, HOUR, 10, 2 * HOUR),
            file(2, 8, HOUR, 20, 3 * HOUR),
            file(3, 8, 5 * HOUR, 30, 6 * HOUR),
            // A file that lived longer than a day, and a file that lived past midnight.
            file(4, 8, 6 * HOUR, 40, 31 * HOUR),
            file(5, 9, 47 * HOUR, 50, 50 * HOUR),
        ];
        let mut operations = operations.concat();
        operations.sort_by_key(|operation| operation.time_ns);
        let days = Days::of(operations.into_iter().map(Ok)).unwrap();
        assert_eq!(days.counts(), (3, 4));
        let told = |day: usize| -> Vec<_> {
            let files = days.days[day].iter();
            files
                .map(|file| (file.made_ns / HOUR, file.life_ns / HOUR, file.bytes, file.rank))
                .collect()
        };
        // Directory 8 is the busiest directory of the first day.
        assert_eq!(told(0), [(1, 1, 10, 1), (1, 2, 20, 0), (5, 1, 30, 0)]);
        assert_eq!((told(1), told(2)), (vec![(23, 3, 50, 0)], vec![]));
        assert!(Days::of(std::iter::empty()).is_err());
    }

    /// No part of a recording may be dropped silently.
    #[test]
    fn a_recording_of_more_than_a_hundred_years_is_refused() {
        let of = |day: u64| {
            let made_ns = day * DAY_NS;
            let files = [file(1, 7, HOUR, 10, 2 * HOUR), file(2, 7, made_ns, 20, made_ns + HOUR)];
            Days::of(files.concat().into_iter().map(Ok))
        };
        assert_eq!(of(DAYS_MAX - 1).unwrap().counts(), (36_500, 2));
        for day in [DAYS_MAX, DAYS_MAX + 1, u64::MAX / DAY_NS - 1] {
            let message = of(day).unwrap_err().to_string();
            assert!(message.contains(&format!("until day {day},")), "{message}");
        }
    }
}
