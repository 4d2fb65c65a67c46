//! Snapshots as data sets.

use std::fs;
use std::path::Path;

use fslab_age::Result;
use fslab_age::diff::{Change, Summary, compare};
use fslab_age::snapshot::dataset::{SnapshotDataset, write_dataset};
use fslab_age::snapshot::{
    Entry, EntryKind, ExtentList, SnapshotReader, SnapshotWriter, Taken, write_synthetic_pair,
};
use fslab_age::workload;
use fslab_dataset::{Manifest, PartReader, part_of};
use fslab_vfs::{Extent, split_mix};

/// An entry whose numbers are all as large as a data set allows.
fn largest(inode: u64) -> Entry {
    let max = i64::MAX as u64;
    Entry {
        inode,
        directory: max,
        size: max,
        stored: max,
        modified_ns: i64::MAX,
        changed_ns: i64::MIN,
        born_ns: i64::MIN,
        mode: 0o7777,
        uid: u32::MAX,
        gid: u32::MAX,
        links: u32::MAX,
        blocks: max,
        breaks: max,
        generation: u32::MAX,
        name: b"not UTF-8: \xff\xfe\n".to_vec().into(),
        ..Entry::default()
    }
}

/// A file with many extents.
fn fragmented(inode: u64) -> Entry {
    let extent = |number: u64| Extent { logical: number * 8192, physical: number, length: 4096 };
    let extents: Vec<_> = (0..5000).map(extent).collect();
    let flags = vec![u32::MAX; extents.len()];
    Entry { inode, extents: ExtentList { extents, flags }.to_text(), ..Entry::default() }
}

fn entries() -> Vec<Entry> {
    let mut entries = vec![largest(i64::MAX as u64), fragmented(7)];
    let kinds = [EntryKind::Directory, EntryKind::File, EntryKind::Symlink, EntryKind::Other];
    for inode in 10..200_u64 {
        let kind = kinds[(split_mix(inode) % 4) as usize];
        let name = format!("file \\ {inode} \u{e4}").into_bytes().into();
        entries.push(Entry { inode, kind, name, blocks: inode % 3, ..Entry::default() });
    }
    entries.sort_by_key(Entry::key);
    entries
}

fn taken() -> Taken {
    Taken {
        taken_ns: -5,
        source: "a test\nof \"facts\"".to_owned(),
        anonymised: true,
        volume_bytes: u64::MAX,
        used_bytes: 3,
    }
}

fn write(path: &Path, entries: &[Entry]) {
    let mut writer = SnapshotWriter::new(path);
    entries.iter().for_each(|entry| writer.push(entry.clone()).unwrap());
    writer.finish(&taken()).unwrap();
}

fn read(dataset: &SnapshotDataset) -> Result<Vec<Entry>> {
    let parts = dataset.manifest().parts.len();
    let mut all = Vec::new();
    for part in 0..parts {
        for entry in dataset.part(part)? {
            all.push(entry?);
        }
    }
    all.sort_by_key(Entry::key);
    Ok(all)
}

#[test]
fn every_value_of_a_snapshot_round_trips() {
    let scratch = tempfile::tempdir().unwrap();
    let (snapshot, directory) = (scratch.path().join("snapshot"), scratch.path().join("set"));
    write(&snapshot, &entries());
    let manifest = write_dataset(&snapshot, &directory, 5).unwrap();
    assert_eq!(manifest.rows, entries().len() as u64);
    let dataset = SnapshotDataset::open(&directory).unwrap();
    assert_eq!(dataset.taken(), &taken());
    assert_eq!(read(&dataset).unwrap(), entries());
    for part in 0..5 {
        let inodes = dataset.part(part).unwrap().map(|entry| entry.unwrap().inode);
        assert!(inodes.into_iter().all(|inode| part_of(inode, 5) == part));
    }
}

#[test]
fn number_of_64_bits_is_refused_by_its_row() {
    let scratch = tempfile::tempdir().unwrap();
    let snapshot = scratch.path().join("snapshot");
    let wide = Entry { inode: 2, stored: 1 << 63, ..Entry::default() };
    write(&snapshot, &[Entry { inode: 1, ..Entry::default() }, wide]);
    let error = write_dataset(&snapshot, &scratch.path().join("set"), 2).unwrap_err().to_string();
    assert!(
        error.ends_with("row 1: a number does not fit in the 63 bits of a data set"),
        "{error}"
    );
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 1, "only the snapshot remains");
}

fn lines(before: &Path, after: &Path) -> (Vec<String>, Summary) {
    let mut lines = Vec::new();
    let look = |change: &Change| lines.push(format!("{change:?}"));
    let summary = compare(before, after, look).unwrap();
    lines.sort();
    (lines, summary)
}

#[test]
fn diff_of_data_sets_equals_diff_of_files() {
    for (seed, rows) in [(1, 300), (2, 4000), (3, 1)] {
        let scratch = tempfile::tempdir().unwrap();
        let at = |name: &str| scratch.path().join(name);
        let made = write_synthetic_pair(rows, seed, &at("a"), &at("b")).unwrap();
        let (expected, summary) = lines(&at("a"), &at("b"));
        assert_eq!(summary, made);
        for parts in [1, 7] {
            let [before, after] = ["a", "b"].map(|name| {
                let directory = at(&format!("{name}-{parts}"));
                write_dataset(&at(name), &directory, parts).unwrap();
                directory
            });
            assert_eq!(lines(&before, &after), (expected.clone(), summary), "{rows} {parts}");
        }
    }
}

