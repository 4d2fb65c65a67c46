//! Workload files: a stream of operations that ages a file system, as Parquet;
//! `docs/formats/workload.md` describes them.

mod format;
mod population;

use std::path::Path;

pub use format::{Operation, OperationKind};
pub use population::{Member, Population};
pub(crate) use population::{checksum_of_lines, tree_line};

use crate::error::Result;
use crate::table::{Reader, Row, Writer};

/// What a workload says about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Provenance {
    /// Where it comes from: the profile with its parameters, or the snapshots.
    pub source: String,
    /// The seed of whatever was left to chance.
    pub seed: u64,
    /// Size of the file system that it is meant for, in bytes; 0 where nobody knows.
    pub volume_bytes: u64,
    /// The program that wrote it.
    pub made_by: String,
}

/// What follows the name of a profile in a source.
const VALUES: &str = ": Profile {";

/// The source of a workload for people: a profile's own name, without the form in which all its
/// values are told.
#[must_use]
pub fn brief_source(source: &str) -> &str {
    source.split_once(VALUES).map_or(source, |(name, _values)| name)
}

/// Reads a workload.
pub struct WorkloadReader {
    rows: Reader<Operation>,
    provenance: Provenance,
}

impl WorkloadReader {
    /// Opens a workload file.
    ///
    /// # Errors
    /// Where it is none, and what the system answers.
    pub fn open(path: &Path) -> Result<Self> {
        let rows = Reader::<Operation>::open(path)?;
        let provenance = Provenance {
            source: rows.text("source")?.to_owned(),
            seed: rows.number("seed")?,
            volume_bytes: rows.number("volume_bytes")?,
            made_by: rows.text("made_by")?.to_owned(),
        };
        Ok(Self { rows, provenance })
    }

    /// What it says about itself.
    #[must_use]
    pub fn provenance(&self) -> &Provenance {
        &self.provenance
    }

    /// Its operations, as it claims.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.rows.total()
    }
}

impl Iterator for WorkloadReader {
    type Item = Result<Operation>;

    fn next(&mut self) -> Option<Self::Item> {
        self.rows.next()
    }
}

/// Writes a workload file and answers how many operations it has.
///
/// # Errors
/// Those of the operations, and what the system answers.
pub fn write(
    path: &Path,
    provenance: &Provenance,
    operations: impl Iterator<Item = Result<Operation>>,
) -> Result<u64> {
    let mut writer = Writer::create(path)?;
    for operation in operations {
        writer.push(&operation?)?;
    }
    let rows = writer.rows();
    writer.finish(&[
        ("source", provenance.source.clone()),
        ("seed", provenance.seed.to_string()),
        ("volume_bytes", provenance.volume_bytes.to_string()),
        ("made_by", provenance.made_by.clone()),
    ])?;
    Ok(rows)
}

/// The identity of a workload: the BLAKE3 hash of its operations, in hexadecimal. How a file stores
/// them, what wrote it and what its footer says are no part of it; `docs/formats/workload.md`
/// describes the bytes.
///
/// # Errors
/// Those of the operations.
pub fn identity(operations: impl Iterator<Item = Result<Operation>>) -> Result<String> {
    let (mut hasher, mut bytes) = (blake3::Hasher::new(), Vec::new());
    for operation in operations {
        let (numbers, [name, _]) = operation?.to_cells();
        for number in &numbers[..Operation::LAYOUT.numbers.len()] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.extend_from_slice(&(name.bytes().len() as u64).to_le_bytes());
        bytes.extend_from_slice(name.bytes());
        if bytes.len() >= HASHED_AT_ONCE {
            hasher.update(&bytes);
            bytes.clear();
        }
    }
    hasher.update(&bytes);
    Ok(hasher.finalize().to_hex().to_string())
}

/// Bytes that [`identity`] gathers: large pieces are hashed faster.
const HASHED_AT_ONCE: usize = 1 << 16;

/// The identity of the workload in a file.
///
/// # Errors
/// As [`WorkloadReader`].
pub fn identity_of_file(path: &Path) -> Result<String> {
    identity(WorkloadReader::open(path)?)
}
