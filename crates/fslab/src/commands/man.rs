//! `fslab man`: the man pages, made from the command line itself.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::CommandFactory;

/// Arguments of `fslab man`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Where to write them; made if missing
    directory: PathBuf,
}

impl Args {
    /// Writes one page a subcommand.
    pub fn run(self) -> Result<()> {
        std::fs::create_dir_all(&self.directory)
            .with_context(|| format!("can't make {}", self.directory.display()))?;
        clap_mangen::generate_to(super::Cli::command(), &self.directory)
            .with_context(|| format!("can't write to {}", self.directory.display()))
    }
}