#[test]
fn unequal_sources_of_a_diff_are_refused() {
    let scratch = tempfile::tempdir().unwrap();
    let at = |name: &str| scratch.path().join(name);
    write_synthetic_pair(50, 1, &at("a"), &at("b")).unwrap();
    write_dataset(&at("a"), &at("two"), 2).unwrap();
    write_dataset(&at("b"), &at("three"), 3).unwrap();
    for (before, after, what) in [
        ("two", "three", "it has 3 parts, but"),
        ("two", "b", "this is not a data set, but"),
        ("a", "three", "this is not a data set, but"),
        ("two", ".", "it has no manifest.json"),
    ] {
        let error = compare(&at(before), &at(after), |_| {}).unwrap_err().to_string();
        assert!(error.contains(what) && error.lines().count() == 1, "{error}");
    }
}

#[test]
fn entry_in_a_wrong_part_or_order_is_an_error() {
    let scratch = tempfile::tempdir().unwrap();
    let (snapshot, directory) = (scratch.path().join("snapshot"), scratch.path().join("set"));
    write(&snapshot, &entries());
    write_dataset(&snapshot, &directory, 2).unwrap();
    // Both parts are exchanged in the directory and in the manifest.
    let parts =
        ["parts/part-00000.parquet", "parts/part-00001.parquet"].map(|name| directory.join(name));
    fs::rename(&parts[0], directory.join("x")).unwrap();
    fs::rename(&parts[1], &parts[0]).unwrap();
    fs::rename(directory.join("x"), &parts[1]).unwrap();
    let path = directory.join("manifest.json");
    let mut manifest = Manifest::parse(&path, &fs::read(&path).unwrap()).unwrap();
    manifest.parts.reverse();
    for (number, part) in manifest.parts.iter_mut().enumerate() {
        part.file = format!("parts/part-{number:05}.parquet");
    }
    fs::write(&path, serde_json::to_vec(&manifest).unwrap()).unwrap();
    let error = read(&SnapshotDataset::open(&directory).unwrap()).unwrap_err().to_string();
    assert!(error.ends_with("row 0: its inode number belongs to another part"), "{error}");
}

#[test]
fn workload_becomes_a_data_set_with_nulls_for_unused_values() {
    let scratch = tempfile::tempdir().unwrap();
    let directory = scratch.path().join("set");
    let golden = Path::new("testdata/workload-v1.parquet");
    let manifest = workload::dataset::write_dataset(golden, &directory, 2).unwrap();
    assert_eq!((manifest.rows, manifest.parts[0].rows), (9, 5));
    assert_eq!(manifest.facts["seed"], "7");
    let schema = workload::dataset::SCHEMA;
    let column = |name: &str| {
        let at = schema.columns.iter().position(|column| column.name == name).unwrap();
        let mut values = Vec::new();
        for part in 0..2 {
            let mut reader = PartReader::open(&directory, &manifest, part, &schema).unwrap();
            let group = reader.next_group().unwrap().unwrap();
            values.extend((0..group.rows()).map(|row| format!("{:?}", group.cell(row, at))));
        }
        values
    };
    let null = "Null".to_owned();
    assert_eq!(column("offset")[2..6], ["Number(0)", "Null", "Number(9000)", "Null"]);
    assert_eq!(column("mode")[..3], ["Number(493)", "Number(420)", "Null"]);
    assert_eq!(column("length")[6..], ["Number(12)".to_owned(), null.clone(), null]);
    let kinds = column("kind");
    assert!(kinds[0].contains("109, 107, 100, 105, 114"), "mkdir: {}", kinds[0]);
}

/// The golden data sets, the newest last.
const GOLDEN: [&str; 2] = ["testdata/dataset-snapshot-v1", "testdata/dataset-snapshot-v2"];

/// Run with `FSLAB_BLESS=1` to write the newest golden data set. When the format changes, keep the
/// existing data sets and add another.
#[test]
fn golden_data_sets_of_all_versions_are_read() {
    let scratch = tempfile::tempdir().unwrap();
    let snapshot = scratch.path().join("snapshot");
    let entries: Vec<_> = entries().into_iter().filter(|entry| entry.inode != 7).collect();
    write(&snapshot, &entries);
    if std::env::var_os("FSLAB_BLESS").is_some() {
        write_dataset(&snapshot, Path::new(GOLDEN[1]), 2).unwrap();
    }
    for (golden, version) in GOLDEN.iter().zip(1..) {
        let golden = Path::new(golden);
        let dataset = SnapshotDataset::open(golden).unwrap();
        assert_eq!(dataset.manifest().format, version);
        assert_eq!(dataset.taken(), &taken());
        assert_eq!(read(&dataset).unwrap(), entries);
        for part in &dataset.manifest().parts {
            part.check_hash(golden).unwrap();
        }
    }
    let found: Vec<_> = SnapshotReader::open(&snapshot).unwrap().map(Result::unwrap).collect();
    assert_eq!(found, entries);
}
