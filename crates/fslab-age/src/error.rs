//! Why ageing can't go on.

use std::io;
use std::path::{Path, PathBuf};

/// The result of anything in this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why ageing can't go on.
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
    /// A file is no Parquet file, or a damaged one.
    #[error("{} is not a file that fslab age made, or is damaged: {source}", path.display())]
    Parquet {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: parquet::errors::ParquetError,
    },
    /// A file is not of the format that it should have.
    #[error("{} is no {format} of fslab age: {what}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// The format.
        format: &'static str,
        /// What is wrong with it.
        what: &'static str,
    },
    /// A row of a file can't be so.
    #[error("{}, row {row}: {what}", path.display())]
    Row {
        /// The file.
        path: PathBuf,
        /// The row, from 0.
        row: u64,
        /// What is wrong with it.
        what: &'static str,
    },
    /// A line of a text that is imported can't be so.
    #[error("{}, line {line}: {what}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: u64,
        /// What is wrong with it, and what would be right.
        what: String,
    },
    /// A record of a binary file that is imported can't be so.
    #[error("{}, record at byte {offset}: {what}", path.display())]
    Record {
        /// The file.
        path: PathBuf,
        /// Where the record begins, in bytes.
        offset: u64,
        /// What is wrong with it.
        what: &'static str,
    },
    /// A parameter can't be so.
    #[error("{what}")]
    Parameter {
        /// What, and what would be right.
        what: String,
    },
    /// A file of a workload is in a directory that is not there, or in itself.
    #[error("file {file} of the workload lies in no directory that is there")]
    NoPath {
        /// The number of the file in the workload.
        file: u64,
    },
    /// The operations of a workload contradict each other.
    #[error("operation {index} of the workload: {what}")]
    Operation {
        /// Which one, from 0.
        index: u64,
        /// What is wrong with it.
        what: &'static str,
    },
    /// The target of a replay answered an error that its policy does not allow for.
    #[error("operation {index} of the workload, {kind} of file {file}: {source}")]
    Target {
        /// Which one, from 0.
        index: u64,
        /// What was done.
        kind: &'static str,
        /// The number of the file in the workload.
        file: u64,
        /// What the target answered.
        #[source]
        source: fslab_vfs::Error,
    },
    /// Something else of the target could not be had.
    #[error("{what}: {source}")]
    Volume {
        /// What was wanted.
        what: String,
        /// What the target answered.
        #[source]
        source: fslab_vfs::Error,
    },
    /// The engine's policy answered an error.
    #[error("simulating: {0}")]
    Engine(#[from] fslab_ext2::Error),
    /// A file can't be used for what it was named for.
    #[error("{}: {what}", path.display())]
    Unfit {
        /// The file.
        path: PathBuf,
        /// Why not, and what to do.
        what: String,
    },
    /// A program that is needed is not there.
    #[error("{program}, which is needed for this, can't be run: {source}")]
    NoProgram {
        /// Its name.
        program: &'static str,
        /// What starting it answered.
        #[source]
        source: io::Error,
    },
    /// A program that is needed failed.
    #[error("{program}: {message}")]
    Program {
        /// Its name.
        program: &'static str,
        /// What it said.
        message: String,
    },
}

/// Text of an untrusted file for a message of one line: without line breaks and control characters,
/// and cut off after 40 characters.
pub(crate) fn one_line(text: &str) -> String {
    const CHARACTERS_MAX: usize = 40;
    let mut characters = text.chars();
    let start: String = characters.by_ref().take(CHARACTERS_MAX).collect();
    let rest = if characters.next().is_some() { "..." } else { "" };
    format!("{}{rest}", start.escape_debug())
}

impl Error {
    /// For `map_err` on what the system answers about a file.
    pub fn file<E: Into<io::Error>>(path: &Path) -> impl FnOnce(E) -> Self {
        let path = path.to_owned();
        move |source| Self::File { path, source: source.into() }
    }

    /// For `map_err` on what Parquet says about a file.
    pub(crate) fn parquet(path: &Path) -> impl FnOnce(parquet::errors::ParquetError) -> Self {
        let path = path.to_owned();
        move |source| Self::Parquet { path, source }
    }

    /// For `map_err` on what a target answers.
    pub(crate) fn volume(what: impl Into<String>) -> impl FnOnce(fslab_vfs::Error) -> Self {
        let what = what.into();
        move |source| Self::Volume { what, source }
    }

    /// A file that can't be used.
    pub(crate) fn unfit(path: &Path, what: impl Into<String>) -> Self {
        Self::Unfit { path: path.to_owned(), what: what.into() }
    }

    /// A file that a later fslab made.
    pub(crate) fn newer_format(path: &Path, found: u32, known: u32) -> Self {
        Self::unfit(path, format!("its format is {found}, and this fslab knows up to {known}"))
    }

    /// A parameter that can't be so.
    pub(crate) fn parameter(what: impl Into<String>) -> Self {
        Self::Parameter { what: what.into() }
    }
}
