//! Workloads as data sets, for SQL engines; `docs/formats/dataset.md` lists the columns.

use std::borrow::Cow;
use std::path::Path;

use fslab_dataset::{
    Cell, Column, Encoding, Kind, Manifest, Partition, Schema, Writer, facts_of, part_in_order,
    readable,
};

use super::{Operation, OperationKind, WorkloadReader};
use crate::error::{Error, Result};

/// The columns of data sets of workloads.
pub const SCHEMA: Schema = Schema {
    kind: "workload",
    version: 1,
    partition: Partition::Order,
    columns: Cow::Borrowed(&[
        Column::new("time_ns", Kind::I64).encoded(Encoding::Delta),
        Column::new("kind", Kind::Text),
        Column::new("file", Kind::I64).encoded(Encoding::Delta),
        Column::new("directory", Kind::I64).nullable(),
        Column::new("offset", Kind::I64).nullable(),
        Column::new("length", Kind::I64).encoded(Encoding::Delta).nullable(),
        Column::new("mode", Kind::I32).nullable(),
        Column::new("uid", Kind::I64).nullable(),
        Column::new("gid", Kind::I64).nullable(),
        Column::new("name_bytes", Kind::Bytes).encoded(Encoding::Plain).nullable(),
        Column::new("name", Kind::Text).encoded(Encoding::Plain).nullable(),
    ]),
};

/// Writes a workload as a data set.
///
/// # Errors
/// Fails if the data set exists, if a number of the workload does not fit in 63 bits, and on I/O
/// errors. After a failure, no files are left behind.
pub fn write_dataset(workload: &Path, directory: &Path, parts: usize) -> Result<Manifest> {
    let operations = WorkloadReader::open(workload)?;
    let (told, total) = (operations.provenance(), operations.total());
    let facts = facts_of(&[
        ("source", told.source.clone()),
        ("seed", told.seed.to_string()),
        ("volume_bytes", told.volume_bytes.to_string()),
        ("made_by", told.made_by.clone()),
    ]);
    let mut writer = Writer::create(directory, &SCHEMA, parts, facts)?;
    for (row, operation) in operations.enumerate() {
        let (operation, row) = (operation?, row as u64);
        let part = part_in_order(row, total, parts);
        let what = "a number does not fit in the 63 bits of a data set";
        let wide = || Error::Row { path: workload.to_owned(), row, what };
        push(&operation, part, &mut writer)?.ok_or_else(wide)?;
    }
    Ok(writer.finish()?)
}

/// Writes the row of an operation. Values that this kind of operation does not use are null.
/// Returns `None` if a number is too large.
fn push(operation: &Operation, part: usize, writer: &mut Writer) -> Result<Option<()>> {
    let Operation { kind, time_ns, file, directory, offset, length, .. } = operation;
    let fit = |numbers: [u64; 5]| -> Option<[i64; 5]> {
        let numbers = numbers.map(|number| i64::try_from(number).ok());
        let [Some(a), Some(b), Some(c), Some(d), Some(e)] = numbers else { return None };
        Some([a, b, c, d, e])
    };
    let Some(numbers) = fit([*time_ns, *file, *directory, *offset, *length]) else {
        return Ok(None);
    };
    let [time_ns, file, directory, offset, length] = numbers;
    let is_write = *kind == OperationKind::Write;
    let has_length = is_write || matches!(kind, OperationKind::Truncate | OperationKind::Symlink);
    let has_name = kind.makes() || *kind == OperationKind::Rename;
    let made = |number: u32| Cell::number(kind.makes().then_some(number.into()));
    let name = operation.name_of();
    let text = readable(&name);
    let row = [
        Cell::Number(time_ns),
        Cell::Bytes(kind.name().as_bytes()),
        Cell::Number(file),
        Cell::number(has_name.then_some(directory)),
        Cell::number(is_write.then_some(offset)),
        Cell::number(has_length.then_some(length)),
        made(operation.mode),
        made(operation.uid),
        made(operation.gid),
        Cell::bytes(has_name.then_some(&name)),
        Cell::bytes(has_name.then_some(text.as_bytes())),
    ];
    writer.push(part, &row)?;
    Ok(Some(()))
}
