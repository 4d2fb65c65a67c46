//! Why samples can't be read or written, or a report not made.

use std::io;
use std::path::{Path, PathBuf};

use crate::names::nearest;

/// The result of reading samples or making a report.
pub type Result<T> = std::result::Result<T, Error>;

/// Why samples can't be read or written, or a report not made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file could not be used.
    #[error("{}: {source}", path.display())]
    File {
        /// The file or directory.
        path: PathBuf,
        /// What the system answered.
        #[source]
        source: io::Error,
    },
    /// A file of samples that can't be read.
    #[error("samples {}: {source}", path.display())]
    UnreadableSamples {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A line of a samples file does not parse.
    #[error("{}, line {line} is not a record of a comparison: {source}", path.display())]
    Record {
        /// The samples file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// What is wrong with it.
        #[source]
        source: serde_json::Error,
    },
    /// A samples file lacks its first line.
    #[error("{}: the first line is no provenance; is this a file of samples?", path.display())]
    NoProvenance {
        /// The samples file.
        path: PathBuf,
    },
    /// A samples file was written by a later fslab.
    #[error(
        "{}: its records have format {format}, this fslab knows up to {}",
        path.display(),
        crate::sample::FORMAT
    )]
    NewerFormat {
        /// The samples file.
        path: PathBuf,
        /// The format it has.
        format: u32,
    },
    /// Another run appends to a samples file.
    #[error("{}: another comparison is writing to it; wait for its end, or end it", path.display())]
    SamplesInUse {
        /// The samples file.
        path: PathBuf,
    },
    /// A name that a comparison, or its report, does not have.
    #[error("no {what} is named `{name}`; nearest: {nearest}")]
    Unknown {
        /// What it should be: a target, a workload, a baseline.
        what: &'static str,
        /// The name.
        name: String,
        /// Names there are.
        nearest: String,
    },
    /// A gate that names no row.
    #[error("gate `{gate}`: the report has no such row; nearest: {near}")]
    NoSuchRow {
        /// The gate.
        gate: String,
        /// Names there are.
        near: String,
    },
    /// The Parquet file could not be made.
    #[cfg(feature = "parquet")]
    #[error("making the Parquet file: {0}")]
    Parquet(#[source] parquet::errors::ParquetError),
    /// The HTML page could not be made.
    #[error("making the page: {0}")]
    Page(#[from] askama::Error),
    /// A record could not be turned into JSON.
    #[error("writing a record: {0}")]
    Encode(#[source] serde_json::Error),
}

impl Error {
    /// For `map_err` on what the system answers about a file.
    pub(crate) fn file(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File { path, source }
    }

    /// That no `what` has this name, with the nearest of those there are.
    pub fn unknown<'a>(
        what: &'static str,
        name: &str,
        valid: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        Self::Unknown { what, name: name.to_owned(), nearest: nearest(name, valid) }
    }
}
