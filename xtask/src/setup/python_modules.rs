//! Installs the Python modules that tests use: some read fslab's files, one is an S3 server. They
//! are in a separate environment in the cache, so the system's Python does not change.

use std::process::Command;

use anyhow::{Context, Result};

use super::Missing;
use crate::{environment, process};

/// Two other implementations of Parquet, and an S3 server with object lock. For each module: its
/// name in Python, and its package.
const MODULES: [(&str, &str); 3] =
    [("duckdb", "duckdb"), ("pyarrow", "pyarrow"), ("moto.server", "moto[server]")];

/// Makes the environment if a module is missing. If this fails, returns the modules as missing.
pub fn install() -> Result<Option<Missing>> {
    let (names, packages): (Vec<_>, Vec<_>) = MODULES.into_iter().unzip();
    let import = format!("import {}", names.join(", "));
    if python()?.args(["-c", &import]).output().is_ok_and(|output| output.status.success()) {
        return Ok(None);
    }
    println!("setup: fetching {} for Python", packages.join(", "));
    Ok(make(&packages).err().map(|error| {
        let what = format!("the Python modules {}", packages.join(", "));
        let remedy = format!("{error:#}; on Debian, as root: apt-get install python3-venv");
        Missing::new(
            what,
            "reading traces with other implementations of Parquet, and archives in buckets with \
             object lock are not tested",
            remedy,
        )
    }))
}

/// Returns a command for the Python of the environment.
pub fn python() -> Result<Command> {
    Ok(Command::new(environment::tools()?.join("python/bin/python3")))
}

fn make(packages: &[&str]) -> Result<()> {
    let mut environment = environment::tool("python3")?;
    environment.args(["-m", "venv", "--clear"]).arg(environment::tools()?.join("python"));
    process::capture(&mut environment).context("python3 -m venv")?;
    let mut install = python()?;
    install.args(["-m", "pip", "install", "--quiet"]).args(packages);
    process::capture(&mut install).context("pip install").map(drop)
}
