//! Reads samples files.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::format::{FORMAT, Record};
use crate::error::{Error, Result};
use crate::provenance::Provenance;

/// Reads a samples file. An incomplete last line is ignored.
///
/// # Errors
/// Fails if the file can't be read or a complete line does not parse.
pub fn read(path: &Path) -> Result<Vec<Record>> {
    let text = fs::read_to_string(path).map_err(|source| match source.kind() {
        // The file is not UTF-8, so it is not a samples file.
        ErrorKind::InvalidData => Error::NoProvenance { path: path.to_owned() },
        _ => Error::UnreadableSamples { path: path.to_owned(), source },
    })?;
    let mut records = Vec::new();
    for (index, line) in text.split_inclusive('\n').enumerate() {
        match serde_json::from_str(line) {
            Ok(record) => records.push(record),
            Err(_) if !line.ends_with('\n') || line.trim().is_empty() => {}
            Err(_) if index == 0 && !line.starts_with('{') => {
                return Err(Error::NoProvenance { path: path.to_owned() });
            }
            Err(source) => {
                return Err(newer(&records, path).unwrap_or_else(|| Error::Record {
                    path: path.to_owned(),
                    line: index + 1,
                    source,
                }));
            }
        }
    }
    match (newer(&records, path), records.first()) {
        (Some(error), _) => Err(error),
        (None, Some(Record::Provenance(_))) => Ok(records),
        (None, _) => Err(Error::NoProvenance { path: path.to_owned() }),
    }
}

/// Reads the records of a samples file up to the first incomplete or damaged line. Another host may
/// be writing the file, or may have lost power while writing. Returns no records if the first line
/// is incomplete.
///
/// # Errors
/// Fails if the file can't be read, or a later fslab wrote it.
pub fn read_prefix(path: &Path) -> Result<Vec<Record>> {
    let bytes = fs::read(path).map_err(Error::file(path))?;
    let lines = bytes.split_inclusive(|byte| *byte == b'\n');
    let whole = lines.take_while(|line| line.ends_with(b"\n"));
    let records: Vec<Record> = whole.map_while(|line| serde_json::from_slice(line).ok()).collect();
    match newer(&records, path) {
        Some(error) => Err(error),
        None => Ok(records),
    }
}

/// Whether a samples file contains a sample.
///
/// # Errors
/// Returns the same errors as [`read`].
pub fn has_samples(path: &Path) -> Result<bool> {
    Ok(read(path)?.iter().any(|record| matches!(record, Record::Sample(_))))
}

/// Reads the samples files of one campaign, in the order given.
///
/// # Errors
/// Returns the same errors as [`read`].
pub fn read_all(paths: &[PathBuf]) -> Result<Vec<Record>> {
    let mut records = Vec::new();
    for path in paths {
        records.extend(read(path)?);
    }
    Ok(records)
}

/// Returns the provenance of each session. A resumed run has several sessions.
pub fn sessions(records: &[Record]) -> impl DoubleEndedIterator<Item = &Provenance> {
    records.iter().filter_map(|record| match record {
        Record::Provenance(found) => Some(&**found),
        _ => None,
    })
}

/// Whether the last session has an end record, so that it was not killed.
#[must_use]
pub fn is_ended(records: &[Record]) -> bool {
    let last =
        records.iter().rfind(|record| matches!(record, Record::Provenance(_) | Record::End(_)));
    matches!(last, Some(Record::End(_)))
}

/// Returns an error if a provenance has a later format. The later format explains any other problem
/// of the file.
fn newer(records: &[Record], path: &Path) -> Option<Error> {
    records.iter().find_map(|record| match record {
        Record::Provenance(found) if found.format > FORMAT => {
            Some(Error::NewerFormat { path: path.to_owned(), format: found.format })
        }
        _ => None,
    })
}
