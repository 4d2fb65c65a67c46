//! `cargo xtask vm`: tests kept mounts in a virtual machine that is suspended, rebooted and reset
//! while programs work. The machine runs a minimal Debian with systemd and fslab's package.

mod machine;
mod trial;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use tempfile::TempDir;

use self::machine::{Accelerator, Machine};
use self::trial::Trial;
use crate::package::layout::{self, Age};
use crate::tally::Tally;
use crate::{environment, minimal_debian, process, setup, summary};

const MAKE: &str = include_str!("vm/make.sh");

/// Packages of the guest in addition to the required ones.
const INCLUDED: &str = "systemd,systemd-sysv,udev,kmod,procps,e2fsprogs";

/// The numbers of suspends, reboots and resets, and the program to test.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Number of suspends of each kind
    #[arg(long, value_name = "N", default_value_t = 10)]
    suspends: usize,
    /// Number of orderly reboots
    #[arg(long, value_name = "N", default_value_t = 3)]
    reboots: usize,
    /// Number of resets
    #[arg(long, value_name = "N", default_value_t = 3)]
    resets: usize,
    /// Test this `fslab` instead of building one
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
}

impl Args {
    /// Makes and starts the machine, and runs all cases. Succeeds if nothing failed.
    pub fn run(&self) -> Result<bool> {
        let tally = self.tally()?;
        let require_all = environment::switched_on("FSLAB_REQUIRE_ALL");
        Ok(summary::close(&if require_all { tally.requiring_all() } else { tally }))
    }

    fn tally(&self) -> Result<Tally> {
        if !environment::is_root() {
            return Ok(Tally::skip("vm", "making a Debian needs root; run it as root"));
        }
        if !cfg!(target_arch = "x86_64") {
            return Ok(Tally::skip("vm", "the virtual machine needs a host with x86-64"));
        }
        let missing = setup::install(setup::Purpose::Vm)?;
        if let Some(first) = missing.first() {
            return Ok(Tally::skip("vm", format!("{} is missing", first.what)));
        }
        let fslab = self.program()?;
        let folder = make(&fslab)?;
        let accelerator = Accelerator::of_this_host();
        println!("vm: {}", accelerator.describe());
        let mut machine = Machine::start(folder.path(), accelerator)?;
        Trial::new(&mut machine, self.suspends).run(self.reboots, self.resets)
    }

    fn program(&self) -> Result<PathBuf> {
        if let Some(program) = &self.program {
            return fs::canonicalize(program).with_context(|| program.display().to_string());
        }
        println!("vm: building fslab");
        process::run_ok(environment::cargo().args(["build", "--locked", "--package", "fslab"]))?;
        Ok(environment::target_directory()?.join("debug/fslab"))
    }
}

/// Makes the kernel, the initial RAM disk and the disk of the machine in a new folder.
fn make(fslab: &Path) -> Result<TempDir> {
    let archive = minimal_debian::archive("debian-vm", INCLUDED)?;
    let kernel = minimal_debian::kernel()?;
    let folder = tempfile::Builder::new().prefix("fslab-vm-").tempdir()?;
    let package = tempfile::tempdir()?;
    layout::lay_out(fslab, Age::Current, package.path())?;
    let script = folder.path().join("make.sh");
    fs::write(&script, MAKE)?;
    let mut command = Command::new("sh");
    command.arg(&script).arg(archive).arg(kernel).arg(package.path());
    command.arg(environment::workspace_root().join("xtask/src/vm/guest")).arg(folder.path());
    process::capture(&mut command)?;
    Ok(folder)
}
