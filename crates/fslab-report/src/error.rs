//! The errors of reading and writing samples and of making reports.

use std::io;
use std::path::{Path, PathBuf};

use crate::names::nearest;

/// The result of reading samples or making a report.
pub type Result<T> = std::result::Result<T, Error>;

/// The reason why samples can't be read or written, or a report can't be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file could not be used.
    #[error("{}: {source}", path.display())]
    File {
        /// The file or directory.
        path: PathBuf,
        /// The error of the system.
        #[source]
        source: io::Error,
    },
    /// A samples file can't be read.
    #[error("samples {}: {source}", path.display())]
    UnreadableSamples {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// A line of a samples file does not parse.
    #[error("{}, line {line} is not a record of a comparison: {source}", path.display())]
    Record {
        /// The samples file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// The error of the parser.
        #[source]
        source: serde_json::Error,
    },
    /// A samples file does not begin with a provenance.
    #[error(
        "{}: the first line is not a provenance record; is this a samples file?",
        path.display()
    )]
    NoProvenance {
        /// The samples file.
        path: PathBuf,
    },
    /// A samples file was written by a later fslab.
    #[error(
        "{}: its records have format {format}, but this fslab supports only formats up to {}",
        path.display(),
        crate::sample::FORMAT
    )]
    NewerFormat {
        /// The samples file.
        path: PathBuf,
        /// The format of the file.
        format: u32,
    },
    /// Another run appends to a samples file.
    #[error(
        "{}: another comparison is writing to it; wait until it has finished, or stop it",
        path.display()
    )]
    SamplesInUse {
        /// The samples file.
        path: PathBuf,
    },
    /// The samples file of a new run contains samples.
    #[error(
        "{} contains samples, which are never overwritten; choose another --out, or resume that \
         run with --resume",
        path.display()
    )]
    SamplesExist {
        /// The samples file.
        path: PathBuf,
    },
    /// A target, workload or baseline with this name does not exist.
    #[error("no {what} is named `{name}`; nearest: {nearest}")]
    Unknown {
        /// The kind of thing: a target, a workload, a baseline.
        what: &'static str,
        /// The name.
        name: String,
        /// The most similar names.
        nearest: String,
    },
    /// A gate matches no row.
    #[error("gate `{gate}`: the report has no such row; nearest: {near}")]
    NoSuchRow {
        /// The gate.
        gate: String,
        /// The most similar names.
        near: String,
    },
    /// The Parquet file could not be made.
    #[cfg(feature = "parquet")]
    #[error("can't make the Parquet file: {0}")]
    Parquet(#[source] parquet::errors::ParquetError),
    /// The data set could not be made.
    #[cfg(feature = "parquet")]
    #[error(transparent)]
    Dataset(#[from] fslab_dataset::Error),
    /// The HTML page could not be made.
    #[error("can't make the page: {0}")]
    Page(#[from] askama::Error),
    /// A record can't be converted to JSON.
    #[error("can't encode samples or a report as JSON: {0}")]
    Encode(#[source] serde_json::Error),
}

impl Error {
    /// Returns a function for `map_err` that adds the path of a file to a system error.
    pub(crate) fn file(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File { path, source }
    }

    /// Makes the error for an unknown name, with the most similar valid names. `what` is the kind
    /// of thing, such as a target.
    pub fn unknown<'a>(
        what: &'static str,
        name: &str,
        valid: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        Self::Unknown { what, name: name.to_owned(), nearest: nearest(name, valid) }
    }
}
