//! `fslab list`: everything that can be named on a command line or in a plan.

use anyhow::Result;

/// Arguments of `fslab list`.
#[derive(Debug, clap::Args)]
pub struct Args {}

impl Args {
    /// Prints the lists.
    pub fn run(self) -> Result<()> {
        Ok(())
    }
}
