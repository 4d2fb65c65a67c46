//! `cargo xtask ci`: exactly what CI runs, by running CI's own script.

use std::process::{Command, ExitCode};

use anyhow::Result;

use crate::{environment, process};

/// No options: CI has none either.
#[derive(Debug, clap::Args)]
pub struct Args {}

impl Args {
    /// Runs `.ci/run` and ends as it ends.
    pub fn run(&self) -> Result<ExitCode> {
        let root = environment::workspace_root();
        let status = process::run(Command::new(root.join(".ci/run")).current_dir(&root))?;
        Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}
