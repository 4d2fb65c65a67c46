//! Tests `fslab dataset` and `fslab tier export`.

use std::fs;
use std::path::Path;

use serde_json::Value;
use tempfile::TempDir;

use crate::aging::{text, works};
use crate::support::fslab;

/// Makes two snapshots of a tree, and a data set of each, in a new directory.
fn snapshots() -> TempDir {
    let scratch = TempDir::new().unwrap();
    let [one, two] = ["one.parquet", "two.parquet"].map(|name| scratch.path().join(name));
    works(&["age", "snapshot", "--synthetic", "3000", text(&one), text(&two)]);
    for name in ["one", "two"] {
        let source = scratch.path().join(format!("{name}.parquet"));
        let (set, source) = (scratch.path().join(name), text(&source).to_owned());
        works(&["dataset", "create", "--parts", "5", "-o", text(&set), &source]);
    }
    scratch
}

/// Returns the exit code and the message of a command that must fail.
#[track_caller]
fn fails(arguments: &[&str]) -> (i32, String) {
    let output = fslab(arguments).output().unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && message.lines().count() == 1, "{message}");
    (output.status.code().unwrap(), message)
}

fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&works(arguments)).unwrap()
}

#[test]
fn diff_prints_the_same_counts_for_data_sets_as_for_files() {
    let scratch = snapshots();
    let at = |name: &str| text(&scratch.path().join(name)).to_owned();
    let of_sets = json(&["age", "diff", "--json", &at("one"), &at("two")]);
    assert_eq!(of_sets, json(&["age", "diff", "--json", &at("one.parquet"), &at("two.parquet")]));
    assert!(of_sets["renamed"].as_u64().unwrap() > 0, "{of_sets}");
    let lines = |arguments: &[&str]| {
        let printed = works(arguments);
        // The last line is dropped, because it contains the duration of the command.
        let mut lines: Vec<_> = printed.lines().map(str::to_owned).collect();
        lines.pop();
        lines.sort();
        lines
    };
    let of_files = lines(&["age", "diff", "--list", &at("one.parquet"), &at("two.parquet")]);
    assert_eq!(lines(&["age", "diff", "--list", &at("one"), &at("two")]), of_files);
}

#[test]
fn check_finds_a_changed_byte_in_any_part() {
    let scratch = snapshots();
    let set = scratch.path().join("one");
    let checked = json(&["dataset", "check", "--json", text(&set)]);
    assert_eq!((&checked["rows"], &checked["parts"]), (&3000.into(), &5.into()));
    for part in 0..5 {
        let path = set.join(format!("parts/part-{part:05}.parquet"));
        let good = fs::read(&path).unwrap();
        let mut bad = good.clone();
        bad[good.len() / 2] ^= 1;
        fs::write(&path, bad).unwrap();
        let (code, message) = fails(&["dataset", "check", text(&set)]);
        assert_eq!(code, 3);
        assert!(message.contains(text(&path)) && message.contains("BLAKE3"), "{message}");
        fs::write(&path, good).unwrap();
    }
    works(&["dataset", "check", text(&set)]);
}

#[test]
fn unusable_sources_and_targets_are_refused_in_one_line() {
    let scratch = snapshots();
    let at = |name: &str| text(&scratch.path().join(name)).to_owned();
    fs::write(scratch.path().join("text"), "no samples").unwrap();
    fs::write(scratch.path().join("parquet"), "PAR1 and no more").unwrap();
    for (source, target, what) in [
        ("one.parquet", "two", "it exists already"),
        ("text", "new", "text"),
        ("parquet", "new", "parquet"),
        ("one", "new", "is not a trace"),
        ("missing", "new", "No such file"),
    ] {
        let (code, message) = fails(&["dataset", "create", "-o", &at(target), &at(source)]);
        assert!(code == 3 && message.contains(what), "{code} {message}");
    }
    let (code, message) = fails(&["dataset", "show", text(scratch.path())]);
    assert!(code == 3 && message.contains("it has no manifest.json"), "{message}");
    assert!(!scratch.path().join("new").exists());
}

