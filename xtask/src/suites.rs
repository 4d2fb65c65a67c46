//! External suites: programs written by others that run inside mounted file systems.

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

/// One stack of each kind, for `cargo xtask test`. In the first, the kernel reads and writes lower
/// files itself. In the second, the daemon does, and in the third, its requests arrive through
/// io_uring. The others have an observing layer, an encoding layer, and the ext2 engine.
const KINDS: &[&str] = &[
    "fslab:null",
    "fslab:null:passthrough=off",
    "fslab-uring:null:passthrough=off",
    "fslab:fault",
    "fslab:zstd",
    "fslab-ext2",
];

/// Stacks that the nightly run uses in addition to one stack for each registered layer.
const MORE: &[&str] = &[
    "fslab:null:passthrough=off",
    "fslab-uring:null",
    "fslab-uring:null:passthrough=off",
    "fslab-uring:zstd",
    "fslab-ext2",
];

/// Tiers. The fsx suite does not run on them. Instead, a test of fslab runs fsx on tiers while the
/// file is archived and recalled.
const TIERS: &[&str] = &["fslab:tier", "fslab@xfs:tier", "fslab@btrfs:tier"];

/// All suites.
pub const SUITES: &[&Suite] =
    &[&pjdfstest::SUITE, &fsx::SUITE, &cargo_build::SUITE, &sca_life::SUITE];

/// The step that checks POSIX semantics, case by case.
pub const PJDFSTEST: Step = Step {
    name: "pjdfstest",
    help: "pjdfstest in a mounted stack of each kind, and in tiers",
    run: |context| run_quickly(&pjdfstest::SUITE, context),
};

/// The step that checks file contents under random operations.
pub const FSX: Step = Step {
    name: "fsx",
    help: "fsx in a mounted stack of each kind",
    run: |context| run_quickly(&fsx::SUITE, context),
};

/// The step that builds a program inside a mount.
pub const CARGO_BUILD: Step = Step {
    name: "cargo-build",
    help: "a build by cargo in the first mounted stack",
    run: |context| run_quickly(&cargo_build::SUITE, context),
};

/// A suite. Each suite is one file of this module.
pub struct Suite {
    /// Name in tables and options.
    pub name: &'static str,
    /// The program that must be installed, if any.
    pub program: Option<&'static str>,
    /// The targets for which it runs by default.
    pub over: Over,
    /// Length of the suite in `cargo xtask test`.
    pub quick: Options,
    /// Runs the suite in a mounted target.
    pub run: fn(&mut Stage, &Target, &Options) -> Result<Tally>,
}

/// The default targets of a suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// The first of [`KINDS`], for long suites whose results hardly depend on the stack.
    FirstStack,
    /// A stack of each kind. In the nightly run: each layer alone, and some more stacks.
    Stacks,
    /// The same targets as [`Self::Stacks`], and tiers.
    StacksAndTiers,
}

/// The length of a suite, if it can be chosen.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Operations per seed.
    pub operations: u32,
    /// Number of seeds.
    pub seeds: u32,
    /// First seed.
    pub first_seed: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self { operations: 20_000, seeds: 2, first_seed: 1 }
    }
}

impl Options {
    /// The options of a suite whose length is fixed.
    pub const NONE: Self = Self { operations: 0, seeds: 0, first_seed: 0 };
}

/// Returns the targets of a suite, for `cargo xtask test` or for the nightly run.
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

/// Reads the layers from the output of `fslab list --json`, with options such that each layer
/// writes its own files to a folder next to the mount.
fn layers(list: &str) -> Result<Vec<String>> {
    let list: serde_json::Value = serde_json::from_str(list).context("fslab list --json")?;
    let layers = list["layers"].as_array().context("fslab list --json has no layers")?;
    // The layer tier needs a tree that was prepared for it; see `TIERS`.
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

/// Runs a suite as a step of `cargo xtask test`, with the program from the step `build`.
fn run_quickly(suite: &Suite, context: &Context) -> Result<Tally> {
    let targets = targets(suite, context, true)?;
    run(suite, &context.program(), &targets, &suite.quick)
}

/// Runs a suite over targets, each on a separate stage. A target that can't run is skipped with the
/// reason. An error on one target does not stop the others.
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
            stage.close().context("cannot clean up after the suite")?;
            Ok(tally)
        };
        tally += run().unwrap_or_else(|error| Tally::fail(format!("{name}: {error:#}")));
    }
    Ok(tally)
}

fn why_not(suite: &Suite, target: &Target) -> Option<String> {
    let programs = suite.program.into_iter().chain([target.program(), "mkfs.ext4"]);
    let mut missing = programs.filter(|program| environment::find_tool(program).is_none());
    let obstacle = environment::why_no_mounts().or_else(|| target.obstacle());
    obstacle
        .map(str::to_owned)
        .or_else(|| missing.next().map(|program| format!("{program} is not installed")))
}
