//! `cargo xtask setup`: installs what tests and demo need, or says plainly what is missing, the
//! command that installs it and what can't run without it.

use anyhow::Result;
use clap::ValueEnum;

use crate::steps::Step;
use crate::tally::Tally;
use crate::{environment, process};

mod debian;
mod nextest;
mod published;
mod python_modules;
mod stores;
mod suite_tools;

/// The step of `cargo xtask test`.
pub const STEP: Step = Step {
    name: "setup",
    help: "packages, suites and toolchain are there",
    run: |_context| {
        let missing = install(Purpose::Test)?;
        let mut tally = if missing.is_empty() { Tally::pass() } else { Tally::default() };
        for thing in missing {
            tally += Tally::skip(format!("setup: {}", thing.what), thing.remedy);
        }
        Ok(tally)
    },
};

/// What to set up for.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// What the machine is to be ready for
    #[arg(long = "for", value_enum, default_value_t = Purpose::Test)]
    purpose: Purpose,
}

/// What a machine is set up for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Purpose {
    /// `cargo xtask test`
    Test,
    /// `cargo xtask demo`
    Demo,
    /// `cargo xtask cluster`
    Cluster,
}

/// Something that is not there and could not be installed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// Its name.
    pub what: String,
    /// What can't run without it.
    pub consequence: String,
    /// What to do about it.
    pub remedy: String,
}

impl Missing {
    fn new(
        what: impl Into<String>,
        consequence: impl Into<String>,
        remedy: impl std::fmt::Display,
    ) -> Self {
        let (what, consequence) = (what.into(), consequence.into());
        Self { what, consequence, remedy: format!("{remedy:#}") }
    }

    /// One paragraph for a person.
    pub fn describe(&self) -> String {
        format!("missing: {}\n  without it: {}\n  {}", self.what, self.consequence, self.remedy)
    }
}

impl Args {
    /// Installs, and fails if anything is still missing.
    pub fn run(&self) -> Result<bool> {
        let missing = install(self.purpose)?;
        if missing.is_empty() {
            println!("setup: everything is there");
        }
        Ok(missing.is_empty())
    }
}

/// Builds a program of one exact version from source into the cache.
fn cargo_install(program: &str, version: &str, more: &[&str]) -> Result<()> {
    let mut command = environment::cargo();
    command.args(["install", "--quiet", "--locked", "--root"]).arg(environment::tools()?);
    command.args(more).args(["--version", version, program]);
    // Warnings of others' code are not asked for, and this workspace's target is not theirs.
    command.env_remove("RUSTFLAGS").env_remove("CARGO_TARGET_DIR");
    process::capture(&mut command).map(drop)
}

/// Installs what is missing, prints what it could not install, and answers that.
pub fn install(purpose: Purpose) -> Result<Vec<Missing>> {
    let mut missing = debian::install(purpose)?;
    if purpose == Purpose::Test {
        missing.extend(toolchain()?);
        missing.extend(suite_tools::install()?);
        missing.extend(python_modules::install()?);
        missing.extend(nextest::install()?);
        missing.extend(stores::install()?);
    }
    let consequence =
        "mounted tests, pjdfstest, fsx and comparisons of real file systems are skipped";
    missing.extend(
        environment::why_no_mounts()
            .map(|reason| Missing::new("the right to mount file systems", consequence, reason)),
    );
    missing.iter().for_each(|missing| eprintln!("{}", missing.describe()));
    Ok(missing)
}

/// The missing ones of rustfmt and clippy. They are not installed: which toolchain manager looks
/// after this machine's Rust is not xtask's business.
fn toolchain() -> Result<Vec<Missing>> {
    let mut missing = Vec::new();
    for (subcommand, component) in [("fmt", "rustfmt"), ("clippy", "clippy")] {
        let answer = process::output(environment::cargo().args([subcommand, "--version"]))?;
        if !answer.status.success() {
            missing.push(Missing::new(
                format!("cargo {subcommand}"),
                format!("the {subcommand} check fails"),
                format!("with rustup: rustup component add {component}"),
            ));
        }
    }
    Ok(missing)
}
