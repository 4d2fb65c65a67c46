//! Installs Python modules with which tests read fslab's files. They are in a separate environment
//! in the cache, so the system's Python does not change.

use std::process::Command;

use anyhow::{Context, Result};

use super::Missing;
use crate::{environment, process};

/// Two other implementations of Parquet, as Python modules.
const MODULES: &[&str] = &["duckdb", "pyarrow"];

/// Makes the environment if a module is missing. If this fails, returns the modules as missing.
pub fn install() -> Result<Option<Missing>> {
    let import = format!("import {}", MODULES.join(", "));
    if python()?.args(["-c", &import]).output().is_ok_and(|output| output.status.success()) {
        return Ok(None);
    }
    println!("setup: fetching {} for Python", MODULES.join(" and "));
    Ok(make().err().map(|error| {
        let what = format!("the Python modules {}", MODULES.join(" and "));
        let remedy = format!("{error:#}; on Debian, as root: apt-get install python3-venv");
        Missing::new(
            what,
            "reading traces with other implementations of Parquet is not tested",
            remedy,
        )
    }))
}

/// Returns a command for the Python of the environment.
pub fn python() -> Result<Command> {
    Ok(Command::new(environment::tools()?.join("python/bin/python3")))
}

fn make() -> Result<()> {
    let mut environment = environment::tool("python3")?;
    environment.args(["-m", "venv", "--clear"]).arg(environment::tools()?.join("python"));
    process::capture(&mut environment).context("python3 -m venv")?;
    let mut install = python()?;
    install.args(["-m", "pip", "install", "--quiet"]).args(MODULES);
    process::capture(&mut install).context("pip install").map(drop)
}
