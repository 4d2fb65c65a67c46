//! `cargo xtask setup`: installs what the tests, the demo, the cluster, the package or the virtual
//! machine need. For each requirement that it can't install, it prints the command to install it
//! and the consequences.

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

/// The step `setup` of `cargo xtask test`.
pub const STEP: Step = Step {
    name: "setup",
    help: "packages, suites and toolchain are installed",
    run: |_context| {
        let missing = install(Purpose::Test)?;
        let mut tally = if missing.is_empty() { Tally::pass() } else { Tally::default() };
        for thing in missing {
            tally += Tally::skip(format!("setup: {}", thing.what), thing.remedy);
        }
        Ok(tally)
    },
};

/// The purpose of the setup.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Install the requirements of this command
    #[arg(long = "for", value_enum, default_value_t = Purpose::Test)]
    purpose: Purpose,
}

/// The purpose for which a machine is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Purpose {
    /// `cargo xtask test`
    Test,
    /// `cargo xtask demo`
    Demo,
    /// `cargo xtask cluster up` and `demo`
    Cluster,
    /// `cargo xtask cluster sql`
    Sql,
    /// `cargo xtask deb`
    Package,
    /// `cargo xtask vm`
    Vm,
}

/// A requirement that is missing and could not be installed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// The name of the missing requirement.
    pub what: String,
    /// The consequence of its absence.
    pub consequence: String,
    /// The remedy, such as a command to run.
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

    /// Returns a description in one paragraph.
    pub fn describe(&self) -> String {
        format!("missing: {}\n  without it: {}\n  {}", self.what, self.consequence, self.remedy)
    }
}

impl Args {
    /// Installs the requirements. Returns `false` if anything is still missing.
    pub fn run(&self) -> Result<bool> {
        let missing = install(self.purpose)?;
        if missing.is_empty() {
            println!("setup: everything is installed");
        }
        Ok(missing.is_empty())
    }
}

/// Builds one exact version of a program from source and installs it into the cache.
pub fn cargo_install(program: &str, version: &str, more: &[&str]) -> Result<()> {
    let mut command = environment::cargo();
    command.args(["install", "--quiet", "--locked", "--root"]).arg(environment::tools()?);
    command.args(more).args(["--version", version, program]);
    // This workspace's compiler flags would turn warnings in foreign code into errors. Its build
    // folder must contain only its own code.
    command.env_remove("RUSTFLAGS").env_remove("CARGO_TARGET_DIR");
    process::capture(&mut command).map(drop)
}

/// Installs missing requirements. Prints and returns those that it could not install.
pub fn install(purpose: Purpose) -> Result<Vec<Missing>> {
    let mut missing = debian::install(purpose)?;
    if purpose == Purpose::Test {
        missing.extend(toolchain()?);
        missing.extend(suite_tools::install()?);
        missing.extend(python_modules::install()?);
        missing.extend(nextest::install()?);
        missing.extend(stores::install()?);
    }
    if purpose == Purpose::Sql {
        missing.extend(python_modules::install()?);
    }
    let consequence =
        "mounted tests, pjdfstest, fsx and comparisons of real file systems are skipped";
    missing.extend(
        environment::why_no_mounts()
            .map(|reason| Missing::new("permission to mount file systems", consequence, reason)),
    );
    missing.iter().for_each(|missing| eprintln!("{}", missing.describe()));
    Ok(missing)
}

/// Returns rustfmt and clippy if they are missing. They are not installed here, because the right
/// command depends on how Rust was installed.
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
