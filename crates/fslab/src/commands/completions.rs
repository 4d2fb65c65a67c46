//! `fslab completions`: what a shell needs to complete the command line.

use anyhow::Result;
use clap::CommandFactory;
use clap_complete::Shell;

/// Arguments of `fslab completions`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The shell
    shell: Shell,
}

impl Args {
    /// Writes the completions to standard output.
    pub fn run(self) -> Result<()> {
        let mut command = super::Cli::command();
        clap_complete::generate(self.shell, &mut command, "fslab", &mut std::io::stdout());
        Ok(())
    }
}
