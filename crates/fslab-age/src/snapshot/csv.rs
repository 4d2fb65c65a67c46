//! Imports snapshots from CSV files, which any program that lists files can write.
//!
//! The first line contains the names of the columns. `path` and `size` are required. These are
//! optional: `inode`, `kind` (d, f, l or o), `modified`, `changed`, `born` (seconds since 1970),
//! `mode` (octal), `uid` and `gid`.

use std::collections::HashMap;
use std::path::Path;

use csv::{Position, Reader, StringRecord};

use super::paths::Directories;
use super::{Entry, EntryKind, NameKey, SnapshotWriter, Taken};
use crate::error::{Error, Result, one_line};

/// Writes a snapshot of the files listed in a CSV file. Returns the number of entries. Without
/// inode numbers, entries with the same path in several snapshots are treated as the same file.
///
/// # Errors
/// Fails at the first invalid line, and on I/O errors.
pub fn import_csv(
    input: &Path,
    output: &Path,
    key: Option<&NameKey>,
    taken_ns: i64,
) -> Result<u64> {
    let mut reader = Reader::from_path(input).map_err(csv_error(input))?;
    let columns = columns_of(reader.headers().map_err(csv_error(input))?, input)?;
    let mut writer = SnapshotWriter::new(output);
    let mut directories = Directories::default();
    let hide = |name: &[u8]| key.map_or_else(|| name.to_vec(), |key| key.hide(name)).into();
    for record in reader.records() {
        let record = record.map_err(csv_error(input))?;
        let (path, mut entry) = entry_of(&columns, &record, input)?;
        let (directory, name) = directories.place(&path, &mut |path| number_of(path, b"d"));
        // A listed directory is added as the parent of an imaginary entry. So it is added only
        // once, even if it is also the parent of other entries.
        if entry.kind == EntryKind::Directory {
            directories
                .place(&[path.as_slice(), b"/x"].concat(), &mut |path| number_of(path, b"d"));
            continue;
        }
        (entry.directory, entry.name) = (directory, hide(name));
        writer.push(entry)?;
    }
    directories.write(&mut writer, &Entry::default(), |_path| true)?;
    let source =
        if key.is_some() { "a list".to_owned() } else { format!("CSV {}", input.display()) };
    writer.finish(&Taken { taken_ns, source, anonymised: key.is_some(), ..Taken::default() })
}

/// The index of each column in a line, by name.
type Columns = HashMap<String, usize>;

fn columns_of(head: &StringRecord, input: &Path) -> Result<Columns> {
    let mut columns = Columns::new();
    for (place, name) in head.iter().enumerate() {
        columns.entry(name.trim().to_owned()).or_insert(place);
    }
    match ["path", "size"].into_iter().find(|needed| !columns.contains_key(*needed)) {
        None => Ok(columns),
        Some(needed) => {
            let what = format!("the first line has no column '{needed}'");
            Err(Error::Line { path: input.to_owned(), line: 1, what })
        }
    }
}

fn entry_of(columns: &Columns, record: &StringRecord, input: &Path) -> Result<(Vec<u8>, Entry)> {
    let cell = |column: &str| {
        let text = columns.get(column).and_then(|place| record.get(*place)).map(str::trim);
        text.filter(|text| !text.is_empty())
    };
    let wrong = |what: String| {
        let line = record.position().map_or(0, Position::line);
        Error::Line { path: input.to_owned(), line, what }
    };
    let number = |column: &str, radix: u32| {
        let parse = |text: &str| {
            let unfit = || wrong(format!("'{}' is not a number from 0 to 2^63", one_line(text)));
            u64::from_str_radix(text, radix).ok().filter(|n| *n < 1 << 63).ok_or_else(unfit)
        };
        cell(column).map(parse).transpose()
    };
    let time = |column: &str| {
        let parse = |text: &str| {
            let unfit =
                || wrong(format!("'{}' is not a number of seconds since 1970", one_line(text)));
            // 64-bit nanoseconds cover the years 1677 to 2262.
            let seconds = text.parse::<f64>().ok().filter(|seconds| seconds.abs() < 9.2e9);
            seconds.map(|seconds| (seconds * 1e9) as i64).ok_or_else(unfit)
        };
        cell(column).map_or(Ok(0), parse)
    };
    let owner = |column: &str| {
        let told = number(column, 10)?.unwrap_or_default();
        u32::try_from(told).map_err(|error| wrong(format!("{told} is not a valid owner: {error}")))
    };
    let path = cell("path").unwrap_or_default().trim_matches('/').as_bytes().to_vec();
    if path.split(|byte| *byte == b'/').any(|name| matches!(name, b"" | b"." | b"..")) {
        return Err(wrong("the path contains an empty name, '.' or '..'".to_owned()));
    }
    let kind = match cell("kind").unwrap_or("f") {
        "d" => EntryKind::Directory,
        "f" => EntryKind::File,
        "l" => EntryKind::Symlink,
        "o" => EntryKind::Other,
        other => {
            return Err(wrong(format!("'{}' is not a kind; use d, f, l or o", one_line(other))));
        }
    };
    let modified_ns = time("modified")?;
    let size = match number("size", 10)? {
        None if kind == EntryKind::File => return Err(wrong("the size is missing".to_owned())),
        told => told.unwrap_or_default(),
    };
    let inode = match number("inode", 10)? {
        Some(0) => return Err(wrong("inode 0 is reserved for the root".to_owned())),
        told => told.unwrap_or_else(|| number_of(&path, b"f")),
    };
    let entry = Entry {
        inode,
        kind,
        size,
        modified_ns,
        changed_ns: if columns.contains_key("changed") { time("changed")? } else { modified_ns },
        born_ns: time("born")?,
        mode: number("mode", 8)?.unwrap_or(0o644) as u32 & 0o7777,
        uid: owner("uid")?,
        gid: owner("gid")?,
        links: 1,
        ..Entry::default()
    };
    Ok((path, entry))
}

/// Returns an inode number for a path, from a hash of the path. Two paths collide with a
/// probability of 1 in 2^63.
fn number_of(path: &[u8], kind: &[u8]) -> u64 {
    let mut hasher = blake3::Hasher::new();
    hasher.update(kind).update(path);
    let mut bytes = [0; 8];
    hasher.finalize_xof().fill(&mut bytes);
    (u64::from_le_bytes(bytes) >> 1).max(1)
}

fn csv_error(input: &Path) -> impl FnOnce(csv::Error) -> Error {
    let path = input.to_owned();
    move |error| {
        let line = error.position().map_or(1, Position::line);
        Error::Line { path, line, what: error.to_string() }
    }
}
