//! The steps of `cargo xtask test`, in the order they run.

use anyhow::Result;

use crate::tally::Tally;
use crate::target_slot::TargetSlot;
use crate::{environment, guide, package, tidy};

mod cargo_checks;
mod cargo_test;
mod licences;
mod outside_suites;
mod set_up;

/// A step: a name for `--only`, what it does, and how.
pub struct Step {
    /// Name in tables and options.
    pub name: &'static str,
    /// What it does, in a few words.
    pub help: &'static str,
    /// Does it. An error means that it could not be done, and counts as one failed test.
    pub run: fn(&Context) -> Result<Tally>,
}

/// All steps; cheap ones first.
pub const STEPS: &[Step] = &[
    set_up::STEP,
    cargo_checks::FORMAT,
    tidy::STEP,
    cargo_checks::CLIPPY,
    cargo_checks::DOC,
    cargo_test::STEP,
    guide::STEP,
    package::STEP,
    outside_suites::PJDFSTEST,
    outside_suites::FSX,
    outside_suites::CARGO_BUILD,
    licences::STEP,
];

/// What all steps share.
pub struct Context {
    /// The build folder of the cache, where one was asked for and free.
    slot: Option<TargetSlot>,
}

impl Context {
    /// Takes a build folder of the cache if `FSLAB_CACHE_TARGET` asks for one.
    pub fn new() -> Result<Self> {
        if !environment::switched_on("FSLAB_CACHE_TARGET") {
            return Ok(Self { slot: None });
        }
        let slot = TargetSlot::take()?;
        match &slot {
            Some(slot) => println!("building in {}", slot.folder.display()),
            None => println!("all build folders of the cache are taken; building in the clone's"),
        }
        Ok(Self { slot })
    }

    /// Cargo, building where this run builds.
    pub fn cargo(&self) -> std::process::Command {
        let mut command = environment::cargo();
        if let Some(slot) = &self.slot {
            command.env("CARGO_TARGET_DIR", &slot.folder);
        }
        command
    }

    /// The folder that [`cargo`](Self::cargo) builds into.
    pub fn target_directory(&self) -> Result<std::path::PathBuf> {
        match &self.slot {
            Some(slot) => Ok(slot.folder.clone()),
            None => environment::target_directory(),
        }
    }
}
