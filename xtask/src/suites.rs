//! Outside suites: programs written by others, run inside mounted file systems.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::stage::{BESIDE, Stage, Target};
use crate::steps::{Context, Step, build};
use crate::tally::Tally;
use crate::{environment, process};

pub mod cargo_build;
pub mod fsx;
pub mod pjdfstest;
pub mod sca_life;

/// One stack of each kind, for `cargo xtask test`: reads and writes that the kernel passes through
/// and ones that reach the daemon, a layer that watches, one that encodes, and the ext2 engine.
const KINDS: &[&str] =
    &["fslab:null", "fslab:null:passthrough=off", "fslab:fault", "fslab:zstd", "fslab-ext2"];

/// What the nightly run adds to each registered layer by itself.
const MORE: &[&str] = &["fslab:null:passthrough=off", "fslab-ext2"];

/// Tiers, whose fsx is one of fslab's own tests: there the file goes and comes meanwhile.
const TIERS: &[&str] = &["fslab:tier", "fslab@xfs:tier", "fslab@btrfs:tier"];

/// All suites.
pub const SUITES: &[&Suite] =
    &[&pjdfstest::SUITE, &fsx::SUITE, &cargo_build::SUITE, &sca_life::SUITE];

/// POSIX, case by case.
pub const PJDFSTEST: Step = Step {
    name: "pjdfstest",
    help: "pjdfstest in a mounted stack of each kind, and in tiers",
    run: |context| run_quickly(&pjdfstest::SUITE, context),
};

/// File contents under random operations.
pub const FSX: Step = Step {
    name: "fsx",
    help: "fsx in a mounted stack of each kind",
    run: |context| run_quickly(&fsx::SUITE, context),
};

/// Everyday work.
pub const CARGO_BUILD: Step = Step {
    name: "cargo-build",
    help: "a build by cargo in the first mounted stack",
    run: |context| run_quickly(&cargo_build::SUITE, context),
};

/// A suite: one file of this module.
pub struct Suite {
    /// Name in tables and options.
    pub name: &'static str,
    /// The program that must be installed, if any.
    pub program: Option<&'static str>,
    /// The targets where none are named.
    pub over: Over,
    /// How long it runs in `cargo xtask test`.
    pub quick: Options,
    /// Runs it in a mounted target.
    pub run: fn(&mut Stage, &Target, &Options) -> Result<Tally>,
}

/// Over which targets a suite runs where none are named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// The first of [`KINDS`]: for what is long and finds the same in all of them.
    FirstStack,
    /// A stack of each kind; in the nightly run every layer as it is, and some more stacks.
    Stacks,
    /// The same, and tiers.
    StacksAndTiers,
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

impl Options {
    /// For suites whose length is their own.
    pub const NONE: Self = Self { operations: 0, seeds: 0, first_seed: 0 };
}

/// The targets of a suite, as `cargo xtask test` runs it or as the nightly run does.
pub fn targets(suite: &Suite, context: &Context, is_quick: bool) -> Result<Vec<Target>> {
    let mut stacks: Vec<String> = match suite.over {
        Over::FirstStack => vec![KINDS[0].to_owned()],
        _ if is_quick => KINDS.iter().copied().map(str::to_owned).collect(),
        _ => {
            let mut fslab = Command::new(build::program(context)?);
            let list = process::capture(fslab.args(["list", "--json"]))?;
            let layers = layers(&list)?.into_iter().map(|layer| format!("fslab:{layer}"));
            layers.chain(MORE.iter().copied().map(str::to_owned)).collect()
        }
    };
    if suite.over == Over::StacksAndTiers {
        stacks.extend(TIERS.iter().copied().map(str::to_owned));
    }
    stacks.iter().map(|stack| stack.parse()).collect()
}

/// The layers in what `fslab list --json` prints; where they write, they write beside the mount.
fn layers(list: &str) -> Result<Vec<String>> {
    let list: serde_json::Value = serde_json::from_str(list).context("fslab list --json")?;
    let layers = list["layers"].as_array().context("fslab list --json has no layers")?;
    // It wants a tree that was given to a tier; see `TIERS`.
    let layers = layers.iter().filter(|layer| layer["name"] != "tier");
    layers.map(|layer| as_given(layer).context("a layer without a name")).collect()
}

fn as_given(layer: &serde_json::Value) -> Option<String> {
    let name = layer["name"].as_str()?;
    let options = layer["options"].as_array().into_iter().flatten();
    let places = options.filter(|option| option["place"] == true);
    let places = places.filter_map(|option| option["name"].as_str());
    let given: Vec<_> = places.map(|place| format!("{place}={BESIDE}/{name}-{place}")).collect();
    Some(if given.is_empty() { name.to_owned() } else { format!("{name}:{}", given.join(",")) })
}

/// Runs a suite as a step of `cargo xtask test`, with the program that the step `build` has built.
fn run_quickly(suite: &Suite, context: &Context) -> Result<Tally> {
    let targets = targets(suite, context, true)?;
    run(suite, &context.program(), &targets, &suite.quick)
}

/// Runs a suite over targets, each on a stage of its own. What can't run is skipped with its
/// reason; what breaks on one target doesn't stop the others.
pub fn run(suite: &Suite, fslab: &Path, targets: &[Target], options: &Options) -> Result<Tally> {
    let mut tally = Tally::default();
    let mut runnable = Vec::new();
    for target in targets {
        let name = format!("{} on {target}", suite.name);
        match why_not(suite, target) {
            None => runnable.push((name, target)),
            Some(reason) => tally += Tally::skip(name, reason),
        }
    }
    for (name, target) in runnable {
        println!("-- {name}");
        let run = || -> Result<Tally> {
            let mut stage = Stage::new(target, fslab)?;
            let tally = (suite.run)(&mut stage, target, options)?;
            stage.close().context("after the suite")?;
            Ok(tally)
        };
        tally += run().unwrap_or_else(|error| Tally::fail(format!("{name}: {error:#}")));
    }
    Ok(tally)
}

fn why_not(suite: &Suite, target: &Target) -> Option<String> {
    let programs = suite.program.into_iter().chain([target.program(), "mkfs.ext4"]);
    let mut missing = programs.filter(|program| environment::find_tool(program).is_none());
    let reason = environment::why_no_mounts().map(str::to_owned);
    reason.or_else(|| missing.next().map(|program| format!("{program} is not installed")))
}
