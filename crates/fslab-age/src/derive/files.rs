//! Converts a change of one file to operations.

use std::num::NonZeroU64;

use rand::RngExt;

use super::inode_reuse::unique_name;
use super::{Interval, Maker};
use crate::diff::{Change, Differences};
use crate::snapshot::{Entry, EntryKind};
use crate::workload::{Operation, OperationKind};

impl Maker<'_> {
    /// Returns the operations for a change. The caller must sort them by time.
    pub(super) fn operations(&mut self, change: Change) -> Vec<Operation> {
        let mut rows = Vec::new();
        match change {
            Change::Created(entry) => self.create(&entry, &mut rows),
            Change::Deleted(entry) => {
                let file = self.numbers.end_file(entry.inode);
                rows.push(operation(self.any_time(), OperationKind::Remove, file));
            }
            Change::Changed { before, after, what } => {
                self.change(&before, &after, what, &mut rows)
            }
        }
        rows
    }

    /// Returns a random time in the interval.
    fn any_time(&mut self) -> u64 {
        let Interval { from_ns, to_ns } = self.interval;
        if to_ns > from_ns { self.random.random_range(from_ns..to_ns) } else { from_ns }
    }

    /// Converts a timestamp of a file to workload time, clamped to the interval.
    fn time(&self, time_ns: i64) -> u64 {
        let since = u64::try_from(time_ns.saturating_sub(self.start_ns)).unwrap_or_default();
        since.clamp(self.interval.from_ns, self.interval.to_ns)
    }

    /// Returns the number of an entry's directory. With `inodes_per_directory`, adds an operation
    /// that makes the directory if it is new.
    fn directory(&mut self, entry: &Entry, rows: &mut Vec<Operation>) -> u64 {
        let Some(each) = self.options.inodes_per_directory.map(NonZeroU64::get) else {
            let known = self.numbers.directory(entry.directory);
            self.derived.orphans += u64::from(known.is_none());
            return known.unwrap_or_default();
        };
        let (directory, is_new) = self.numbers.flat_directory(entry.inode / each);
        if is_new {
            let made = operation(self.interval.from_ns, OperationKind::MakeDirectory, directory);
            rows.push(Operation { mode: 0o755, ..made });
        }
        directory
    }

    fn create(&mut self, entry: &Entry, rows: &mut Vec<Operation>) {
        let directory = self.directory(entry, rows);
        let file = self.numbers.begin_file(entry.inode);
        self.numbers.note_active(directory);
        let born = match entry.born_ns {
            0 => entry.changed_ns.min(entry.modified_ns),
            born => born,
        };
        let is_link = entry.kind == EntryKind::Symlink;
        let kind = if is_link { OperationKind::Symlink } else { OperationKind::Create };
        let time_ns = self.time(born);
        rows.push(Operation {
            directory,
            length: if is_link { entry.size.clamp(1, 4095) } else { 0 },
            mode: entry.mode,
            uid: entry.uid,
            gid: entry.gid,
            name: unique_name(entry.name.bytes(), file).into(),
            ..operation(time_ns, kind, file)
        });
        if !is_link {
            let written = self.time(entry.modified_ns).max(time_ns);
            write(written, file, 0, entry.size, rows);
        }
    }

    fn change(
        &mut self,
        before: &Entry,
        after: &Entry,
        what: Differences,
        rows: &mut Vec<Operation>,
    ) {
        let file = self.numbers.of_file(after.inode);
        if what.renamed && self.options.inodes_per_directory.is_none() {
            let directory = self.directory(after, rows);
            let name = unique_name(after.name.bytes(), file).into();
            let renamed = operation(self.time(after.changed_ns), OperationKind::Rename, file);
            rows.push(Operation { directory, name, ..renamed });
        }
        let written = what.modified || what.grown || what.truncated;
        if !written || after.kind != EntryKind::File {
            return;
        }
        if self.options.inodes_per_directory.is_some()
            || self.numbers.directory(after.directory).is_some()
        {
            let directory = self.directory(after, rows);
            self.numbers.note_active(directory);
        }
        let time_ns = self.time(after.modified_ns);
        let anew = self.options.rewrite_all || what.modified;
        match anew {
            true => {
                rows.push(operation(time_ns, OperationKind::Truncate, file));
                write(time_ns, file, 0, after.size, rows);
            }
            false if what.grown => {
                write(time_ns, file, before.size, after.size - before.size, rows);
            }
            false => {
                let cut = operation(time_ns, OperationKind::Truncate, file);
                rows.push(Operation { length: after.size, ..cut });
            }
        }
    }
}

fn operation(time_ns: u64, kind: OperationKind, file: u64) -> Operation {
    Operation { time_ns, kind, file, ..Operation::default() }
}

fn write(time_ns: u64, file: u64, offset: u64, length: u64, rows: &mut Vec<Operation>) {
    if length > 0 {
        let written = operation(time_ns, OperationKind::Write, file);
        rows.push(Operation { offset, length, ..written });
    }
}
