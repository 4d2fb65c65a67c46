//! The command line: one file a subcommand, each with its `Args` and `run`.

use anyhow::Result;
use clap::{Parser, Subcommand};

mod compare;
mod list;
mod report;

/// A file-system laboratory you can also live in.
#[derive(Debug, Parser)]
#[command(name = "fslab", version, propagate_version = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Compare file systems: run a plan, print the table, write the page
    Compare(compare::Args),
    /// Render a report again from its samples
    Report(report::Args),
    /// List what fslab offers: layers, workloads, renderers
    List(list::Args),
}

impl Cli {
    /// Runs the chosen subcommand.
    pub fn run(self) -> Result<()> {
        match self.command {
            Command::Compare(args) => args.run(),
            Command::Report(args) => args.run(),
            Command::List(args) => args.run(),
        }
    }
}
