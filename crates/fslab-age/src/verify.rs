//! Compares an aged volume with a real one: the statistics of two snapshots, and both layout scores
//! over time. Individual files are not compared.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::error::Result;
use crate::score::Sums;
use crate::snapshot::{Entry, EntryKind, SnapshotReader};

/// The maximum permitted distances between an aged volume and a real one.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// For counts and bytes, as a share of the reference value.
    pub share: f64,
    /// For the distribution of sizes, the largest distance between the cumulative shares.
    pub sizes: f64,
    /// For utilisation and layout scores, an absolute difference.
    pub difference: f64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { share: 0.05, sizes: 0.05, difference: 0.05 }
    }
}

/// The comparison of one quantity.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// The compared quantity.
    pub what: String,
    /// The value of the reference.
    pub reference: f64,
    /// The value of the aged volume.
    pub aged: f64,
    /// The distance between the two values.
    pub distance: f64,
    /// The permitted distance.
    pub limit: f64,
}

impl Finding {
    /// Whether the distance does not exceed the limit.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.distance <= self.limit
    }
}

/// The statistics of a snapshot.
#[derive(Clone, Debug, Default)]
struct Census {
    files: u64,
    directories: u64,
    bytes: u64,
    used: Option<f64>,
    /// Number of files by the base-2 logarithm of their size.
    by_size: BTreeMap<u32, u64>,
    /// Layouts by the base-2 logarithm of the file's number of blocks.
    by_blocks: BTreeMap<u32, Sums>,
    total: Sums,
}

/// Compares the statistics of an aged volume's snapshot with those of a reference.
///
/// # Errors
/// Fails if an entry can't be read.
pub fn verify(
    reference: SnapshotReader,
    aged: SnapshotReader,
    limits: Limits,
) -> Result<Vec<Finding>> {
    let (reference, aged) = (Census::of(reference)?, Census::of(aged)?);
    let mut findings = vec![
        ratio("files", reference.files, aged.files, limits.share),
        ratio("directories", reference.directories, aged.directories, limits.share),
        ratio("bytes in files", reference.bytes, aged.bytes, limits.share),
        reference.sizes_against(&aged, limits.sizes),
    ];
    if let (Some(reference), Some(aged)) = (reference.used, aged.used) {
        findings.push(difference("share of the volume in use", reference, aged, limits.difference));
    }
    if let (Some(reference), Some(aged)) = (reference.total.score(), aged.total.score()) {
        findings.push(difference("layout score", reference, aged, limits.difference));
    }
    for (class, sums) in &reference.by_blocks {
        let other = aged.by_blocks.get(class).and_then(Sums::score);
        if let (Some(reference), Some(aged)) = (sums.score(), other) {
            let what = format!(
                "layout score of files with at least {} and less than twice as many blocks",
                1_u64 << class
            );
            findings.push(difference(&what, reference, aged, limits.difference));
        }
    }
    Ok(findings)
}

/// The layout score of a volume on one day.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moment {
    /// Days since the first snapshot, or since the workload began.
    pub day: f64,
    /// The layout score.
    pub score: f64,
}

/// Returns the layout scores of a real file system, from its snapshots in chronological order.
/// Snapshots without layout information are skipped.
///
/// # Errors
/// Fails if an entry can't be read.
pub fn moments(snapshots: impl Iterator<Item = Result<SnapshotReader>>) -> Result<Vec<Moment>> {
    let (mut moments, mut first) = (Vec::new(), None);
    for snapshot in snapshots {
        let snapshot = snapshot?;
        let taken_ns = snapshot.taken().taken_ns;
        let since = taken_ns.saturating_sub(*first.get_or_insert(taken_ns));
        let census = Census::of(snapshot)?;
        let moment = |score| Moment { day: since as f64 / crate::DAY_NS as f64, score };
        moments.extend(census.total.score().map(moment));
    }
    Ok(moments)
}

/// Compares two series of scores on the day on which they differ most. A day of the reference is
/// considered only if the aged score is known or can be interpolated for it. `None` if there is no
/// such day.
#[must_use]
pub fn over_time(reference: &[Moment], aged: &[Moment], limits: Limits) -> Option<Finding> {
    let pairs = reference.iter().filter_map(|at| Some((at, score_on(aged, at.day)?)));
    let apart = |pair: &(&Moment, f64)| (pair.0.score - pair.1).abs();
    let (at, other) = pairs.max_by(|one, two| apart(one).total_cmp(&apart(two)))?;
    let what =
        format!("layout score over time, on the day of the largest difference (day {:.0})", at.day);
    Some(difference(&what, at.score, other, limits.difference))
}

