//! `cargo xtask tidy`: what compilers and lints don't check.
//!
//! Each check is a pure function from the files of the project to what is wrong in them, with a
//! test beside it that plants what it must find. A new check is one file and one line in
//! [`CHECKS`].

use std::process::ExitCode;

use anyhow::Result;

use crate::steps::{Context, Step};
use crate::tally::Tally;

mod absences;
mod arrows;
mod circles;
mod clone_paths;
mod commands;
mod crates;
mod dead_files;
mod exit_codes;
mod features;
mod format_pages;
mod hosts;
mod leftovers;
mod links;
mod semantics;
mod sizes;
mod tree;

pub use tree::Tree;
use tree::Violation;

/// The step of `cargo xtask test`.
pub const STEP: Step = Step {
    name: "tidy",
    help: "sizes, walls between crates, documents against code",
    run: |_context: &Context| tally(),
};

/// A rule of the project.
struct Check {
    name: &'static str,
    help: &'static str,
    run: fn(&Tree) -> Vec<Violation>,
}

const CHECKS: &[Check] = &[
    sizes::CHECK,
    leftovers::CHECK,
    absences::CHECK,
    arrows::CHECK,
    circles::CHECK,
    clone_paths::CHECK,
    dead_files::CHECK,
    crates::CHECK,
    commands::CHECK,
    exit_codes::CHECK,
    format_pages::CHECK,
    semantics::CHECK,
    features::CHECK,
    links::CHECK,
    hosts::CHECK,
];

/// What to do.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// List the checks and do nothing
    #[arg(long)]
    list: bool,
}

impl Args {
    /// Checks; succeeds if nothing is wrong.
    pub fn run(&self) -> Result<ExitCode> {
        if self.list {
            CHECKS.iter().for_each(|check| println!("{:<14} {}", check.name, check.help));
            return Ok(ExitCode::SUCCESS);
        }
        let tally = tally()?;
        println!("tidy: {}", tally.counts());
        Ok(if tally.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// Runs every check over the project; a check is one test.
fn tally() -> Result<Tally> {
    let tree = Tree::of_workspace()?;
    let mut tally = Tally::default();
    for check in CHECKS {
        let violations = (check.run)(&tree);
        violations.iter().for_each(|violation| println!("{}: {violation}", check.name));
        tally += match violations.len() {
            0 => Tally::pass(),
            count => Tally::fail(format!("tidy {}: {count} violations, see above", check.name)),
        };
    }
    Ok(tally)
}