#[test]
fn workload_becomes_a_data_set() {
    let scratch = TempDir::new().unwrap();
    let [workload, set] = ["days.parquet", "set"].map(|name| scratch.path().join(name));
    let volume = ["--volume", "16MiB", "--days", "3", "-o", text(&workload)];
    works(&[&["age", "profile", "developer"][..], &volume].concat());
    let operations = &json(&["age", "show", "--json", text(&workload)])["operations"];
    works(&["dataset", "create", "-o", text(&set), text(&workload)]);
    works(&["dataset", "check", text(&set)]);
    let shown = json(&["dataset", "show", "--json", text(&set)]);
    assert_eq!((&shown["kind"], &shown["rows"]), (&"workload".into(), operations));
    assert_eq!(shown["columns"][0]["name"], "time_ns");
}

#[test]
fn exported_tier_has_a_row_for_each_file() {
    let scratch = TempDir::new().unwrap();
    let at = |name: &str| text(&scratch.path().join(name)).to_owned();
    fs::create_dir_all(Path::new(&at("tree/inner"))).unwrap();
    for (name, size) in [("archived", 9000), ("inner/released", 70_000)] {
        fs::write(at(&format!("tree/{name}")), vec![7; size]).unwrap();
    }
    let (archive, home) = (at("archive"), at("home"));
    works(&["tier", "init", "-q", "--archive", &archive, "--home", &home, &at("tree")]);
    works(&["tier", "archive", &at("tree")]);
    works(&["tier", "release", &at("tree/inner/released")]);
    fs::write(at("tree/new"), "new").unwrap();
    let made = json(&["tier", "--json", "export", "--parts", "2", "-o", &at("set"), &at("tree")]);
    assert_eq!((&made["kind"], &made["rows"]), (&"tier".into(), &3.into()));
    works(&["dataset", "check", &at("set")]);
    let manifest = fslab_dataset::Manifest::read(at("set").as_ref()).unwrap();
    assert_eq!(manifest.facts["missing_files"], "0");
    assert_eq!(
        rows(at("set").as_ref(), &manifest),
        [
            ("archived".to_owned(), "archived".to_owned(), 9000, 1),
            ("inner/released".to_owned(), "offline".to_owned(), 70_000, 1),
            ("new".to_owned(), "resident".to_owned(), 3, 0),
        ]
    );
}

/// Returns the path, the state, the size and the number of copies of each file.
fn rows(directory: &Path, manifest: &fslab_dataset::Manifest) -> Vec<(String, String, i64, i64)> {
    let shown = json(&["dataset", "show", "--json", text(directory)]);
    let columns = shown["columns"].as_array().unwrap();
    let at = |name: &str| columns.iter().position(|column| column["name"] == name).unwrap();
    let mut rows = Vec::new();
    for part in 0..manifest.parts.len() {
        let schema = schema_of(columns);
        let mut reader =
            fslab_dataset::PartReader::open(directory, manifest, part, &schema).unwrap();
        while let Some(group) = reader.next_group().unwrap() {
            for row in 0..group.rows() {
                let word = |name: &str| {
                    let bytes = group.cell(row, at(name)).to_bytes().unwrap();
                    String::from_utf8(bytes.to_vec()).unwrap()
                };
                let number = |name: &str| group.cell(row, at(name)).to_number().unwrap();
                rows.push((word("path"), word("state"), number("size"), number("copies")));
            }
        }
    }
    rows.sort();
    rows
}

/// Makes the schema from the columns that `fslab dataset show` lists.
fn schema_of(columns: &[Value]) -> fslab_dataset::Schema {
    use fslab_dataset::{Column, Encoding, Kind, Partition, Schema};
    let kinds = [Kind::I32, Kind::I64, Kind::U64, Kind::Time, Kind::Bool, Kind::Text, Kind::Bytes];
    let column = |column: &Value| Column {
        name: column["name"].as_str().unwrap().to_owned().into(),
        kind: *kinds.iter().find(|kind| column["type"] == kind.name()).unwrap(),
        nullable: column["nullable"].as_bool().unwrap(),
        encoding: Encoding::Plain,
    };
    let columns = columns.iter().map(column).collect();
    Schema { kind: "tier", version: 1, partition: Partition::Inode, columns }
}
