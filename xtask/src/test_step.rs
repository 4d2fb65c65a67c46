//! A step of `cargo xtask test`, and the build folder of the steps.

use std::path::PathBuf;

use anyhow::Result;

use crate::environment;
use crate::tally::Tally;
use crate::target_slot::TargetSlot;

/// A step: a name for `--only`, a description, and a function that runs it.
pub struct Step {
    /// Name in tables and options.
    pub name: &'static str,
    /// Short description.
    pub help: &'static str,
    /// Runs the step. An error means that it could not run, and is counted as one failed test.
    pub run: fn(&Context) -> Result<Tally>,
}

/// Build folder of the steps.
pub struct Context {
    /// The cache's build folder, if one was requested and free.
    _slot: Option<TargetSlot>,
    target: PathBuf,
}

impl Context {
    /// Uses a build folder of the cache if `FSLAB_CACHE_TARGET` is set and a folder is free.
    pub fn new() -> Result<Self> {
        if !environment::switched_on("FSLAB_CACHE_TARGET") {
            return Self::inherited();
        }
        let Some(slot) = TargetSlot::take()? else {
            println!(
                "all build folders of the cache are in use, so this build uses the folder of this \
                 git clone"
            );
            return Self::inherited();
        };
        println!("building in {}", slot.folder.display());
        let target = slot.folder.clone();
        Ok(Self { _slot: Some(slot), target })
    }

    /// Uses the build folder that cargo's environment and configuration specify.
    pub fn inherited() -> Result<Self> {
        Ok(Self { _slot: None, target: environment::target_directory()? })
    }

    /// Makes a command for cargo that builds into the folder of this run.
    pub fn cargo(&self) -> std::process::Command {
        let mut command = environment::cargo();
        command.env("CARGO_TARGET_DIR", &self.target);
        command
    }

    /// Returns the folder that [`cargo`](Self::cargo) builds into.
    pub fn target_directory(&self) -> &std::path::Path {
        &self.target
    }

    /// Returns the path of the program for the tests, which the step `build` has built.
    pub fn program(&self) -> PathBuf {
        self.target.join("debug/fslab")
    }
}
