//! Traces as data sets.

use std::path::Path;

use fslab_dataset::{Cell, Manifest, PartReader};
use fslab_trace::{DATASET_SCHEMA, Record, write_dataset};
use fslab_vfs::Operation;
use tempfile::TempDir;

use crate::{numbered, write};

/// Returns a column of all rows, as text.
fn column(directory: &Path, manifest: &Manifest, name: &str) -> Vec<String> {
    let at = DATASET_SCHEMA.columns.iter().position(|column| column.name == name).unwrap();
    let mut values = Vec::new();
    for part in 0..manifest.parts.len() {
        let mut reader = PartReader::open(directory, manifest, part, &DATASET_SCHEMA).unwrap();
        while let Some(group) = reader.next_group().unwrap() {
            values.extend((0..group.rows()).map(|row| match group.cell(row, at) {
                Cell::Null => "null".to_owned(),
                Cell::Number(number) => number.to_string(),
                Cell::Bytes(bytes) => bytes.escape_ascii().to_string(),
                other => panic!("{other:?}"),
            }));
        }
    }
    values
}

#[test]
fn paths_errors_and_extreme_numbers_are_typed_columns() {
    let scratch = TempDir::new().unwrap();
    let (trace, directory) = (scratch.path().join("trace"), scratch.path().join("set"));
    let mut found = numbered(1);
    (found.name, found.result_inode) = (Some(b"a\xff".to_vec()), Some(7));
    (found.pid, found.time_ns) = (Some(u32::MAX), Some(i64::MIN));
    found.program = Some(b"cc1".to_vec());
    let mut missing = numbered(2);
    (missing.parent, missing.name, missing.errno) = (Some(7), Some(b"b".to_vec()), 2);
    missing.program = Some(b"a\x1b\n\xff".to_vec());
    let mut listed = Record::new(Operation::Readdir);
    (listed.sequence, listed.inode, listed.offset) = (3, Some(7), Some(u64::MAX));
    (listed.handle, listed.checksum) = (Some(u64::MAX), Some(u64::MAX));
    write(&trace, &[found, missing, listed]);
    let manifest = write_dataset(&trace, &directory, 2).unwrap();
    assert_eq!((manifest.kind.as_str(), manifest.rows), ("trace", 3));
    assert_eq!(manifest.facts["closed"], "true");
    for (name, values) in [
        ("sequence", ["1", "2", "3"]),
        ("operation", ["lookup", "lookup", "readdir"]),
        ("path_bytes", ["/a\\xff", "/a\\xff/b", "/a\\xff"]),
        ("path", ["/a\\\\xff", "/a\\\\xff/b", "/a\\\\xff"]),
        ("process", ["4294967295", "null", "null"]),
        // `column` doubles each backslash.
        ("program", ["cc1", "a\\\\x1b\\\\x0a\\\\xff", "null"]),
        ("time", ["-9223372036854775808", "null", "null"]),
        ("errno", ["0", "2", "0"]),
        ("error", ["null", "ENOENT", "null"]),
        ("offset", ["null"; 3]),
        ("cookie", ["null", "null", "-1"]),
        ("handle", ["null", "null", "-1"]),
    ] {
        assert_eq!(column(&directory, &manifest, name), values, "{name}");
    }
}

#[test]
fn segments_are_spread_evenly_over_parts() {
    let scratch = TempDir::new().unwrap();
    let (trace, directory) = (scratch.path().join("trace"), scratch.path().join("set"));
    let records: Vec<_> = (1..=40_000).map(numbered).collect();
    write(&trace, &records);
    let manifest = write_dataset(&trace, &directory, 3).unwrap();
    let rows: Vec<_> = manifest.parts.iter().map(|part| part.rows).collect();
    assert_eq!(rows, [13_334, 13_333, 13_333]);
    let sequence = column(&directory, &manifest, "sequence");
    assert!(sequence.iter().enumerate().all(|(row, text)| *text == (row + 1).to_string()));
}

#[test]
fn size_of_64_bits_is_refused_by_its_record() {
    let scratch = TempDir::new().unwrap();
    let trace = scratch.path().join("trace");
    let mut wide = numbered(9);
    wide.size = Some(1 << 63);
    write(&trace, &[wide]);
    let error = write_dataset(&trace, &scratch.path().join("set"), 1).unwrap_err().to_string();
    assert!(error.ends_with("has a number in record 9 that exceeds 63 bits"), "{error}");
    assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 1, "only the trace remains");
}
