//! Small data sets, and functions that query them.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use fslab_dataset::{
    Cell, Column, Kind, Output, Partition, Query, Schema, Table, Writer, part_of, readable,
};
use serde_json::Value;
use tempfile::TempDir;

/// The columns of snapshots, without extents.
const SNAPSHOT: &[Column] = &[
    Column::new("inode", Kind::I64),
    Column::new("directory", Kind::I64),
    Column::new("kind", Kind::Text),
    Column::new("size", Kind::I64),
    Column::new("allocated", Kind::I64),
    Column::new("modified", Kind::Time),
    Column::new("changed", Kind::Time),
    Column::new("born", Kind::Time).nullable(),
    Column::new("mode", Kind::I32),
    Column::new("uid", Kind::I64),
    Column::new("gid", Kind::I64),
    Column::new("blocks", Kind::I64).nullable(),
    Column::new("breaks", Kind::I64).nullable(),
    Column::new("generation", Kind::I64).nullable(),
    Column::new("name_bytes", Kind::Bytes),
    Column::new("name", Kind::Text),
];

const TRACE: &[Column] = &[
    Column::new("time", Kind::Time),
    Column::new("duration_ns", Kind::I64),
    Column::new("operation", Kind::Text),
    Column::new("process", Kind::I32).nullable(),
    Column::new("program", Kind::Text).nullable(),
    Column::new("path", Kind::Text).nullable(),
    Column::new("size", Kind::I64).nullable(),
    Column::new("error", Kind::Text).nullable(),
];

const TIER: &[Column] = &[
    Column::new("inode", Kind::I64),
    Column::new("uid", Kind::I64),
    Column::new("state", Kind::Text),
    Column::new("size", Kind::I64),
    Column::new("allocated", Kind::I64),
];

const DAY: i64 = 86_400_000_000_000;

/// The time of the snapshots.
const NOW: i64 = 20_000 * DAY;

/// An entry of a snapshot.
#[derive(Clone, Debug)]
pub struct Entry {
    pub inode: i64,
    pub directory: i64,
    pub kind: &'static str,
    pub size: i64,
    pub modified: i64,
    pub born: Option<i64>,
    pub mode: i64,
    pub uid: i64,
    pub breaks: i64,
    pub generation: Option<i64>,
    pub name: Vec<u8>,
}

/// Makes a regular file that was modified 800 days before the snapshot.
pub fn file(inode: i64, directory: i64, size: i64, uid: i64) -> Entry {
    Entry {
        inode,
        directory,
        kind: "file",
        size,
        modified: NOW - 800 * DAY,
        born: None,
        mode: 0o644,
        uid,
        breaks: 0,
        generation: Some(7),
        name: format!("f{inode}").into_bytes(),
    }
}

fn directory(inode: i64, directory: i64, name: &str) -> Entry {
    Entry { kind: "directory", name: name.into(), ..file(inode, directory, 4096, 0) }
}

impl Entry {
    fn push(&self, parts: usize, writer: &mut Writer) {
        let allocated = if self.kind == "symlink" { 0 } else { (self.size + 4095) / 4096 * 4096 };
        let blocks = (allocated > 0).then_some(allocated / 4096);
        let number = Cell::Number;
        let cells = [
            number(self.inode),
            number(self.directory),
            Cell::Bytes(self.kind.as_bytes()),
            number(self.size),
            number(allocated),
            number(self.modified),
            number(NOW),
            Cell::number(self.born),
            number(self.mode),
            number(self.uid),
            number(100),
            Cell::number(blocks),
            Cell::number(blocks.map(|_| self.breaks)),
            Cell::number(self.generation),
            Cell::Bytes(&self.name),
            Cell::Bytes(&readable(&self.name).into_owned().into_bytes()),
        ];
        writer.push(part_of(self.inode as u64, parts), &cells).unwrap();
    }
}

/// A directory with data sets.
pub struct Sets {
    pub scratch: TempDir,
}

