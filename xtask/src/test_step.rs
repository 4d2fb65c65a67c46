//! A step of `cargo xtask test`, and where it builds.

use std::path::PathBuf;

use anyhow::Result;

use crate::environment;
use crate::tally::Tally;
use crate::target_slot::TargetSlot;

/// A step: a name for `--only`, what it does, and how.
pub struct Step {
    /// Name in tables and options.
    pub name: &'static str,
    /// What it does, in a few words.
    pub help: &'static str,
    /// Does it. An error means that it could not be done, and counts as one failed test.
    pub run: fn(&Context) -> Result<Tally>,
}

/// Where steps build.
pub struct Context {
    /// The build folder of the cache, where one was asked for and free.
    _slot: Option<TargetSlot>,
    target: PathBuf,
}

impl Context {
    /// Takes a build folder of the cache if `FSLAB_CACHE_TARGET` asks for one.
    pub fn new() -> Result<Self> {
        if !environment::switched_on("FSLAB_CACHE_TARGET") {
            return Self::inherited();
        }
        let Some(slot) = TargetSlot::take()? else {
            println!("all build folders of the cache are taken; building in the clone's");
            return Self::inherited();
        };
        println!("building in {}", slot.folder.display());
        let target = slot.folder.clone();
        Ok(Self { _slot: Some(slot), target })
    }

    /// Builds where cargo would, as its environment and configuration say.
    pub fn inherited() -> Result<Self> {
        Ok(Self { _slot: None, target: environment::target_directory()? })
    }

    /// Cargo, building where this run builds.
    pub fn cargo(&self) -> std::process::Command {
        let mut command = environment::cargo();
        command.env("CARGO_TARGET_DIR", &self.target);
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
}
