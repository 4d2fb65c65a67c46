//! `cargo xtask sql`: checks the SQL engine. The engine is a separate workspace, which the other
//! checks do not include.

use std::process::Command;

use anyhow::{Context as _, Result};

use crate::tally::Tally;
use crate::{environment, process, summary};

/// The workspace, from the project's root.
const WORKSPACE: &str = "crates/fslab-sql";

/// The checks: their names, and the arguments of cargo.
const CHECKS: &[(&str, &str)] = &[
    ("format", "fmt --check"),
    ("lints", "clippy --locked --all-targets -- -D warnings"),
    ("tests", "test --locked"),
];

/// No options.
#[derive(Debug, clap::Args)]
pub struct Args {}

impl Args {
    /// Runs the checks one after another; succeeds if none failed.
    pub fn run(&self) -> Result<bool> {
        let mut tally = Tally::default();
        for (name, arguments) in CHECKS {
            println!("== {name}");
            let mut command = command(arguments)?;
            tally += match process::run_ok(&mut command) {
                Ok(()) => Tally::pass(),
                Err(error) => Tally::fail(format!("{name}: {error:#}")),
            };
            if process::interrupted() {
                break;
            }
        }
        Ok(summary::close(&tally))
    }
}

fn command(arguments: &str) -> Result<Command> {
    let root = environment::workspace_root();
    let target = environment::target_directory().context("the target directory")?;
    let mut command: Command = environment::cargo();
    command.current_dir(root.join(WORKSPACE)).args(arguments.split(' '));
    // The comparison with DuckDB must not be skipped.
    command.env("CARGO_TARGET_DIR", target.join("fslab-sql")).env("FSLAB_REQUIRE_ALL", "1");
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_run_in_the_workspace_of_the_engine() {
        let command = command("test --locked").unwrap();
        let folder = command.get_current_dir().unwrap();
        assert!(folder.join("Cargo.lock").is_file(), "{}", folder.display());
    }
}