/// Returns the score on a day, interpolated linearly between the neighbouring days.
fn score_on(moments: &[Moment], day: f64) -> Option<f64> {
    let after = moments.iter().position(|moment| moment.day >= day)?;
    let next = moments[after];
    let Some(last) = after.checked_sub(1).map(|before| moments[before]) else {
        return (next.day <= day).then_some(next.score);
    };
    let share = (day - last.day) / (next.day - last.day);
    Some(last.score + share * (next.score - last.score))
}

fn ratio(what: &str, reference: u64, aged: u64, limit: f64) -> Finding {
    let (reference, aged) = (reference as f64, aged as f64);
    let distance = (aged - reference).abs() / reference.max(1.0);
    Finding { what: what.to_owned(), reference, aged, distance, limit }
}

fn difference(what: &str, reference: f64, aged: f64, limit: f64) -> Finding {
    let distance = (aged - reference).abs();
    Finding { what: what.to_owned(), reference, aged, distance, limit }
}

impl Census {
    fn of(snapshot: SnapshotReader) -> Result<Self> {
        let mut census = Self::default();
        let taken = snapshot.taken();
        // If the snapshot contains only a part of a file system, the share of used space is
        // unknown.
        if taken.volume_bytes > 0 && taken.used_bytes > 0 {
            census.used = Some(taken.used_bytes as f64 / taken.volume_bytes as f64);
        }
        for entry in snapshot {
            census.add(&entry?);
        }
        Ok(census)
    }

    fn add(&mut self, entry: &Entry) {
        match entry.kind {
            // The directory `lost+found` that mkfs creates is not counted.
            EntryKind::Directory if entry.name.bytes() == b"lost+found" => {}
            EntryKind::Directory => self.directories += 1,
            EntryKind::File => {
                self.files += 1;
                self.bytes += entry.size;
                *self.by_size.entry(entry.size.max(1).ilog2()).or_default() += 1;
                let layout = crate::score::FileLayout {
                    blocks: entry.blocks,
                    breaks: entry.breaks,
                    ..Default::default()
                };
                let class = entry.blocks.max(1).ilog2();
                self.by_blocks.entry(class).or_default().add(&layout, false);
                self.total.add(&layout, false);
            }
            EntryKind::Symlink | EntryKind::Other => {}
        }
    }

    /// Compares the sizes of two populations, in classes by powers of two: their medians and their
    /// Kolmogorov-Smirnov distance.
    fn sizes_against(&self, aged: &Self, limit: f64) -> Finding {
        let (mut here, mut there, mut distance) = (0, 0, 0.0_f64);
        for class in 0..64 {
            here += self.by_size.get(&class).copied().unwrap_or_default();
            there += aged.by_size.get(&class).copied().unwrap_or_default();
            let share = |count: u64, all: u64| count as f64 / all.max(1) as f64;
            distance = distance.max((share(here, self.files) - share(there, aged.files)).abs());
        }
        let what = "sizes of files (medians, to a power of two)".to_owned();
        Finding { what, reference: self.median(), aged: aged.median(), distance, limit }
    }

    fn median(&self) -> f64 {
        let mut passed = 0;
        let at = self.by_size.iter().find(|(_, count)| {
            passed += **count;
            passed * 2 >= self.files
        });
        at.map_or(0.0, |(class, _)| (1_u64 << class) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(points: &[(f64, f64)]) -> Vec<Moment> {
        points.iter().map(|&(day, score)| Moment { day, score }).collect()
    }

    #[test]
    fn scores_are_compared_only_on_days_known_for_both() {
        let aged = line(&[(10.0, 0.9), (20.0, 0.8), (30.0, 0.7)]);
        let apart = |reference: &[(f64, f64)]| {
            over_time(&line(reference), &aged, Limits::default())
                .map(|found| (found.distance * 1000.0).round() / 1000.0)
        };
        assert_eq!(apart(&[(10.0, 0.9), (15.0, 0.85), (30.0, 0.7)]), Some(0.0));
        assert_eq!(apart(&[(10.0, 0.89), (25.0, 0.65)]), Some(0.1));
        // Scores before the first and after the last day are unknown.
        assert_eq!(apart(&[(5.0, 0.1), (31.0, 0.1), (20.0, 0.82)]), Some(0.02));
        assert_eq!(apart(&[(5.0, 0.1)]), None);
    }
}
