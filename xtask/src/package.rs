//! `cargo xtask deb`: makes the Debian package with dpkg-deb and tests it. dpkg installs it in a
//! folder, the program is used there, and dpkg removes it. With `--clean-root`, the package is
//! instead installed, upgraded and removed in a minimal Debian with systemd.

mod clean_root;
mod control;
mod files;
pub mod layout;
mod trial;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::steps::{Context, Step, build};
use crate::tally::Tally;
use crate::{environment, process, setup, summary};
use layout::Age;

/// The step of `cargo xtask test`: packages the program that was built for the tests.
pub const STEP: Step = Step {
    name: "package",
    help: "the Debian package is made, installed in a folder, used and removed",
    run: |context| {
        let Some(_) = environment::find_tool("dpkg-deb") else {
            return Ok(Tally::skip("package", "dpkg-deb is not installed"));
        };
        let folder = tempfile::tempdir()?;
        trial::run(&make(&context.program(), Age::Current, folder.path(), QUICK)?)
    },
};

/// The folder of the package, and whether to test it.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Folder for the package [default: the build folder]
    #[arg(long, conflicts_with = "clean_root")]
    out: Option<PathBuf>,
    /// Make the package without testing it
    #[arg(long, conflicts_with = "clean_root")]
    no_trial: bool,
    /// Test the package in a minimal Debian instead of in a folder
    #[arg(long)]
    clean_root: bool,
    /// Package this `fslab` instead of building one
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
}

impl Args {
    /// Builds with optimisation, makes the package and tests it. Succeeds if nothing failed.
    pub fn run(&self) -> Result<bool> {
        if !self.no_trial {
            setup::install(setup::Purpose::Package)?;
        }
        let fslab = self.program()?;
        let tally = if self.clean_root { clean_root::run(&fslab)? } else { self.below(&fslab)? };
        let require_all = environment::switched_on("FSLAB_REQUIRE_ALL");
        Ok(summary::close(&if require_all { tally.requiring_all() } else { tally }))
    }

    /// Makes the package in the output folder, and tests it in a temporary folder.
    fn below(&self, fslab: &Path) -> Result<Tally> {
        let out = match &self.out {
            Some(out) => out.clone(),
            None => environment::target_directory()?.join("debian"),
        };
        fs::create_dir_all(&out).with_context(|| out.display().to_string())?;
        let package = make(fslab, Age::Current, &out, SMALL)?;
        println!("deb: {}", package.display());
        if self.no_trial {
            return Ok(Tally::default());
        }
        let mut tally = lint(&package)?;
        tally += trial::run(&package)?;
        Ok(tally)
    }

    fn program(&self) -> Result<PathBuf> {
        match &self.program {
            Some(program) => {
                fs::canonicalize(program).with_context(|| program.display().to_string())
            }
            None => build::release(&Context::new()?),
        }
    }
}

/// Compression options of dpkg-deb: strong for a package to keep, none for one that is only tested.
const SMALL: &str = "-Zxz";
const QUICK: &str = "-Znone";

/// Makes the package of a program in a folder.
fn make(fslab: &Path, age: Age, out: &Path, packing: &str) -> Result<PathBuf> {
    let tree = tempfile::tempdir().context("cannot make a folder for the package")?;
    fs::set_permissions(tree.path(), fs::Permissions::from_mode(0o755))?;
    let name = layout::lay_out(fslab, age, tree.path())?;
    let package = out.join(format!("{name}.deb"));
    let mut command = Command::new("dpkg-deb");
    command.args(["--root-owner-group", packing, "--build"]).arg(tree.path()).arg(&package);
    // Files get the time of the commit, so that packages of the same commit and program are
    // identical.
    command.env("SOURCE_DATE_EPOCH", control::last_commit("%ct")?);
    process::capture(&mut command)?;
    Ok(package)
}

/// Checks the package against Debian's rules. `packaging/lintian` contains the exceptions.
fn lint(package: &Path) -> Result<Tally> {
    let Some(lintian) = environment::find_tool("lintian") else {
        let reason = "lintian is not installed; `cargo xtask setup --for package` installs it";
        return Ok(Tally::skip("lintian", reason));
    };
    let mut command = Command::new(lintian);
    command.args(["--allow-root", "--fail-on", "error,warning"]).arg(package);
    let ended = process::output(&mut command)?;
    let said = format!("{}{}", ended.stdout, ended.stderr);
    Ok(if ended.status.success() { Tally::pass() } else { Tally::fail(format!("lintian: {said}")) })
}
