//! `fslab completions`: what a shell needs to complete the command line.

use std::io::Write;

use anyhow::{Context, Result};
use clap_complete::Shell;

use crate::output::output;

/// Arguments of `fslab completions`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The shell
    shell: Shell,
}

impl Args {
    /// Writes the completions to standard output.
    pub fn run(self) -> Result<()> {
        let mut command = super::command();
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut command, "fslab", &mut script);
        output().write_all(&script).context("can't write the completions")
    }
}
