//! Traces as data sets, for SQL engines; `docs/formats/dataset.md` lists the columns.

use std::borrow::Cow;
use std::path::Path;

use fslab_dataset::{
    Cell, Column, Encoding, Kind, Manifest, Partition, Schema, Writer, facts_of, part_in_order,
    readable,
};
use fslab_vfs::Operation;

use crate::dump::errno_name;
use crate::error::{Error, Result};
use crate::paths::Paths;
use crate::reader::{Reader, rows_of};
use crate::record::Record;

/// The columns of data sets of traces.
pub const DATASET_SCHEMA: Schema = Schema {
    kind: "trace",
    version: 1,
    partition: Partition::Order,
    columns: Cow::Borrowed(&[
        Column::new("sequence", Kind::I64).encoded(Encoding::Delta),
        Column::new("time", Kind::Time).encoded(Encoding::Delta).nullable(),
        Column::new("start_ns", Kind::I64).encoded(Encoding::Delta),
        Column::new("duration_ns", Kind::I64).encoded(Encoding::Delta),
        Column::new("thread", Kind::I64),
        Column::new("operation", Kind::Text),
        Column::new("process", Kind::I64).nullable(),
        Column::new("program", Kind::Text).nullable(),
        Column::new("uid", Kind::I64).nullable(),
        Column::new("gid", Kind::I64).nullable(),
        Column::new("inode", Kind::I64).nullable(),
        Column::new("parent", Kind::I64).nullable(),
        Column::new("path_bytes", Kind::Bytes).nullable(),
        Column::new("path", Kind::Text).nullable(),
        Column::new("name_bytes", Kind::Bytes).nullable(),
        Column::new("name", Kind::Text).nullable(),
        Column::new("new_parent", Kind::I64).nullable(),
        Column::new("new_name_bytes", Kind::Bytes).nullable(),
        Column::new("new_name", Kind::Text).nullable(),
        Column::new("handle", Kind::U64).nullable(),
        Column::new("offset", Kind::I64).nullable(),
        Column::new("cookie", Kind::U64).nullable(),
        Column::new("size", Kind::I64).nullable(),
        Column::new("flags", Kind::I64).nullable(),
        Column::new("mode", Kind::I64).nullable(),
        Column::new("checksum", Kind::U64).encoded(Encoding::Plain).nullable(),
        Column::new("errno", Kind::I32),
        Column::new("error", Kind::Text).nullable(),
        Column::new("result", Kind::U64).nullable(),
        Column::new("result_inode", Kind::I64).nullable(),
        Column::new("result_size", Kind::I64).nullable(),
    ]),
};

/// Writes a trace as a data set. Recorded data is left out.
///
/// # Errors
/// Fails if the data set exists, if a number of the trace does not fit in 63 bits, and on I/O
/// errors. After a failure, no files are left behind.
pub fn write_dataset(trace: &Path, directory: &Path, parts: usize) -> Result<Manifest> {
    let summary = rows_of(trace)?;
    let metadata = summary.last;
    let facts = facts_of(&[
        ("source", trace.display().to_string()),
        ("names", if metadata.anonymised { "anonymised" } else { "plain" }.to_owned()),
        ("lost", metadata.lost.to_string()),
        ("closed", metadata.closed.to_string()),
    ]);
    let mut writer = Writer::create(directory, &DATASET_SCHEMA, parts, facts)?;
    let (mut paths, mut written) = (Paths::default(), 0);
    for record in Reader::open(trace)? {
        let record = record?;
        let path = path_of(&record, &paths);
        let part = part_in_order(written, summary.rows, parts);
        let wide = || {
            let what = format!("has a number in record {} that exceeds 63 bits", record.sequence);
            Error::unfit(trace, what)
        };
        push(&record, path.as_deref(), part, &mut writer)?.ok_or_else(wide)?;
        paths.learn(&record);
        written += 1;
    }
    Ok(writer.finish()?)
}

/// Returns the path of the inode that the operation works on, or of its directory and name.
fn path_of(record: &Record, paths: &Paths) -> Option<Vec<u8>> {
    match (record.inode, record.parent, &record.name) {
        (Some(inode), ..) => paths.bytes_of(inode),
        (None, Some(parent), Some(name)) => {
            let mut path = paths.bytes_of(parent)?;
            if path.last() != Some(&b'/') {
                path.push(b'/');
            }
            path.extend_from_slice(name);
            Some(path)
        }
        _ => None,
    }
}

/// The numbers of a record that must fit in 63 bits.
struct Numbers([Option<i64>; 10]);

impl Numbers {
    /// Returns `None` if a number is too large.
    fn of(record: &Record) -> Option<Self> {
        let is_listing = is_listing(record);
        let numbers = [
            Some(record.sequence),
            Some(record.start_ns),
            Some(record.duration_ns),
            record.inode,
            record.parent,
            record.new_parent,
            record.offset.filter(|_| !is_listing),
            record.size,
            record.result_inode,
            record.result_size,
        ];
        let fit = |number: Option<u64>| number.map(i64::try_from).transpose().ok();
        let mut fitting = [None; 10];
        for (fitting, number) in fitting.iter_mut().zip(numbers) {
            *fitting = fit(number)?;
        }
        Some(Self(fitting))
    }
}

/// Returns whether the record's offset is a directory cookie, which may use all 64 bits.
fn is_listing(record: &Record) -> bool {
    matches!(record.operation, Operation::Readdir)
}

/// Writes the row of a record. Returns `None` if a number is too large.
fn push(
    record: &Record,
    path: Option<&[u8]>,
    part: usize,
    writer: &mut Writer,
) -> Result<Option<()>> {
    let Some(Numbers(numbers)) = Numbers::of(record) else { return Ok(None) };
    let Ok(errno) = i32::try_from(record.errno) else { return Ok(None) };
    let [sequence, start, duration, inode, parent, new_parent, offset, size, made, made_size] =
        numbers.map(Cell::number);
    let narrow = |number: Option<u32>| Cell::number(number.map(i64::from));
    let bits = |number: Option<u64>| Cell::number(number.map(u64::cast_signed));
    let names = [path, record.name.as_deref(), record.new_name.as_deref()];
    let texts = names.map(|name| name.map(readable));
    let [path, name, new_name] = names.map(Cell::bytes);
    let [path_text, name_text, new_name_text] =
        texts.each_ref().map(|text| Cell::bytes(text.as_ref().map(|text| text.as_bytes())));
    let operation = record.operation.name();
    let program = record.program.as_deref().map(readable);
    let error = (errno != 0).then(|| errno_name(record.errno));
    let row = [
        sequence,
        Cell::number(record.time_ns),
        start,
        duration,
        Cell::Number(record.thread.into()),
        Cell::Bytes(operation.as_bytes()),
        narrow(record.pid),
        Cell::bytes(program.as_ref().map(|program| program.as_bytes())),
        narrow(record.uid),
        narrow(record.gid),
        inode,
        parent,
        path,
        path_text,
        name,
        name_text,
        new_parent,
        new_name,
        new_name_text,
        bits(record.handle),
        offset,
        bits(record.offset.filter(|_| is_listing(record))),
        size,
        narrow(record.flags),
        narrow(record.mode),
        bits(record.checksum),
        Cell::Number(errno.into()),
        Cell::bytes(error.as_ref().map(|name| name.as_bytes())),
        bits(record.result),
        made,
        made_size,
    ];
    writer.push(part, &row)?;
    Ok(Some(()))
}
