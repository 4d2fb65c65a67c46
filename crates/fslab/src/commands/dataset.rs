//! `fslab dataset`: converts results to data sets, which SQL engines read, and checks them.

mod check;
mod create;
mod show;

use anyhow::Result;
use clap::Subcommand;
use fslab_dataset::Schema;

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

/// Returns the schema of the data sets of a kind.
pub(super) fn schema_of(kind: &str) -> Result<Schema> {
    match kind {
        "snapshot" => Ok(fslab_age::snapshot::dataset::SCHEMA),
        "workload" => Ok(fslab_age::workload::dataset::SCHEMA),
        "trace" => Ok(fslab_trace::DATASET_SCHEMA),
        "tier" => Ok(super::tier::export::SCHEMA),
        "samples" => Ok(fslab_report::dataset::schema()?),
        _ => bail_as!(BadInput, "this fslab does not know data sets of kind '{kind}'"),
    }
}
