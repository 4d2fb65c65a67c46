//! Step `licences`: dependencies have licences of the list in deny.toml. Optional: it runs where
//! cargo-deny is installed, and is no test that could be missed.

use anyhow::Result;

use super::{Context, Step};
use crate::tally::Tally;
use crate::{environment, process};

/// The step.
pub const STEP: Step =
    Step { name: "licences", help: "cargo deny check, where cargo-deny is installed", run };

fn run(context: &Context) -> Result<Tally> {
    let Some(program) = environment::find_tool("cargo-deny") else {
        println!("optional and not run: cargo-deny is not installed");
        return Ok(Tally::default());
    };
    let mut command = std::process::Command::new(program);
    command.current_dir(environment::workspace_root());
    // Advisories need a database from the network; licences and sources need nothing.
    command.args(["--offline", "check", "bans", "licenses", "sources"]);
    let folder = context.target_directory()?;
    process::run_ok(command.env("CARGO_TARGET_DIR", folder))?;
    Ok(Tally::pass())
}
