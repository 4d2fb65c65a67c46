//! Step `build`: compiles all tests, and the program with the same features. The other steps run
//! these programs.

use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};

use super::{Context, Step};
use crate::tally::Tally;
use crate::{nextest, process};

/// The step `build`.
pub const STEP: Step =
    Step { name: "build", help: "compile all tests, and the program that they test", run };

fn run(context: &Context) -> Result<Tally> {
    let mut command = nextest::command(context.target_directory())?;
    command.args(["list", "--locked", "--workspace", "--all-features"]);
    command.args(["--list-type", "binaries-only", "--message-format", "json"]);
    let mut list = String::new();
    let status = process::run_lines(&mut command, |line| list += line)?;
    ensure!(status.success(), "{} ended with {status}", process::line_of(&command));
    std::fs::write(binaries(context), list).context("cannot write the list of test programs")?;
    let mut command = context.cargo();
    command.args(["metadata", "--locked", "--all-features", "--format-version", "1"]);
    let metadata = process::capture(&mut command)?;
    std::fs::write(metadata_of_cargo(context), metadata)
        .context("cannot write cargo's metadata")?;
    Ok(Tally::pass())
}

/// Returns the path of the list of test programs, with which nextest runs them without asking cargo
/// again.
pub fn binaries(context: &Context) -> std::path::PathBuf {
    context.target_directory().join("test-programs.json")
}

/// Returns the path of cargo's metadata of the workspace, which nextest needs for the same purpose.
pub fn metadata_of_cargo(context: &Context) -> std::path::PathBuf {
    context.target_directory().join("workspace.json")
}

/// Builds the program with optimisation and without test features, and returns its path.
pub fn release(context: &Context) -> Result<PathBuf> {
    let build = ["build", "--release", "--locked", "--package", "fslab"];
    process::run_ok(context.cargo().args(build))?;
    Ok(context.target_directory().join("release/fslab"))
}

/// Builds the program as [`STEP`] does, for a command that runs without that step, and returns its
/// path. A build of the program alone would use other features of its dependencies and compile them
/// all again.
pub fn program(context: &Context) -> Result<PathBuf> {
    (STEP.run)(context)?;
    Ok(context.program())
}
