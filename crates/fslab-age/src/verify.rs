//! How near an aged volume comes to a real one: two snapshots are compared, as populations and not
//! file by file.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::error::Result;
use crate::score::Sums;
use crate::snapshot::{Entry, EntryKind, SnapshotReader};

/// What is compared, with how far apart it may be.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Of counts and bytes: as a share of the reference.
    pub share: f64,
    /// Of the distribution of sizes: the largest distance of the two cumulative shares.
    pub sizes: f64,
    /// Of utilisation and of layout scores: as a difference.
    pub difference: f64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { share: 0.05, sizes: 0.05, difference: 0.05 }
    }
}

/// One comparison.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// What is compared.
    pub what: String,
    /// The value of the reference.
    pub reference: f64,
    /// That of the aged volume.
    pub aged: f64,
    /// How far apart they are.
    pub distance: f64,
    /// How far apart they may be.
    pub limit: f64,
}

impl Finding {
    /// Whether it is near enough.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.distance <= self.limit
    }
}

/// A population.
#[derive(Clone, Debug, Default)]
struct Census {
    files: u64,
    directories: u64,
    bytes: u64,
    used: Option<f64>,
    /// Files by the logarithm, base 2, of their sizes.
    by_size: BTreeMap<u32, u64>,
    /// Layouts by the logarithm of their blocks.
    by_blocks: BTreeMap<u32, Sums>,
    total: Sums,
}

/// Compares the population of an aged volume with that of a reference.
///
/// # Errors
/// Where an entry can't be read.
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
            let what = format!("layout score, files from {} blocks", 1_u64 << class);
            findings.push(difference(&what, reference, aged, limits.difference));
        }
    }
    Ok(findings)
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
        // Of a part of a file system nobody knows what it has of the space in use.
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
            // What mkfs makes is no part of a population.
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

    /// The distance of Kolmogorov and Smirnov between the sizes of two populations, by powers of
    /// two, and the medians beside.
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
