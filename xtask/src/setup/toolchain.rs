//! The parts of the Rust toolchain that `cargo xtask test` calls.

use anyhow::Result;

use super::Missing;
use crate::{environment, process};

/// The missing ones of rustfmt and clippy. They are not installed: which toolchain manager looks
/// after this machine's Rust is not xtask's business.
pub fn check() -> Result<Vec<Missing>> {
    let mut missing = Vec::new();
    for (subcommand, component) in [("fmt", "rustfmt"), ("clippy", "clippy")] {
        let answer = process::output(environment::cargo().args([subcommand, "--version"]))?;
        if !answer.status.success() {
            missing.push(Missing::new(
                format!("cargo {subcommand}"),
                format!("the {subcommand} check fails"),
                format!("with rustup: rustup component add {component}"),
            ));
        }
    }
    Ok(missing)
}
