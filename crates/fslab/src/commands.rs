//! The command line: one file a subcommand, each with its `Args` and `run`.

use anyhow::Result;
use clap::{Parser, Subcommand};

mod list;

/// A file-system laboratory you can also live in.
#[derive(Debug, Parser)]
#[command(name = "fslab", version, propagate_version = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List what fslab offers: layers, workloads, renderers
    List(list::Args),
}

impl Cli {
    /// Runs the chosen subcommand.
    pub fn run(self) -> Result<()> {
        match self.command {
            Command::List(args) => args.run(),
        }
    }
}
