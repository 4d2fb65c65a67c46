//! Tests damaged and hostile parts.

use std::fs;
use std::path::Path;

use fslab_dataset::{Manifest, PartReader, Schema};
use fslab_vfs_testing::environment::{number, seed};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

use crate::support::{Row, SCHEMA, random_row, read_part, write};

fn small(directory: &Path) -> (Manifest, Vec<Row>) {
    let mut random = Pcg64::seed_from_u64(6);
    let rows: Vec<Row> = (0..60).map(|_| random_row(&mut random)).collect();
    (write(directory, &rows, 1, 3000), rows)
}

/// Replaces the content of the part with `bytes`, and updates the manifest.
fn replace(directory: &Path, manifest: &Manifest, bytes: &[u8]) -> Manifest {
    fs::write(directory.join("parts/part-00000.parquet"), bytes).unwrap();
    let mut manifest = manifest.clone();
    manifest.parts[0].bytes = bytes.len() as u64;
    manifest
}

/// Reads the part. Checks that an error message has one line and names the part.
fn read(directory: &Path, manifest: &Manifest) -> Option<Vec<Row>> {
    match read_part(directory, manifest, 0) {
        Ok(rows) => Some(rows),
        Err(error) => {
            let message = error.to_string();
            assert!(message.contains("part-00000.parquet"), "{message}");
            assert_eq!(message.lines().count(), 1, "{message}");
            None
        }
    }
}

#[test]
fn truncated_part_is_an_error() {
    let scratch = tempfile::tempdir().unwrap();
    let directory = scratch.path().join("set");
    let (manifest, rows) = small(&directory);
    let good = fs::read(directory.join("parts/part-00000.parquet")).unwrap();
    assert_eq!(read(&directory, &manifest), Some(rows));
    for length in 0..good.len() {
        let manifest = replace(&directory, &manifest, &good[..length]);
        assert_eq!(read(&directory, &manifest), None, "{length} bytes");
    }
}

/// Reading a part with a few random bytes returns an error or all rows. `FSLAB_DATASET_CASES` sets
/// the number of cases.
#[test]
fn random_damage_is_an_error_or_rows() {
    let scratch = tempfile::tempdir().unwrap();
    let directory = scratch.path().join("set");
    let (manifest, _) = small(&directory);
    let good = fs::read(directory.join("parts/part-00000.parquet")).unwrap();
    let mut random = Pcg64::seed_from_u64(seed());
    let (mut errors, cases) = (0, number("FSLAB_DATASET_CASES").unwrap_or(500));
    for _ in 0..cases {
        let mut bytes = good.clone();
        for _ in 0..random.random_range(1..4) {
            let at = random.random_range(0..bytes.len());
            bytes[at] = random.random();
        }
        let manifest = replace(&directory, &manifest, &bytes);
        match read(&directory, &manifest) {
            Some(rows) => assert_eq!(rows.len(), 60),
            None => errors += 1,
        }
    }
    assert!(errors > cases / 4, "{errors} errors in {cases} cases");
}

#[test]
fn other_columns_are_refused_by_name() {
    let scratch = tempfile::tempdir().unwrap();
    let directory = scratch.path().join("set");
    let (manifest, _) = small(&directory);
    let refused = |schema: &Schema| {
        let opened = PartReader::open(&directory, &manifest, 0, schema);
        opened.err().unwrap().to_string()
    };
    let with = |change: fn(&mut Schema)| {
        let mut schema = SCHEMA;
        change(&mut schema);
        refused(&schema)
    };
    let more = with(|schema| schema.columns.to_mut()[0].name = "other".into());
    assert!(more.ends_with("it has no column 'other'"), "{more}");
    let fewer = with(|schema| drop(schema.columns.to_mut().pop()));
    assert!(fewer.ends_with("it has 14 columns, not 12"), "{fewer}");
    let nullable = with(|schema| schema.columns.to_mut()[0].nullable = true);
    assert!(nullable.ends_with("its column 'narrow' has another type"), "{nullable}");
    let kind = with(|schema| schema.kind = "trace");
    assert!(kind.ends_with("this is a data set of kind 'samples', not 'trace'"), "{kind}");
    let version = with(|schema| schema.version = 2);
    assert!(version.contains("version 1, but this fslab reads version 2"), "{version}");
}

#[test]
fn missing_or_longer_part_is_named() {
    let scratch = tempfile::tempdir().unwrap();
    let directory = scratch.path().join("set");
    small(&directory);
    let part = directory.join("parts/part-00000.parquet");
    let longer = [fs::read(&part).unwrap(), vec![0]].concat();
    fs::write(&part, longer).unwrap();
    let error = Manifest::read(&directory).unwrap_err().to_string();
    assert!(error.contains("part-00000.parquet") && error.contains("create the data set again"));
    fs::remove_file(&part).unwrap();
    let error = Manifest::read(&directory).unwrap_err().to_string();
    assert!(error.contains("part-00000.parquet: No such file"), "{error}");
}
