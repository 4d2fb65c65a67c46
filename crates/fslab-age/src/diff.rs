//! The differences between two snapshots. Both snapshots are sorted and read side by side, so the
//! memory needed does not depend on their size.

use std::cmp::Ordering;
use std::path::Path;

use serde::Serialize;

use crate::error::{Error, Result};
use crate::snapshot::dataset::SnapshotDataset;
use crate::snapshot::{Entry, SnapshotReader};

/// A change of one file or directory between two snapshots.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// The file or directory was created.
    Created(Entry),
    /// The file or directory was deleted.
    Deleted(Entry),
    /// The file or directory was changed.
    Changed {
        /// The earlier entry.
        before: Entry,
        /// The later entry.
        after: Entry,
        /// The differences.
        what: Differences,
    },
}

/// The differences of a file or directory that exists in both snapshots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Differences {
    /// The content of the file was changed, but not its size.
    pub modified: bool,
    /// The file grew.
    pub grown: bool,
    /// The file shrank.
    pub truncated: bool,
    /// The file or directory was renamed or moved to another directory.
    pub renamed: bool,
    /// The owner or permissions were changed.
    pub attributes: bool,
}

impl Differences {
    /// Compares an entry with a later one of the same file. For directories, only names and
    /// attributes are compared.
    #[must_use]
    pub fn between(before: &Entry, after: &Entry) -> Self {
        let is_directory = before.kind == crate::snapshot::EntryKind::Directory;
        let size = after.size.cmp(&before.size);
        let written = !is_directory && (after.modified_ns != before.modified_ns || size.is_ne());
        Self {
            modified: written && size == Ordering::Equal,
            grown: written && size == Ordering::Greater,
            truncated: written && size == Ordering::Less,
            renamed: before.directory != after.directory || before.name != after.name,
            attributes: (before.mode, before.uid, before.gid) != (after.mode, after.uid, after.gid),
        }
    }

    fn is_any(self) -> bool {
        self != Self::default()
    }
}

/// The number of differences of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Entries in both snapshots without a difference.
    pub unchanged: u64,
    /// Created entries.
    pub created: u64,
    /// Deleted entries.
    pub deleted: u64,
    /// Entries that were written without changing their size.
    pub modified: u64,
    /// Entries that grew.
    pub grown: u64,
    /// Entries that shrank.
    pub truncated: u64,
    /// Renamed or moved entries.
    pub renamed: u64,
    /// Entries with another owner, group or permissions.
    pub attributes: u64,
    /// Bytes of created files.
    pub created_bytes: u64,
    /// Bytes of deleted files.
    pub deleted_bytes: u64,
}

impl Summary {
    /// Counts all changes of a comparison and the unchanged entries.
    fn add_all<A, B>(&mut self, mut diff: Diff<A, B>, look: &mut impl FnMut(&Change)) -> Result<()>
    where
        A: Iterator<Item = Result<Entry>>,
        B: Iterator<Item = Result<Entry>>,
    {
        for change in diff.by_ref() {
            let change = change?;
            self.add(&change);
            look(&change);
        }
        self.unchanged += diff.unchanged();
        Ok(())
    }

    /// Counts a change.
    pub fn add(&mut self, change: &Change) {
        match change {
            Change::Created(entry) => {
                self.created += 1;
                self.created_bytes += entry.size;
            }
            Change::Deleted(entry) => {
                self.deleted += 1;
                self.deleted_bytes += entry.size;
            }
            Change::Changed { what, .. } => {
                self.modified += u64::from(what.modified);
                self.grown += u64::from(what.grown);
                self.truncated += u64::from(what.truncated);
                self.renamed += u64::from(what.renamed);
                self.attributes += u64::from(what.attributes);
            }
        }
    }
}

