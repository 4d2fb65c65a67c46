//! Converts a trace, recorded by `fslab mount -l trace`, to the operations of a workload, for
//! [`fslab_age::derive::Days`]. Only operations on files that were created during the trace are
//! converted.

use std::collections::HashMap;
use std::path::Path;

use anyhow::{Context, Result};
use fslab_age::derive::Days;
use fslab_age::workload::{Operation, OperationKind, WorkloadReader};
use fslab_trace::{Reader, Record};
use fslab_vfs::Operation as Kind;

/// Returns the days of a trace (a directory) or of a workload (a file).
pub(super) fn days_of(path: &Path) -> Result<Days> {
    let shown = || path.display().to_string();
    if !path.is_dir() {
        return Days::of(WorkloadReader::open(path)?).with_context(shown);
    }
    let mut names = Names::default();
    let mut operations = Vec::new();
    for record in Reader::open(path)? {
        operations.extend(names.operation(&record?));
    }
    // Records are written when operations end, so they may not be in the order of start times.
    operations.sort_by_key(|operation| operation.time_ns);
    Days::of(operations.into_iter().map(Ok)).with_context(shown)
}

/// The inodes of files that were created during the trace, by directory and name.
#[derive(Default)]
struct Names {
    inodes: HashMap<(u64, Vec<u8>), u64>,
}

impl Names {
    /// Converts a record to an operation. Returns `None` for failed operations, for removals of
    /// files older than the trace, and for kinds of operations that are not converted.
    fn operation(&mut self, record: &Record) -> Option<Operation> {
        if record.errno != 0 {
            return None;
        }
        let name = || Some((record.parent?, record.name.clone()?));
        let at =
            |kind, file| Operation { time_ns: record.start_ns, kind, file, ..Default::default() };
        match record.operation {
            Kind::Create => {
                let (file, directory) = (record.result_inode?, record.parent?);
                self.inodes.insert(name()?, file);
                Some(Operation { directory, ..at(OperationKind::Create, file) })
            }
            Kind::Write => {
                let (offset, length) = (record.offset?, record.result?);
                Some(Operation { offset, length, ..at(OperationKind::Write, record.inode?) })
            }
            Kind::Unlink => {
                let file = self.inodes.remove(&name()?)?;
                Some(at(OperationKind::Remove, file))
            }
            Kind::Rename => {
                let moved = self.inodes.remove(&name()?);
                let to = (record.new_parent?, record.new_name.clone()?);
                let replaced = match moved {
                    Some(inode) => self.inodes.insert(to, inode),
                    None => self.inodes.remove(&to),
                };
                // A file that a rename replaces is treated as removed.
                Some(at(OperationKind::Remove, replaced?))
            }
            _ => None,
        }
    }
}
