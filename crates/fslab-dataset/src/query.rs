//! The request that `fslab sql` sends to the program `fslab-sql`.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// A query over data sets. `fslab sql` sends it as JSON to the standard input of `fslab-sql`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Query {
    /// The SQL text: one statement.
    pub sql: String,
    /// The tables that the statement may use.
    pub tables: Vec<Table>,
    /// Maximum memory of the engine in bytes. Data that does not fit is written to temporary files.
    pub memory_bytes: u64,
    /// Number of threads.
    pub threads: usize,
    /// The directory for temporary files.
    pub temporary: PathBuf,
    /// The output format.
    pub output: Output,
}

/// A data set, and the table name by which the statement refers to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// The name of the table.
    pub name: String,
    /// The directory of the data set.
    pub directory: PathBuf,
}

/// An output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Output {
    /// A table for people to read.
    Table,
    /// One JSON object per line.
    Json,
    /// Comma-separated values with a header line.
    Csv,
}
