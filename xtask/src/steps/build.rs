//! Step `build`: compiles all tests, and the program with the same features. The other steps run
//! these tests and this program.

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

/// Returns the path of the list of test programs. With this list, nextest runs the programs without
/// calling cargo again.
pub fn binaries(context: &Context) -> std::path::PathBuf {
    context.target_directory().join("test-programs.json")
}

/// Returns the path of cargo's metadata of the workspace. With this file, nextest need not call
/// cargo.
pub fn metadata_of_cargo(context: &Context) -> std::path::PathBuf {
    context.target_directory().join("workspace.json")
}

/// Builds the program with optimisation and without test features, and returns its path.
pub fn release(context: &Context) -> Result<PathBuf> {
    let build = ["build", "--release", "--locked", "--package", "fslab"];
    process::run_ok(context.cargo().args(build))?;
    Ok(context.target_directory().join("release/fslab"))
}

/// Builds the program like [`STEP`] and returns its path, for a command that runs without that
/// step. Building only the program would enable other features of its dependencies and compile all
/// of them again.
pub fn program(context: &Context) -> Result<PathBuf> {
    (STEP.run)(context)?;
    Ok(context.program())
}
