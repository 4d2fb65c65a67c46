//! Tests that a reader returns the rows that a writer wrote.

use std::collections::BTreeMap;

use fslab_dataset::{Cell, Manifest, Writer};
use rand::SeedableRng;
use rand_pcg::Pcg64;

use crate::support::{COLUMNS, Row, SCHEMA, Value, random_row, read_part, write};

fn read_all(directory: &std::path::Path, manifest: &Manifest) -> Vec<Vec<Row>> {
    (0..manifest.parts.len()).map(|part| read_part(directory, manifest, part).unwrap()).collect()
}

#[test]
fn every_value_round_trips() {
    let scratch = tempfile::tempdir().unwrap();
    let mut random = Pcg64::seed_from_u64(1);
    let rows: Vec<Row> = (0..3000).map(|_| random_row(&mut random)).collect();
    // With less memory, row groups have fewer rows.
    for (parts, memory) in [(1, 1 << 20), (7, 10_000), (64, 100_000)] {
        let directory = scratch.path().join(parts.to_string());
        let manifest = write(&directory, &rows, parts, memory);
        assert_eq!(Manifest::read(&directory).unwrap(), manifest);
        assert_eq!(manifest.rows, 3000);
        let read = read_all(&directory, &manifest);
        for (number, row) in rows.iter().enumerate() {
            assert_eq!(read[number % parts][number / parts], *row, "row {number}");
        }
    }
    let left = std::fs::read_dir(scratch.path()).unwrap().count();
    assert_eq!(left, 3, "no temporary directory remains");
}

#[test]
fn long_list_round_trips() {
    let scratch = tempfile::tempdir().unwrap();
    let directory = scratch.path().join("set");
    let mut row = random_row(&mut Pcg64::seed_from_u64(2));
    row[12] = Value::List((0..200_000).map(Some).collect());
    let manifest = write(&directory, &[row.clone(), row.clone()], 1, 1 << 30);
    assert_eq!(read_part(&directory, &manifest, 0).unwrap(), [row.clone(), row]);
}

#[test]
fn empty_parts_are_valid_files() {
    let scratch = tempfile::tempdir().unwrap();
    let directory = scratch.path().join("set");
    let manifest = write(&directory, &[], 3, 1 << 20);
    assert_eq!((manifest.rows, manifest.parts.len()), (0, 3));
    assert_eq!(read_all(&directory, &manifest), vec![Vec::<Row>::new(); 3]);
}

#[test]
fn equal_rows_make_equal_files() {
    let scratch = tempfile::tempdir().unwrap();
    let mut random = Pcg64::seed_from_u64(3);
    let rows: Vec<Row> = (0..100).map(|_| random_row(&mut random)).collect();
    let written = ["a", "b"].map(|name| write(&scratch.path().join(name), &rows, 2, 5000));
    assert_eq!(written[0], written[1]);
}

#[test]
fn existing_target_is_kept() {
    let scratch = tempfile::tempdir().unwrap();
    let target = scratch.path().join("set");
    let create = || Writer::create(&target, &SCHEMA, 1, BTreeMap::new());
    let early = create().unwrap();
    std::fs::write(&target, "precious").unwrap();
    for error in [create().err().unwrap(), early.finish().unwrap_err()] {
        assert!(
            error.to_string().ends_with("it exists already; remove it, or choose another name")
        );
    }
    assert_eq!(std::fs::read(&target).unwrap(), b"precious");
    assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 1, "only the file remains");
}

#[test]
fn dropped_writer_leaves_nothing() {
    let scratch = tempfile::tempdir().unwrap();
    let writer = Writer::create(&scratch.path().join("set"), &SCHEMA, 2, BTreeMap::new());
    let mut writer = writer.unwrap().with_memory(0);
    let row = random_row(&mut Pcg64::seed_from_u64(4));
    writer.push(0, &row.iter().map(Value::cell).collect::<Vec<_>>()).unwrap();
    drop(writer);
    assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 0);
}

#[test]
fn unfit_cells_are_refused_by_column() {
    let scratch = tempfile::tempdir().unwrap();
    let good = random_row(&mut Pcg64::seed_from_u64(5));
    let at = |name: &str| COLUMNS.iter().position(|column| column.name == name).unwrap();
    for (name, cell, what) in [
        ("narrow", Cell::Number(1 << 31), "a number exceeds 32 bits"),
        ("wide", Cell::Null, "it has no nulls"),
        ("text", Cell::Bytes(b"\xff"), "a text is not valid UTF-8"),
        ("flag", Cell::Number(1), "a value has another type"),
        ("list", Cell::List(&[Some(1)]), "its last element is incomplete"),
        ("list", Cell::List(&[None, Some(1)]), "a member of a list is null"),
    ] {
        let writer = Writer::create(&scratch.path().join("set"), &SCHEMA, 1, BTreeMap::new());
        let mut cells: Vec<_> = good.iter().map(Value::cell).collect();
        cells[at(name)] = cell;
        let error = writer.unwrap().push(0, &cells).unwrap_err().to_string();
        assert!(error.contains(name) && error.contains(what), "{error}");
    }
}
