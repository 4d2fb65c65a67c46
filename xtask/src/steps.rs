//! The steps of `cargo xtask test`, in the order they run.

use std::path::PathBuf;

use anyhow::{Result, bail};

use crate::tally::Tally;
use crate::target_slot::TargetSlot;
use crate::{environment, guide, package, tidy};

pub mod build;
mod cargo_checks;
mod licences;
mod outside_suites;
mod set_up;
pub mod unit;

/// A step: a name for `--only`, what it does, and how.
pub struct Step {
    /// Name in tables and options.
    pub name: &'static str,
    /// What it does, in a few words.
    pub help: &'static str,
    /// Does it. An error means that it could not be done, and counts as one failed test.
    pub run: fn(&Context) -> Result<Tally>,
}

/// Steps that run one after another.
pub type Lane = &'static [Step];

/// All steps. The lanes of a phase run side by side; a phase begins when the one before has ended.
/// Cheap steps come first. Tests mostly wait for devices, so that compilers fill the gaps.
pub const PHASES: &[&[Lane]] = &[
    &[&[set_up::STEP, cargo_checks::FORMAT, tidy::STEP, licences::STEP]],
    &[&[build::STEP]],
    &[
        &[unit::STEP],
        &[
            cargo_checks::CLIPPY,
            cargo_checks::SHIPPED,
            guide::STEP,
            package::STEP,
            outside_suites::PJDFSTEST,
            outside_suites::FSX,
            outside_suites::CARGO_BUILD,
        ],
    ],
];

/// All steps in order.
pub fn all() -> impl Iterator<Item = &'static Step> {
    PHASES.iter().flat_map(|lanes| lanes.iter()).flat_map(|lane| lane.iter())
}

/// The step of a name.
pub fn find(name: &str) -> Result<&'static Step> {
    match all().find(|step| step.name == name) {
        Some(step) => Ok(step),
        None => {
            let known: Vec<_> = all().map(|step| step.name).collect();
            bail!("there is no step {name:?}; the steps are {}", known.join(", "))
        }
    }
}

/// Where steps build.
pub struct Context {
    /// The build folder of the cache, where one was asked for and free.
    slot: Option<TargetSlot>,
    target: PathBuf,
}

impl Context {
    /// Takes a build folder of the cache if `FSLAB_CACHE_TARGET` asks for one.
    pub fn new() -> Result<Self> {
        if !environment::switched_on("FSLAB_CACHE_TARGET") {
            return Self::inherited();
        }
        let slot = TargetSlot::take()?;
        match &slot {
            Some(slot) => println!("building in {}", slot.folder.display()),
            None => println!("all build folders of the cache are taken; building in the clone's"),
        }
        let target = match &slot {
            Some(slot) => slot.folder.clone(),
            None => environment::target_directory()?,
        };
        Ok(Self { slot, target })
    }

    /// Builds where cargo would, as its environment and configuration say.
    pub fn inherited() -> Result<Self> {
        Ok(Self { slot: None, target: environment::target_directory()? })
    }

    /// Cargo, building where this run builds.
    pub fn cargo(&self) -> std::process::Command {
        let mut command = environment::cargo();
        if self.slot.is_some() {
            command.env("CARGO_TARGET_DIR", &self.target);
        }
        command
    }

    /// The folder that [`cargo`](Self::cargo) builds into.
    pub fn target_directory(&self) -> &std::path::Path {
        &self.target
    }

    /// The program as the tests use it, which the step `build` has built.
    pub fn program(&self) -> PathBuf {
        self.target.join("debug/fslab")
    }

    /// Builds [`program`](Self::program) as the step `build` does, for a command that runs without
    /// it. Building the program alone would take other features of its dependencies, and compile
    /// them all once more.
    pub fn build_program(&self) -> Result<PathBuf> {
        (build::STEP.run)(self)?;
        Ok(self.program())
    }
}
