//! Workload files: a stream of operations that ages a file system, as Parquet;
//! `docs/formats/workload.md` describes them.

mod format;
mod population;

use std::io::Read;
use std::path::Path;

pub use format::{Operation, OperationKind, WORKLOAD};
pub use population::{Member, Population};
pub(crate) use population::{checksum_of_lines, tree_line};

use crate::error::{Error, Result};
use crate::table::{Reader, Writer};

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

/// The BLAKE3 hash of a file, in hexadecimal: the identity of a workload.
///
/// # Errors
/// What the system answers.
pub fn hash_of_file(path: &Path) -> Result<String> {
    let mut file = std::fs::File::open(path).map_err(Error::file(path))?;
    let (mut hasher, mut buffer) = (blake3::Hasher::new(), vec![0; 1 << 16]);
    loop {
        match file.read(&mut buffer).map_err(Error::file(path))? {
            0 => return Ok(hasher.finalize().to_hex().to_string()),
            read => hasher.update(&buffer[..read]),
        };
    }
}
