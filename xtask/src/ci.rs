//! `cargo xtask ci`: runs CI's own script, and thus exactly the checks of CI.

use std::process::Command;

use anyhow::Result;

use crate::{environment, process};

/// No options: CI has none either.
#[derive(Debug, clap::Args)]
pub struct Args {}

impl Args {
    /// Runs `.ci/run` and succeeds if the script does.
    pub fn run(&self) -> Result<bool> {
        let root = environment::workspace_root();
        let status = process::run(Command::new(root.join(".ci/run")).current_dir(&root))?;
        Ok(status.success())
    }
}
