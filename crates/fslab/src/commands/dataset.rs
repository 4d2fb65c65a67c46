//! `fslab dataset`: converts results to data sets, which SQL engines read, and checks them.

mod check;
mod create;
mod show;

use std::time::Instant;

use anyhow::Result;
use clap::Subcommand;
use fslab_dataset::{Manifest, Schema};
use serde_json::json;

use crate::units::{bytes, counted, duration};

/// Arguments of `fslab dataset`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Make a data set: Parquet files with a manifest, for DuckDB, Spark and others
    ///
    /// SOURCE is converted row by row, in bounded memory. The files contain names of files, so only
    /// their owner can read them.
    Create(create::Args),
    /// Read a data set completely, and compare it with its manifest
    Check(check::Args),
    /// Show what a data set contains
    Show(show::Args),
}

impl Args {
    /// Runs the chosen subcommand.
    pub fn run(self) -> Result<()> {
        match self.command {
            Command::Create(args) => args.run(),
            Command::Check(args) => args.run(),
            Command::Show(args) => args.run(),
        }
    }
}

/// Returns the columns of the data sets of a kind.
fn schema_of(kind: &str) -> Result<Schema> {
    match kind {
        "snapshot" => Ok(fslab_age::snapshot::dataset::SCHEMA),
        "workload" => Ok(fslab_age::workload::dataset::SCHEMA),
        "trace" => Ok(fslab_trace::DATASET_SCHEMA),
        "tier" => Ok(super::tier::export::SCHEMA),
        "samples" => Ok(fslab_report::dataset::schema()?),
        _ => bail_as!(BadInput, "this fslab does not know data sets of kind '{kind}'"),
    }
}

/// Prints the counts of a data set that was created since `start`.
pub fn print(manifest: &Manifest, start: Instant, as_json: bool) {
    let (kind, rows, parts) = (&manifest.kind, manifest.rows, manifest.parts.len());
    if as_json {
        let bytes = bytes_of(manifest);
        say!("{:#}", json!({"kind": kind, "rows": rows, "parts": parts, "bytes": bytes}));
        return;
    }
    say!(
        "{} of a {kind} in {} ({}), {}",
        counted(rows, "row"),
        counted(parts as u64, "part"),
        bytes(bytes_of(manifest)),
        duration(start.elapsed().as_nanos() as u64),
    );
}

fn bytes_of(manifest: &Manifest) -> u64 {
    manifest.parts.iter().map(|part| part.bytes).sum()
}
