//! Outside suites: programs written by others, run inside mounted file systems.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::stage::{Stage, Target};
use crate::steps::Context;
use crate::tally::Tally;
use crate::{environment, process};

pub mod cargo_build;
pub mod fsx;
pub mod pjdfstest;

/// The stacks that CI runs every suite over. A new layer adds its line here.
const STACKS: &[&str] = &[
    "fslab:null",
    "fslab:null:passthrough=off",
    "fslab:stats+trace:to={beside}/trace",
];

/// All suites.
pub const SUITES: &[&Suite] = &[&pjdfstest::SUITE, &fsx::SUITE, &cargo_build::SUITE];

/// A suite: one file of this module.
pub struct Suite {
    /// Name in tables and options.
    pub name: &'static str,
    /// The program that must be installed, if any.
    pub program: Option<&'static str>,
    /// Runs it in a mounted target.
    pub run: fn(&Stage, &Target, &Options) -> Result<Tally>,
}

/// How long suites run that can run for any time.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Operations a seed.
    pub operations: u32,
    /// How many seeds.
    pub seeds: u32,
    /// The first seed.
    pub first_seed: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self { operations: 20_000, seeds: 2, first_seed: 1 }
    }
}

/// The targets of CI.
pub fn stacks() -> Result<Vec<Target>> {
    STACKS.iter().map(|stack| stack.parse()).collect()
}

/// Runs a suite over targets, each on a stage of its own. What can't run is skipped with its
/// reason; what breaks on one target doesn't stop the others.
pub fn run(
    suite: &Suite,
    context: &Context,
    targets: &[Target],
    options: &Options,
) -> Result<Tally> {
    let mut tally = Tally::default();
    let mut runnable = Vec::new();
    for target in targets {
        match why_not(suite, target) {
            None => runnable.push(target),
            Some(reason) => tally += Tally::skip(name(suite, target), reason),
        }
    }
    let fslab = build_fslab(context, &runnable)?;
    for target in runnable {
        println!("-- {}", name(suite, target));
        tally += run_on(suite, target, &fslab, options)
            .unwrap_or_else(|error| Tally::fail(format!("{}: {error:#}", name(suite, target))));
    }
    Ok(tally)
}

fn name(suite: &Suite, target: &Target) -> String {
    format!("{} on {target}", suite.name)
}

fn why_not(suite: &Suite, target: &Target) -> Option<String> {
    let programs = suite.program.into_iter().chain(target.program()).chain(["mkfs.ext4"]);
    let mut missing = programs.filter(|program| environment::find_tool(program).is_none());
    let reason = environment::why_no_mounts().map(str::to_owned);
    reason.or_else(|| missing.next().map(|program| format!("{program} is not installed")))
}

fn run_on(suite: &Suite, target: &Target, fslab: &Path, options: &Options) -> Result<Tally> {
    let stage = Stage::new(target, fslab)?;
    let tally = (suite.run)(&stage, target, options)?;
    stage.close().context("after the suite")?;
    Ok(tally)
}

/// Builds the program if a target needs it, and answers where it is.
fn build_fslab(context: &Context, targets: &[&Target]) -> Result<PathBuf> {
    if targets.iter().any(|target| matches!(target, Target::Fslab(_))) {
        process::run_ok(context.cargo().args(["build", "--locked", "--package", "fslab"]))?;
    }
    Ok(context.target_directory()?.join("debug/fslab"))
}
