//! Makes two synthetic snapshots with a given number of rows from a seed. They are used to measure
//! the cost of a comparison and to check its result.

use std::path::Path;

use fslab_vfs::split_mix;

use super::{Entry, EntryKind, SnapshotWriter, Taken};
use crate::diff::Summary;
use crate::error::Result;
use crate::profile::DAY_NS;

/// Number of files per directory.
const FILES_PER_DIRECTORY: u64 = 20;

/// Writes a snapshot with `rows` entries to `before`, and one of a day later to `after`. Returns
/// their differences. Per 100 files, about one is removed, one grows, one shrinks, one is rewritten
/// and one is renamed. One file is created for every two that are removed.
///
/// # Errors
/// Fails on I/O errors.
pub fn write_synthetic_pair(rows: u64, seed: u64, before: &Path, after: &Path) -> Result<Summary> {
    let directories = rows / (FILES_PER_DIRECTORY + 1);
    let mut first = SnapshotWriter::ascending(before)?;
    let mut second = SnapshotWriter::ascending(after)?;
    let mut summary = Summary::default();
    for inode in 1..=rows {
        let entry = entry(inode, directories, seed);
        if let Some(later) = later(&entry, seed, &mut summary) {
            second.push(later)?;
        }
        first.push(entry)?;
    }
    for inode in rows + 1..=rows + rows / 200 {
        let entry = entry(inode, directories, seed);
        summary.created += 1;
        summary.created_bytes += entry.size;
        second.push(entry)?;
    }
    let taken = Taken { source: "made up".to_owned(), ..Taken::default() };
    first.finish(&taken)?;
    second.finish(&Taken { taken_ns: DAY_NS.cast_signed(), ..taken })?;
    Ok(summary)
}

/// Returns an entry of the first snapshot. The first inodes are directories.
fn entry(inode: u64, directories: u64, seed: u64) -> Entry {
    let noise = split_mix(inode ^ seed);
    let is_directory = inode <= directories;
    let changed_ns = (noise >> 34).cast_signed() * 1_000_000_000;
    Entry {
        inode,
        directory: if directories == 0 { 0 } else { split_mix(noise) % directories.min(inode) },
        kind: if is_directory { EntryKind::Directory } else { EntryKind::File },
        // From 0 to 1 MiB, roughly uniform on a logarithmic scale.
        size: if is_directory { 4096 } else { (noise & 0xf_ffff) >> (noise >> 20 & 15) },
        stored: 4096,
        modified_ns: changed_ns,
        changed_ns,
        born_ns: changed_ns,
        mode: if is_directory { 0o755 } else { 0o644 },
        uid: (noise >> 40 & 63) as u32,
        gid: 100,
        links: 1,
        name: format!("{:x}-{inode}.dat", noise >> 44).into_bytes().into(),
        ..Entry::default()
    }
}

/// Returns an entry's state in the second snapshot; `None` if it was removed. Counts the change.
fn later(entry: &Entry, seed: u64, summary: &mut Summary) -> Option<Entry> {
    let mut later = entry.clone();
    later.modified_ns += 1;
    if entry.kind == EntryKind::Directory {
        summary.unchanged += 1;
        return Some(entry.clone());
    }
    match split_mix(entry.inode ^ seed.rotate_left(32)) % 100 {
        0 => {
            summary.deleted += 1;
            summary.deleted_bytes += entry.size;
            return None;
        }
        1 => (later.size, summary.grown) = (entry.size + 1, summary.grown + 1),
        2 if entry.size > 0 => {
            (later.size, summary.truncated) = (entry.size / 2, summary.truncated + 1);
        }
        3 => summary.modified += 1,
        4 => {
            (later.name, later.modified_ns) = (b"renamed".to_vec().into(), entry.modified_ns);
            summary.renamed += 1;
        }
        _ => {
            summary.unchanged += 1;
            return Some(entry.clone());
        }
    }
    Some(later)
}
