//! Derives a workload from successive snapshots.
//!
//! The content of the first snapshot is created at time 0. The changes between two successive
//! snapshots happen between the times of these snapshots. Files are created and changed at the
//! times recorded in their inodes. Files are removed at random times drawn from the seed, as in
//! Smith and Seltzer (1997). The times of directories are not used. Directories are created or
//! moved at the beginning of the interval between two snapshots, and removed at its end.
//!
//! File names in the workload are made unique by appending the number of the file.

mod files;
mod inode_reuse;
mod short_lived;
mod tree;

use std::num::NonZeroU64;
use std::path::{Path, PathBuf};

use rand::SeedableRng;
use rand_pcg::Pcg64;

pub use short_lived::{Days, Model, ShortLived};

use crate::diff::{Change, Diff, Summary};
use crate::error::{Error, Result};
use crate::snapshot::{EntryKind, SnapshotReader};
use crate::table::{Sorter, directory_of};
use crate::workload::{self, Operation, Provenance};
use inode_reuse::Numbers;
use tree::TreeChanges;

/// Settings for deriving a workload.
#[derive(Clone, Debug)]
pub struct Options {
    /// Seed for the times of removals and for files that live less than a day.
    pub seed: u64,
    /// Whether every changed file is rewritten, as in Smith and Seltzer (1997). Otherwise a file
    /// that grew is appended to, and a file that shrank is truncated.
    pub rewrite_all: bool,
    /// Number of inodes per directory. Each range of this many inodes gets one directory. With
    /// `None`, the real directories are used. Smith and Seltzer (1997) used one directory for each
    /// cylinder group.
    pub inodes_per_directory: Option<NonZeroU64>,
    /// Model of files that live less than a day, which snapshots do not contain.
    pub short_lived: Option<ShortLived>,
    /// Size of the target file system in bytes; 0 to use the size in the snapshots.
    pub volume_bytes: u64,
}

/// The interval between two snapshots, in workload time.
#[derive(Clone, Copy, Debug)]
struct Interval {
    from_ns: u64,
    to_ns: u64,
}

/// The result of deriving a workload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Derived {
    /// Number of operations.
    pub operations: u64,
    /// The differences between all pairs of successive snapshots.
    pub summary: Summary,
    /// Number of entries that were skipped, because they are neither files, directories nor
    /// symbolic links.
    pub left_out: u64,
    /// Number of entries whose directory is in no snapshot; they are created in the root directory.
    pub orphans: u64,
}

/// Derives a workload from snapshots in chronological order, and writes it to `output`.
///
/// # Errors
/// Fails if a file is not a snapshot or the snapshots are out of order, and on I/O errors.
pub fn derive(snapshots: &[PathBuf], output: &Path, options: &Options) -> Result<Derived> {
    let [first, ..] = snapshots else {
        return Err(Error::parameter("a workload needs at least one snapshot"));
    };
    let taken = SnapshotReader::open(first)?.taken().clone();
    let mut maker = Maker {
        options,
        beside: directory_of(output).to_owned(),
        random: Pcg64::seed_from_u64(options.seed),
        start_ns: taken.taken_ns,
        interval: Interval { from_ns: 0, to_ns: 0 },
        numbers: Numbers::default(),
        derived: Derived::default(),
    };
    let source = format!("{} snapshots of {}", snapshots.len(), taken.source);
    let chosen = options.volume_bytes;
    let provenance = Provenance {
        source,
        seed: options.seed,
        volume_bytes: if chosen == 0 { taken.volume_bytes } else { chosen },
        made_by: format!("fslab {}", env!("CARGO_PKG_VERSION")),
    };
    let intervals = std::iter::once(None).chain((1..snapshots.len()).map(Some));
    let mut intervals = intervals.map(|pair| maker.interval(snapshots, pair));
    let mut failed = None;
    let rows = std::iter::from_fn(|| match intervals.next()? {
        Ok(rows) => Some(rows),
        Err(error) => {
            failed = Some(error);
            None
        }
    });
    let operations = workload::write(output, &provenance, rows.flatten());
    drop(intervals);
    if let Some(error) = failed {
        std::fs::remove_file(output).map_err(Error::file(output))?;
        return Err(error);
    }
    maker.derived.operations = operations?;
    Ok(maker.derived)
}

type Rows = Box<dyn Iterator<Item = Result<Operation>>>;

