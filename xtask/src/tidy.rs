//! `cargo xtask tidy`: checks the rules that compilers and lints don't check.
//!
//! Each check is a pure function that returns the violations in the project's files. Each check has
//! a test with planted violations that the check must find. To add a check, write one file and add
//! it to [`CHECKS`].

use anyhow::Result;

use crate::steps::{Context, Step};
use crate::tally::Tally;

mod absences;
mod arrows;
mod book;
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
mod markdown;
mod prose;
mod semantics;
mod sizes;
mod tree;

pub use tree::Tree;
use tree::Violation;

/// The step `tidy` of `cargo xtask test`.
pub const STEP: Step = Step {
    name: "tidy",
    help: "file sizes, dependencies, and agreement of documents with the code",
    run: |_context: &Context| tally(),
};

/// A rule of the project: its name, its description, and the function that checks it.
type Check = (&'static str, &'static str, fn(&Tree) -> Vec<Violation>);

const CHECKS: &[Check] = &[
    ("sizes", "Rust files have at most 800 lines of 100 columns, and only ASCII", sizes::run),
    ("leftovers", "no notes about unfinished work and no merge conflicts", leftovers::run),
    (
        "absences",
        "no unsafe code, clock or printing in files that must not use them",
        absences::run,
    ),
    ("arrows", "each crate depends only on the crates that are permitted for it", arrows::run),
    ("circles", "files of a crate do not import each other in a circle", circles::run),
    ("clone-paths", "no program contains the path of its git clone", clone_paths::run),
    ("dead-files", "every Rust file is declared by a `mod`", dead_files::run),
    ("crates", "ARCHITECTURE.md lists every crate and is short", crates::run),
    ("commands", "README.md or the guide shows every subcommand", commands::run),
    ("exit-codes", "README.md lists the program's exit codes", exit_codes::run),
    (
        "format-pages",
        "each page of docs/formats contains the hash of the code that it describes",
        format_pages::run,
    ),
    ("semantics", "every promise in docs/SEMANTICS.md lists existing tests", semantics::run),
    ("features", "every FUSE feature lists an existing test", features::run),
    ("links", "links between documents lead to existing files and headings", links::run),
    ("book", "docs/SUMMARY.md lists each page, and links lead to pages of the book", book::run),
    ("prose", "no phrase that is hard to understand", prose::run),
    ("hosts", "no file contains the name of a package registry", hosts::run),
];

/// The options of `cargo xtask tidy`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// List the checks, without running them
    #[arg(long)]
    list: bool,
}

impl Args {
    /// Runs the checks; succeeds if nothing is wrong.
    pub fn run(&self) -> Result<bool> {
        if self.list {
            CHECKS.iter().for_each(|(name, help, _)| println!("{name:<14} {help}"));
            return Ok(true);
        }
        let tally = tally()?;
        println!("tidy: {}", tally.counts());
        Ok(tally.is_good())
    }
}

/// Runs every check on the project; each check is counted as one test.
fn tally() -> Result<Tally> {
    let tree = Tree::of_workspace()?;
    let mut tally = Tally::default();
    for (name, _, check) in CHECKS {
        let violations = check(&tree);
        violations.iter().for_each(|violation| println!("{name}: {violation}"));
        tally += match violations.len() {
            0 => Tally::pass(),
            count => Tally::fail(format!("tidy {name}: {count} violations, see above")),
        };
    }
    Ok(tally)
}
