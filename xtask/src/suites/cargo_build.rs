//! cargo-build: compiles a part of this workspace inside the mount. Cargo and the compiler map
//! files into memory, rename temporary files, run programs right after writing them, and rely on
//! file times.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::{Options, Over, Suite};
use crate::stage::{Stage, Target};
use crate::tally::Tally;
use crate::{environment, process};

/// The suite `cargo-build`.
pub const SUITE: Suite =
    Suite { name: "cargo-build", program: None, over: Over::FirstStack, quick: Options::NONE, run };

/// The package to build. It has dependencies with build scripts and macros, but builds in a few
/// seconds.
const PACKAGE: &str = "fslab-sys";

/// Builds twice; the second build must compile nothing.
pub fn run(stage: &mut Stage, _target: &Target, _options: &Options) -> Result<Tally> {
    process::capture(environment::cargo().args(["fetch", "--locked"]))?;
    let sources = stage.directory().join("workspace");
    copy_workspace(&sources)?;
    let first = build(&sources)?;
    ensure!(first.contains("Compiling"), "the first build compiled nothing: {first}");
    let second = build(&sources)?;
    ensure!(
        !second.contains("Compiling"),
        "the second build compiled again, although nothing changed: {second}"
    );
    Ok(Tally::pass())
}

/// Builds the package and returns cargo's output. The build folder is in the mount too.
fn build(sources: &Path) -> Result<String> {
    let mut command = environment::cargo();
    command.args(["build", "--locked", "--offline", "--package", PACKAGE]);
    command.current_dir(sources).env("CARGO_TARGET_DIR", sources.join("target"));
    let output = process::output(command.env("CARGO_TERM_COLOR", "never"))?;
    ensure!(output.status.success(), "{}: {}", process::line_of(&command), output.stderr);
    Ok(output.stderr)
}

/// Copies the files that git tracks or would track. So the build in the mount finds no results of
/// earlier builds.
fn copy_workspace(target: &Path) -> Result<()> {
    let root = environment::workspace_root();
    for name in environment::files()? {
        let (from, to) = (root.join(&name), target.join(&name));
        let folder = to.parent().context("a listed file has no folder")?;
        fs::create_dir_all(folder)?;
        match fs::copy(&from, &to) {
            // A concurrent test may have created and removed a file of its own.
            Err(error) if error.kind() == ErrorKind::NotFound && !from.exists() => {}
            copied => {
                copied.with_context(|| format!("cannot copy {name} into the mount"))?;
            }
        }
    }
    Ok(())
}
