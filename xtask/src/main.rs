//! `cargo xtask`: all automation of the project, one file per subcommand.
//!
//! Everything that a subcommand starts, mounts or attaches is removed when it ends, even after an
//! error, a panic or a signal. The only exception is a cluster, which runs until it is stopped.
//! Subcommands write only to the workspace, the cache folder and temporary folders. The only
//! exception is [`setup`], which installs Debian packages.

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

mod book;
mod ci;
mod cluster;
mod demo;
mod enable_uring;
mod environment;
mod explore;
mod fuzz;
mod guide;
mod harness;
mod lines;
mod minimal_debian;
mod nextest;
mod nightly;
mod package;
mod process;
mod scratch;
mod setup;
mod sql;
mod stage;
mod step;
mod steps;
mod suite;
mod suites;
mod summary;
mod tally;
mod target_slot;
mod test;
mod test_step;
mod tidy;
mod vm;

/// All automation of the fslab project
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Install the requirements of the tests and the demo, and list those that it can't install
    Setup(setup::Args),
    /// Run all checks; the last line counts passed, failed and skipped tests
    Test(test::Args),
    /// Run exactly what CI runs: .ci/run
    Ci(ci::Args),
    /// Run the random tests with new seeds
    Explore(explore::Args),
    /// Run every fuzz target for some minutes
    Fuzz(fuzz::Args),
    /// Run the long forms of the checks, each within a time limit
    Nightly(nightly::Args),
    /// Check the SQL engine, which is a workspace of its own: format, lints, tests
    Sql(sql::Args),
    /// Run campaigns under Slurm, on two nodes in namespaces of this machine
    Cluster(cluster::Args),
    /// Compare real file systems in a few minutes and write a report
    Demo(demo::Args),
    /// Measure what `fslab compare` itself costs, beside fio and a C program run by hand
    Harness(harness::Args),
    /// Run one external suite over chosen file systems
    Suite(suite::Args),
    /// Run the command blocks of README.md and the guide, each page in a separate home folder
    Guide(guide::Args),
    /// Build the guide as a book, and check its links
    Book(book::Args),
    /// Make the Debian package, and test it in a folder
    Deb(package::Args),
    /// Test kept mounts in a virtual machine: suspend, reboot and reset while programs work
    Vm(vm::Args),
    /// Check rules that compilers don't check: file sizes, dependencies, agreement of documents
    /// with the code
    Tidy(tidy::Args),
    /// Count the lines of product code of each crate
    Lines(lines::Args),
    /// Run one step of `test` in a separate process; `test` does this itself
    #[command(hide = true)]
    Step(step::Args),
}

impl Command {
    /// Runs the subcommand; returns whether it succeeded.
    fn run(&self) -> Result<bool> {
        match self {
            Self::Setup(args) => args.run(),
            Self::Test(args) => args.run(),
            Self::Ci(args) => args.run(),
            Self::Explore(args) => args.run(),
            Self::Fuzz(args) => args.run(),
            Self::Nightly(args) => args.run(),
            Self::Sql(args) => args.run(),
            Self::Cluster(args) => args.run(),
            Self::Demo(args) => args.run(),
            Self::Harness(args) => args.run(),
            Self::Suite(args) => args.run(),
            Self::Guide(args) => args.run(),
            Self::Book(args) => args.run(),
            Self::Deb(args) => args.run(),
            Self::Vm(args) => args.run(),
            Self::Tidy(args) => args.run(),
            Self::Lines(args) => args.run(),
            Self::Step(args) => args.run(),
        }
    }
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    match process::forward_signals().and_then(|()| cli.command.run()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