struct Maker<'a> {
    options: &'a Options,
    beside: PathBuf,
    random: Pcg64,
    /// The time when the first snapshot was taken.
    start_ns: i64,
    /// The interval from the previous to the current snapshot.
    interval: Interval,
    numbers: Numbers,
    derived: Derived,
}

impl Maker<'_> {
    /// Returns the operations that turn the previous snapshot into the one with index `pair`. With
    /// `None`, returns the operations that create the first snapshot.
    fn interval(&mut self, snapshots: &[PathBuf], pair: Option<usize>) -> Result<Rows> {
        let Some(index) = pair else {
            let after = SnapshotReader::open(&snapshots[0])?;
            let changes = Diff::new(std::iter::empty(), after);
            let rows = self.rows(&snapshots[0], changes)?;
            self.numbers.set_populated();
            return Ok(rows);
        };
        let before = SnapshotReader::open(&snapshots[index - 1])?;
        let after = SnapshotReader::open(&snapshots[index])?;
        let (from, to) = (before.taken().taken_ns, after.taken().taken_ns);
        if to < from {
            let what = format!(
                "{} is older than the snapshot before it in the list",
                snapshots[index].display()
            );
            return Err(Error::parameter(what));
        }
        let (from_ns, to_ns) = (self.since_start(from), self.since_start(to));
        self.interval = Interval { from_ns, to_ns };
        self.rows(&snapshots[index], Diff::new(before, after))
    }

    fn since_start(&self, time_ns: i64) -> u64 {
        u64::try_from(time_ns.saturating_sub(self.start_ns)).unwrap_or_default()
    }

    /// Converts changes to operations. `path` is the path of the snapshot after the changes.
    fn rows(&mut self, path: &Path, changes: impl Iterator<Item = Result<Change>>) -> Result<Rows> {
        let mut tree = TreeChanges::default();
        let mut sorter = Sorter::new(&self.beside, |operation: &Operation| operation.time_ns);
        let mut opened = Vec::new();
        let mut tree_is_done = false;
        for change in changes {
            let change = change?;
            self.derived.summary.add(&change);
            if kind_of(&change) == EntryKind::Directory {
                tree.add(change);
                continue;
            }
            // In a snapshot, directories come before files.
            if !std::mem::replace(&mut tree_is_done, true) {
                opened = self.open_tree(path, &mut tree)?;
            }
            self.file(change, &mut sorter)?;
        }
        if !tree_is_done {
            opened = self.open_tree(path, &mut tree)?;
        }
        self.add_short_lived(&mut sorter)?;
        let closed = tree.close(self.interval.to_ns);
        let rows = opened.into_iter().map(Ok).chain(sorter.finish()?);
        Ok(Box::new(rows.chain(closed.into_iter().map(Ok))))
    }

    /// Returns the operations for new and moved directories.
    fn open_tree(&mut self, path: &Path, tree: &mut TreeChanges) -> Result<Vec<Operation>> {
        if self.options.inodes_per_directory.is_some() {
            tree.forget();
        }
        let opened = tree.open(&mut self.numbers, self.interval.from_ns);
        let circle = |inode| {
            let what = format!(
                "the directory with the inode {inode} contains itself, which is impossible; take \
                 the snapshot again"
            );
            Error::unfit(path, what)
        };
        let (rows, orphans) = opened.map_err(circle)?;
        self.derived.orphans += orphans;
        Ok(rows)
    }

    fn file(&mut self, change: Change, sorter: &mut Sorter<Operation, u64>) -> Result<()> {
        if kind_of(&change) == EntryKind::Other {
            self.derived.left_out += 1;
            return Ok(());
        }
        self.operations(change).into_iter().try_for_each(|row| sorter.push(row))
    }

    fn add_short_lived(&mut self, sorter: &mut Sorter<Operation, u64>) -> Result<()> {
        let Interval { from_ns, to_ns } = self.interval;
        let Some(model) = &self.options.short_lived else { return Ok(()) };
        let directories = self.numbers.take_active();
        let (numbers, random) = (&mut self.numbers, &mut self.random);
        let rows = model.operations(from_ns, to_ns, &directories, numbers, random);
        rows.into_iter().try_for_each(|row| sorter.push(row))
    }
}

fn kind_of(change: &Change) -> EntryKind {
    match change {
        Change::Created(entry) | Change::Deleted(entry) => entry.kind,
        Change::Changed { after, .. } => after.kind,
    }
}
