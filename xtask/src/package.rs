//! `cargo xtask deb`: makes the Debian package with dpkg-deb and tests it. dpkg installs it in a
//! folder, the program is used there, and dpkg removes it.

mod layout;
mod trial;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::steps::{Context, Step, build};
use crate::tally::Tally;
use crate::{environment, process};

/// The step of `cargo xtask test`: packages the program that was built for the tests.
pub const STEP: Step = Step {
    name: "package",
    help: "the Debian package is made, installed in a folder, used and removed",
    run: |context| {
        let Some(_) = environment::find_tool("dpkg-deb") else {
            return Ok(Tally::skip("package", "dpkg-deb is not installed"));
        };
        let folder = tempfile::tempdir()?;
        trial::run(&make(&context.program(), folder.path(), QUICK)?)
    },
};

/// The folder of the package, and whether to test it.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Folder for the package [default: the build folder]
    #[arg(long)]
    out: Option<PathBuf>,
    /// Only make it, without the trial
    #[arg(long)]
    no_trial: bool,
}

impl Args {
    /// Builds with optimisation, makes the package and tests it.
    pub fn run(&self) -> Result<bool> {
        let context = Context::new()?;
        let fslab = build::release(&context)?;
        let out = self.out.clone().unwrap_or_else(|| context.target_directory().join("debian"));
        fs::create_dir_all(&out).with_context(|| out.display().to_string())?;
        let package = make(&fslab, &out, SMALL)?;
        println!("deb: {}", package.display());
        if self.no_trial {
            return Ok(true);
        }
        let tally = trial::run(&package)?;
        println!("deb: {}", tally.counts());
        tally.failed.iter().for_each(|failure| println!("deb: {failure}"));
        tally.skipped.iter().for_each(|skip| println!("deb: {}: {}", skip.test, skip.reason));
        Ok(tally.is_good())
    }
}

/// Compression by dpkg-deb of a package to keep, and of one that is only tested.
const SMALL: &str = "-Zxz";
const QUICK: &str = "-Znone";

/// Makes the package of a program in a folder.
fn make(fslab: &Path, out: &Path, packing: &str) -> Result<PathBuf> {
    let tree = tempfile::tempdir().context("cannot make a folder for the package")?;
    let name = layout::lay_out(fslab, tree.path())?;
    let package = out.join(format!("{name}.deb"));
    let mut command = Command::new("dpkg-deb");
    command.args(["--root-owner-group", packing, "--build"]).arg(tree.path()).arg(&package);
    process::capture(&mut command)?;
    Ok(package)
}
