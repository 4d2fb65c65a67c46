//! Snapshots: the names, sizes, times and extents of a tree at one moment, stored as Parquet. See
//! `docs/formats/snapshot.md` for the format.
//!
//! Directories come first, then all other entries, each sorted by inode. With this *snapshot
//! order*, two snapshots can be compared in one pass.

mod anonymise;
mod capture;
mod csv;
pub mod dataset;
mod extents;
mod format;
mod git;
mod p9;
mod paths;
mod synthetic;

use std::path::Path;

pub use self::csv::import_csv;
pub use anonymise::NameKey;
pub use capture::{Capture, capture};
pub use extents::ExtentList;
pub use format::{Entry, EntryKind};
pub use git::{Every, History};
pub use p9::{P9Dumps, P9Written};
pub use synthetic::write_synthetic_pair;

use crate::error::{Error, Result};
use crate::table::{Reader, Sorter, Writer, directory_of};

/// The metadata of a snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// The time when the snapshot was taken, in nanoseconds since 1970.
    pub taken_ns: i64,
    /// A description of the data's source.
    pub source: String,
    /// Whether names are replaced by keyed hashes.
    pub anonymised: bool,
    /// Size of the file system in bytes; 0 if unknown.
    pub volume_bytes: u64,
    /// Used space of the file system in bytes; 0 if unknown or if the tree is only part of the file
    /// system.
    pub used_bytes: u64,
}

/// Reads a snapshot.
pub struct SnapshotReader {
    rows: Reader<Entry>,
    taken: Taken,
}

impl SnapshotReader {
    /// Opens a snapshot.
    ///
    /// # Errors
    /// Fails if the file is not a snapshot, and on I/O errors.
    pub fn open(path: &Path) -> Result<Self> {
        let rows = Reader::<Entry>::open(path)?;
        let taken = Taken {
            taken_ns: rows.number("taken_ns")?,
            source: rows.text("source")?.to_owned(),
            anonymised: match rows.text("names")? {
                "plain" => false,
                "anonymised" => true,
                _ => return Err(rows.wrong_fact("names")),
            },
            volume_bytes: rows.number("volume_bytes")?,
            used_bytes: rows.number("used_bytes")?,
        };
        Ok(Self { rows, taken })
    }

    /// Returns the metadata of the snapshot.
    #[must_use]
    pub fn taken(&self) -> &Taken {
        &self.taken
    }
}

impl Iterator for SnapshotReader {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Self::Item> {
        self.rows.next()
    }
}

/// Writes a snapshot of entries in any order.
pub struct SnapshotWriter {
    rows: Rows,
    path: std::path::PathBuf,
}

enum Rows {
    /// Entries that arrive in snapshot order.
    Ascending(Box<Ascending>),
    /// Entries that arrive in any order.
    Any(Box<Sorter<Entry, (bool, u64)>>),
}

/// Writes entries that arrive in snapshot order. If several entries have the same inode (hard
/// links), keeps only the first.
struct Ascending {
    writer: Writer<Entry>,
    last: Option<(bool, u64)>,
}

impl Ascending {
    fn create(path: &Path) -> Result<Self> {
        Ok(Self { writer: Writer::create(path)?, last: None })
    }

    fn push(&mut self, entry: &Entry) -> Result<()> {
        let last = self.last.replace(entry.key());
        if last > self.last {
            return Err(Error::parameter(
                "entries are out of order; directories must come before other entries, and both \
                 must be sorted by inode",
            ));
        }
        if last == self.last { Ok(()) } else { self.writer.push(entry) }
    }
}

impl SnapshotWriter {
    /// Makes a writer for a snapshot at a path.
    #[must_use]
    pub fn new(path: &Path) -> Self {
        let sorter = Sorter::new(directory_of(path), Entry::key);
        Self { rows: Rows::Any(Box::new(sorter)), path: path.to_owned() }
    }

    /// Makes a writer for entries that arrive in snapshot order and need no sorting.
    ///
    /// # Errors
    /// Fails on I/O errors.
    pub fn ascending(path: &Path) -> Result<Self> {
        let rows = Rows::Ascending(Box::new(Ascending::create(path)?));
        Ok(Self { rows, path: path.to_owned() })
    }

    /// Adds an entry.
    ///
    /// # Errors
    /// Fails on I/O errors, for example if entries do not fit in memory and are written to a
    /// temporary file.
    pub fn push(&mut self, entry: Entry) -> Result<()> {
        match &mut self.rows {
            Rows::Ascending(ascending) => ascending.push(&entry),
            Rows::Any(sorter) => sorter.push(entry),
        }
    }

    /// Writes the file and returns the number of its entries. If several entries have the same
    /// inode (hard links), keeps only the first.
    ///
    /// # Errors
    /// Fails on I/O errors.
    pub fn finish(self, taken: &Taken) -> Result<u64> {
        let ascending = match self.rows {
            Rows::Ascending(ascending) => *ascending,
            Rows::Any(sorter) => {
                let mut ascending = Ascending::create(&self.path)?;
                sorter.finish()?.try_for_each(|entry| ascending.push(&entry?))?;
                ascending
            }
        };
        let writer = ascending.writer;
        let rows = writer.rows();
        let names = if taken.anonymised { "anonymised" } else { "plain" };
        writer.finish(&[
            ("taken_ns", taken.taken_ns.to_string()),
            ("source", taken.source.clone()),
            ("names", names.to_owned()),
            ("volume_bytes", taken.volume_bytes.to_string()),
            ("used_bytes", taken.used_bytes.to_string()),
        ])?;
        Ok(rows)
    }
}
