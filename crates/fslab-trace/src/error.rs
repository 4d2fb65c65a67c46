//! Why a trace can't be written or read.

use std::io;
use std::path::{Path, PathBuf};

/// The result of working with a trace.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a trace can't be written or read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The place of a new trace is taken.
    #[error("{} is not empty: a trace needs a new or empty directory", path.display())]
    Taken {
        /// The directory.
        path: PathBuf,
    },
    /// What was named is no trace.
    #[error("{} is no trace: it holds no segment such as 000001.parquet", path.display())]
    NoTrace {
        /// The directory or file.
        path: PathBuf,
    },
    /// A file could not be used.
    #[error("{}: {source}", path.display())]
    File {
        /// The file or directory.
        path: PathBuf,
        /// What the system answered.
        #[source]
        source: io::Error,
    },
    /// A segment is no Parquet file, or a damaged one.
    #[error("{} is no segment of a trace, or a damaged one: {source}", path.display())]
    Parquet {
        /// The segment.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: parquet::errors::ParquetError,
    },
    /// A segment is a Parquet file that can't be one of a trace.
    #[error("{}: {what}", path.display())]
    NotASegment {
        /// The segment.
        path: PathBuf,
        /// What is wrong with it.
        what: &'static str,
    },
    /// A segment lacks a column, or has it with another type.
    #[error("{}: no column '{column}' of the type that a trace has", path.display())]
    Column {
        /// The segment.
        path: PathBuf,
        /// The column.
        column: &'static str,
    },
    /// A value can't stand where it does.
    #[error("{}, row {row}: {column} can't be so", path.display())]
    Value {
        /// The segment.
        path: PathBuf,
        /// The row, from 0.
        row: usize,
        /// The column.
        column: &'static str,
    },
    /// The trace was written by a later fslab.
    #[error(
        "{}: its format is {found}, and this fslab knows up to {}",
        path.display(),
        crate::format::VERSION
    )]
    NewerFormat {
        /// The segment.
        path: PathBuf,
        /// The format it has.
        found: u32,
    },
    /// A key for names is too short to keep a secret.
    #[error("key {}: {length} bytes; a key has at least {least}", path.display())]
    ShortKey {
        /// The key file.
        path: PathBuf,
        /// Its length in bytes.
        length: usize,
        /// The least there must be.
        least: usize,
    },
    /// Records could not be saved and are gone.
    #[error("{}: {records} records were lost: {reason}", path.display())]
    Lost {
        /// The trace.
        path: PathBuf,
        /// How many.
        records: u64,
        /// The first reason.
        reason: String,
    },
    /// What a trace found can't be made on the target of a replay.
    #[error("making '{name}' for the replay: {source}")]
    Populate {
        /// The name.
        name: String,
        /// What the target answered.
        #[source]
        source: fslab_vfs::Error,
    },
}

impl Error {
    /// For `map_err` on what the system answers about a file.
    pub(crate) fn file<E: Into<io::Error>>(path: &Path) -> impl FnOnce(E) -> Self {
        let path = path.to_owned();
        move |source| Self::File { path, source: source.into() }
    }

    /// For `map_err` on what Parquet says about a segment.
    pub(crate) fn parquet(path: &Path) -> impl FnOnce(parquet::errors::ParquetError) -> Self {
        let path = path.to_owned();
        move |source| Self::Parquet { path, source }
    }
}