impl Sets {
    pub fn new() -> Self {
        Self { scratch: tempfile::tempdir().unwrap() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    fn writer(&self, name: &str, kind: &'static str, columns: &[Column], parts: usize) -> Writer {
        let partition = if kind == "trace" { Partition::Order } else { Partition::Inode };
        let columns = Cow::Owned(columns.to_vec());
        let schema = Schema { kind, version: 1, partition, columns };
        Writer::create(&self.path(name), &schema, parts, BTreeMap::new()).unwrap()
    }

    pub fn snapshot(&self, name: &str, parts: usize, entries: impl Iterator<Item = Entry>) {
        let mut writer = self.writer(name, "snapshot", SNAPSHOT, parts);
        entries.for_each(|entry| entry.push(parts, &mut writer));
        writer.finish().unwrap();
    }

    /// Writes all tables that the named queries need. The tables `snapshot` and `before` have the
    /// same rows.
    pub fn of_all_kinds(parts: usize) -> Self {
        let sets = Self::new();
        sets.snapshot("before", parts, before().into_iter());
        sets.snapshot("snapshot", parts, before().into_iter());
        sets.snapshot("after", parts, after().into_iter());
        sets.trace();
        sets.tier(parts);
        sets
    }

    fn trace(&self) {
        let mut writer = self.writer("trace", "trace", TRACE, 1);
        let text = |text: Option<&'static str>| Cell::bytes(text.map(str::as_bytes));
        for (duration, operation, program, size, error) in [
            (500, "read", Some("cat"), Some(100), None),
            (900, "read", Some("cat"), Some(50), None),
            (700, "open", None, None, Some("ENOENT")),
        ] {
            let cells = [
                Cell::Number(NOW + 1_000 * duration),
                Cell::Number(duration),
                text(Some(operation)),
                Cell::Number(31),
                text(program),
                text(Some("/a")),
                Cell::number(size),
                text(error),
            ];
            writer.push(0, &cells).unwrap();
        }
        writer.finish().unwrap();
    }

    fn tier(&self, parts: usize) {
        let mut writer = self.writer("tier", "tier", TIER, parts);
        for (inode, uid, state, size, allocated) in [
            (1, 5, "released", 1000, 0),
            (2, 5, "released", 2000, 0),
            (3, 5, "dual", 10, 4096),
            (4, 1, "released", 7, 0),
        ] {
            let cells = [
                Cell::Number(inode),
                Cell::Number(uid),
                Cell::Bytes(str::as_bytes(state)),
                Cell::Number(size),
                Cell::Number(allocated),
            ];
            writer.push(part_of(inode as u64, parts), &cells).unwrap();
        }
        writer.finish().unwrap();
    }

    /// Makes a query over these data sets. The name of each table is that of its data set.
    pub fn query(&self, sql: &str, tables: &[&str]) -> Query {
        let table = |name: &&str| Table { name: (*name).to_owned(), directory: self.path(name) };
        Query {
            sql: sql.to_owned(),
            tables: tables.iter().map(table).collect(),
            memory_bytes: 256 << 20,
            threads: 2,
            temporary: self.scratch.path().to_owned(),
            output: Output::Json,
        }
    }

    /// Returns the rows of an answer.
    pub fn rows(&self, sql: &str, tables: &[&str]) -> Vec<Value> {
        rows(&self.query(sql, tables)).unwrap()
    }
}

/// Returns the rows of an answer as JSON.
pub fn rows(query: &Query) -> fslab_sql::Result<Vec<Value>> {
    let text = text(query)?;
    Ok(text.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
}

/// Returns an answer.
pub fn text(query: &Query) -> fslab_sql::Result<String> {
    let mut output = Vec::new();
    fslab_sql::run(query, &mut output)?;
    Ok(String::from_utf8(output).unwrap())
}

/// Returns the text of a named query and the tables that it needs.
pub fn named(name: &str) -> (String, Vec<String>) {
    let folder = Path::new("../fslab/queries");
    let text = std::fs::read_to_string(folder.join(name).with_extension("sql")).unwrap();
    let tables = text.lines().find_map(|line| line.strip_prefix("-- Tables: ")).unwrap();
    let tables = tables.split(", ").map(str::to_owned).collect();
    (text, tables)
}

/// Returns the names of all named queries.
pub fn all_named() -> Vec<String> {
    let folder = Path::new("../fslab/queries");
    let name = |path: PathBuf| path.file_stem().unwrap().to_str().unwrap().to_owned();
    std::fs::read_dir(folder).unwrap().map(|entry| name(entry.unwrap().path())).collect()
}

fn before() -> Vec<Entry> {
    vec![
        directory(10, 0, "d"),
        directory(11, 10, "e"),
        Entry { modified: NOW - DAY / 24, ..file(1, 10, 100, 1) },
        Entry { modified: NOW - 10 * DAY, breaks: 1, ..file(2, 10, 5000, 1) },
        file(3, 11, 5000, 2),
        file(4, 11, 100, 2),
        Entry { kind: "symlink", ..file(5, 11, 10, 3) },
        Entry { born: Some(60), generation: None, ..file(6, 11, 70, 2) },
        file(7, 11, 7, 2),
        file(8, 11, 8, 2),
        Entry { born: Some(5), generation: None, ..file(12, 10, 1, 1) },
    ]
}

/// The entries of `before` after the changes named below, in the order of the inodes.
fn after() -> Vec<Entry> {
    vec![
        // A directory whose entries changed, and one that was moved.
        Entry { modified: NOW, size: 8192, ..directory(10, 0, "d") },
        directory(11, 0, "e"),
        // The first file grew. The second was truncated and got another mode. The third was
        // renamed, and modified one nanosecond later.
        Entry { modified: NOW, ..file(1, 10, 200, 1) },
        Entry { modified: NOW, mode: 0o600, ..file(2, 10, 4000, 1) },
        Entry { modified: NOW - 800 * DAY + 1, name: b"\xff".to_vec(), ..file(3, 11, 5000, 2) },
        // Reused inode numbers: with another generation, as another kind, and with another creation
        // time.
        Entry { generation: Some(8), ..file(4, 11, 150, 2) },
        Entry { kind: "symlink", ..file(5, 11, 10, 3) },
        Entry { born: Some(61), generation: Some(9), ..file(6, 11, 70, 2) },
        Entry { name: b"f8".to_vec(), ..directory(8, 11, "f8") },
        file(9, 11, 1000, 2),
        file(12, 10, 1, 1),
    ]
}
