//! `fslab completions`: prints the completion script of a shell.

use std::io::Write;

use anyhow::{Context, Result};
use clap::builder::PossibleValuesParser;
use clap_complete::env::Shells;

use crate::output::output;

/// A completion script sets this environment variable when it runs the program for candidates.
pub(super) const VARIABLE: &str = "FSLAB_COMPLETE";

/// The name under which shells run the program.
const PROGRAM: &str = "fslab";

/// Arguments of `fslab completions`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The shell
    #[arg(value_parser = shells())]
    shell: String,
}

fn shells() -> PossibleValuesParser {
    Shells::builtins().names().collect::<Vec<_>>().into()
}

impl Args {
    /// Prints the script. At each completion, the script runs the installed program for candidates,
    /// so the candidates are always up to date.
    pub fn run(self) -> Result<()> {
        let shells = Shells::builtins();
        let shell = shells.completer(&self.shell).context("unknown shell")?;
        let mut script = Vec::new();
        shell.write_registration(VARIABLE, PROGRAM, PROGRAM, PROGRAM, &mut script)?;
        output().write_all(&script).context("can't write the completions")
    }
}
