//! Workload files: a stream of operations that ages a file system, as Parquet.
//! `docs/formats/workload.md` describes the format.

pub mod dataset;
mod format;
mod population;

use std::path::Path;

pub use format::{Operation, OperationKind};
pub use population::{Member, Population};
pub(crate) use population::{checksum_of_lines, tree_line};

use crate::error::Result;
use crate::table::{Reader, Row, Writer};

/// The metadata of a workload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Provenance {
    /// The source of the workload: a profile with its parameters, or snapshots.
    pub source: String,
    /// The seed for all random choices.
    pub seed: u64,
    /// Size of the target file system in bytes; 0 if unknown.
    pub volume_bytes: u64,
    /// The program that wrote the workload.
    pub made_by: String,
}

/// The text that separates a profile's name from its values in [`Provenance::source`].
const VALUES: &str = ": Profile {";

/// Returns a short form of a workload's source: for a profile, only its name without the values.
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
    /// Fails if the file is not a workload, and on I/O errors.
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

    /// Returns the provenance of the workload.
    #[must_use]
    pub fn provenance(&self) -> &Provenance {
        &self.provenance
    }

    /// Returns the number of operations in the file, according to its footer.
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

/// Writes a workload file and returns the number of its operations.
///
/// # Errors
/// Fails if an operation is an error, and on I/O errors.
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

/// Returns the identity of a workload: the BLAKE3 hash of its operations, in hexadecimal. The
/// identity does not depend on how operations are stored, on the program that wrote the file, or on
/// its footer. `docs/formats/workload.md` describes the hashed bytes.
///
/// # Errors
/// Fails if an operation is an error.
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

/// Number of bytes that [`identity`] collects before hashing, because large pieces are hashed
/// faster.
const HASHED_AT_ONCE: usize = 1 << 16;

/// Returns the identity of the workload in a file.
///
/// # Errors
/// Returns the same errors as [`WorkloadReader`].
pub fn identity_of_file(path: &Path) -> Result<String> {
    identity(WorkloadReader::open(path)?)
}
