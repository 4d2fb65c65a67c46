//! Sorts more rows than fit in memory: sorted runs are written to temporary files, and merged when
//! the sorted rows are read.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::{Reader, Row, Writer};
use crate::error::{Error, Result};

/// Maximum number of rows sorted in memory.
const RUN_ROWS: usize = 1 << 20;

/// Approximate maximum size of the texts of the rows sorted in memory, in bytes.
const RUN_TEXT_BYTES: usize = 256 << 20;

/// Number of rows in a row group of a run. All runs are merged at the same time, and each has one
/// row group in memory. For 100 million rows, merging needs about 150 MiB.
const RUN_GROUP_ROWS: usize = 1 << 13;

/// Accepts rows in any order and returns them sorted by key. Rows with equal keys are returned in
/// the order in which they were added.
pub struct Sorter<R: Row, K: Ord> {
    key: fn(&R) -> K,
    run: Vec<R>,
    run_rows: usize,
    run_text_bytes: usize,
    directory: Option<TempDir>,
    beside: PathBuf,
    files: Vec<PathBuf>,
}

impl<R: Row, K: Ord> Sorter<R, K> {
    /// Makes a sorter. Rows that do not fit in memory are written to a temporary directory in
    /// `beside`.
    pub fn new(beside: &Path, key: fn(&R) -> K) -> Self {
        Self::with_runs_of(RUN_ROWS, beside, key)
    }

    fn with_runs_of(run_rows: usize, beside: &Path, key: fn(&R) -> K) -> Self {
        let beside = beside.to_owned();
        let (run, files, run_text_bytes) = (Vec::new(), Vec::new(), 0);
        Self { key, run, run_rows, run_text_bytes, directory: None, beside, files }
    }

    /// Adds a row.
    pub fn push(&mut self, row: R) -> Result<()> {
        self.run_text_bytes += row.text_bytes();
        self.run.push(row);
        let is_full = self.run.len() >= self.run_rows || self.run_text_bytes >= RUN_TEXT_BYTES;
        if is_full { self.spill() } else { Ok(()) }
    }

    fn spill(&mut self) -> Result<()> {
        let directory = match &self.directory {
            Some(directory) => directory.path(),
            None => {
                let made = tempfile::Builder::new().prefix(".fslab-age-").tempdir_in(&self.beside);
                self.directory.insert(made.map_err(Error::file(&self.beside))?).path()
            }
        };
        let path = directory.join(self.files.len().to_string());
        self.run.sort_by_key(self.key);
        self.run_text_bytes = 0;
        let mut writer = Writer::with_groups_of(RUN_GROUP_ROWS, &path)?;
        for row in self.run.drain(..) {
            writer.push(&row)?;
        }
        writer.finish(&[])?;
        self.files.push(path);
        Ok(())
    }

    /// Returns the rows in sorted order.
    pub fn finish(mut self) -> Result<Sorted<R, K>> {
        self.run.sort_by_key(self.key);
        let mut runs = Vec::new();
        for path in &self.files {
            let rows: Box<dyn Iterator<Item = Result<R>>> =
                Box::new(Reader::open_one_by_one(path)?);
            runs.push(rows);
        }
        runs.push(Box::new(std::mem::take(&mut self.run).into_iter().map(Ok)));
        let mut sorted = Sorted {
            key: self.key,
            heads: runs.iter().map(|_| None).collect(),
            order: BinaryHeap::new(),
            runs,
            _directory: self.directory,
        };
        for run in 0..sorted.runs.len() {
            sorted.advance(run)?;
        }
        Ok(sorted)
    }
}

/// Sorted rows.
pub struct Sorted<R: Row, K: Ord> {
    key: fn(&R) -> K,
    runs: Vec<Box<dyn Iterator<Item = Result<R>>>>,
    /// The next row of each run.
    heads: Vec<Option<R>>,
    order: BinaryHeap<Reverse<(K, usize)>>,
    /// Keeps the files of the runs until all have been read.
    _directory: Option<TempDir>,
}

impl<R: Row, K: Ord> Sorted<R, K> {
    fn advance(&mut self, run: usize) -> Result<()> {
        self.heads[run] = self.runs[run].next().transpose()?;
        if let Some(row) = &self.heads[run] {
            self.order.push(Reverse(((self.key)(row), run)));
        }
        Ok(())
    }
}

impl<R: Row, K: Ord> Iterator for Sorted<R, K> {
    type Item = Result<R>;

    fn next(&mut self) -> Option<Self::Item> {
        let Reverse((_, run)) = self.order.pop()?;
        let row = self.heads[run].take()?;
        match self.advance(run) {
            Ok(()) => Some(Ok(row)),
            Err(error) => Some(Err(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Operation;

    #[test]
    fn sorter_returns_rows_in_stable_order() {
        let scratch = tempfile::tempdir().unwrap();
        for run_rows in [3, 10, 1000] {
            let key = |row: &Operation| row.time_ns;
            let mut sorter = Sorter::with_runs_of(run_rows, scratch.path(), key);
            for file in 1..=100_u64 {
                let time_ns = (file * 37) % 11;
                sorter.push(Operation { time_ns, file, ..Operation::default() }).unwrap();
            }
            let rows: Vec<_> = sorter.finish().unwrap().map(|row| row.unwrap()).collect();
            assert_eq!(rows.len(), 100);
            let in_order = |pair: &[Operation]| {
                (pair[0].time_ns, pair[0].file) < (pair[1].time_ns, pair[1].file)
            };
            assert!(rows.windows(2).all(in_order), "runs of {run_rows}");
        }
        assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 0, "nothing is left");
    }
}