/// Compares two snapshots, which are both files or both data sets, and calls `look` with each
/// change. Data sets are compared part by part.
///
/// # Errors
/// Fails if only one snapshot is a data set, if two data sets have different numbers of parts, and
/// if a file can't be read.
pub fn compare(before: &Path, after: &Path, mut look: impl FnMut(&Change)) -> Result<Summary> {
    let mut summary = Summary::default();
    match (before.is_dir(), after.is_dir()) {
        (false, false) => {
            let (before, after) = (SnapshotReader::open(before)?, SnapshotReader::open(after)?);
            summary.add_all(Diff::new(before, after), &mut look)?;
        }
        (true, true) => {
            let sets = [SnapshotDataset::open(before)?, SnapshotDataset::open(after)?];
            let [parts, parts_after] = sets.each_ref().map(|set| set.manifest().parts.len());
            if parts != parts_after {
                let what = format!(
                    "it has {parts_after} parts, but {} has {parts}; create one of the data sets \
                     again with the --parts of the other",
                    before.display()
                );
                return Err(Error::unfit(after, what));
            }
            for part in 0..parts {
                let [before, after] = sets.each_ref().map(|set| set.part(part));
                summary.add_all(Diff::new(before?, after?), &mut look)?;
            }
        }
        (true, false) => return Err(Error::unfit(after, not_a_dataset(before))),
        (false, true) => return Err(Error::unfit(before, not_a_dataset(after))),
    }
    Ok(summary)
}

fn not_a_dataset(dataset: &Path) -> String {
    format!(
        "this is not a data set, but {} is; `fslab dataset create` makes data sets of snapshots",
        dataset.display()
    )
}

/// An iterator over the changes from one snapshot to another, in snapshot order.
pub struct Diff<A: Iterator, B: Iterator> {
    before: Side<A>,
    after: Side<B>,
    /// The creation of a new file that reuses the inode of a deleted one; it is returned after the
    /// deletion.
    held: Option<Change>,
    unchanged: u64,
}

/// One of the two snapshots.
struct Side<I: Iterator> {
    rows: I,
    head: Option<Entry>,
    last: Option<(bool, u64)>,
    begun: bool,
    number: u64,
}

impl<A, B> Diff<A, B>
where
    A: Iterator<Item = Result<Entry>>,
    B: Iterator<Item = Result<Entry>>,
{
    /// Starts a comparison of two snapshots.
    pub fn new(before: A, after: B) -> Self {
        Self { before: Side::new(before), after: Side::new(after), held: None, unchanged: 0 }
    }

    /// Returns the number of unchanged entries so far.
    #[must_use]
    pub fn unchanged(&self) -> u64 {
        self.unchanged
    }

    fn advance(&mut self) -> Result<Option<Change>> {
        loop {
            self.before.fill()?;
            self.after.fill()?;
            let order = match (&self.before.head, &self.after.head) {
                (None, None) => return Ok(None),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(before), Some(after)) => before.key().cmp(&after.key()),
            };
            let change = match order {
                Ordering::Less => self.before.head.take().map(Change::Deleted),
                Ordering::Greater => self.after.head.take().map(Change::Created),
                Ordering::Equal => self.compare(),
            };
            match change {
                Some(change) => return Ok(Some(change)),
                None => self.unchanged += 1,
            }
        }
    }

    fn compare(&mut self) -> Option<Change> {
        let (before, after) = (self.before.head.take()?, self.after.head.take()?);
        if !before.is_same_file(&after) {
            self.held = Some(Change::Created(after));
            return Some(Change::Deleted(before));
        }
        let what = Differences::between(&before, &after);
        what.is_any().then_some(Change::Changed { before, after, what })
    }
}

impl<I: Iterator<Item = Result<Entry>>> Side<I> {
    fn new(rows: I) -> Self {
        Self { rows, head: None, last: None, begun: false, number: 0 }
    }

    fn fill(&mut self) -> Result<()> {
        if self.head.is_some() {
            return Ok(());
        }
        self.head = self.rows.next().transpose()?;
        let key = self.head.as_ref().map(Entry::key);
        if self.begun && key.is_some() && key <= self.last {
            let what = format!("entry {} of a snapshot is out of order", self.number);
            return Err(Error::parameter(what));
        }
        (self.last, self.begun) = (key, true);
        self.number += 1;
        Ok(())
    }
}

impl<A, B> Iterator for Diff<A, B>
where
    A: Iterator<Item = Result<Entry>>,
    B: Iterator<Item = Result<Entry>>,
{
    type Item = Result<Change>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.held.take() {
            Some(change) => Some(Ok(change)),
            None => self.advance().transpose(),
        }
    }
}
