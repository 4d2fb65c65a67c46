//! Steps `format`, `clippy` and `doc`: cargo's own checks, where a warning is an error.

use anyhow::Result;

use super::{Context, Step};
use crate::process;
use crate::tally::Tally;

/// Sources are formatted.
pub const FORMAT: Step =
    Step { name: "format", help: "cargo fmt --all --check", run: |context| check(context, FMT) };

/// No lint complains.
pub const CLIPPY: Step = Step {
    name: "clippy",
    help: "cargo clippy, all targets and features, warnings are errors",
    run: |context| check(context, CLIPPY_ARGUMENTS),
};

/// The documentation builds, and its links lead somewhere.
pub const DOC: Step = Step {
    name: "doc",
    help: "cargo doc, warnings are errors",
    run: |context| check(context, DOC_ARGUMENTS),
};

const FMT: &[&str] = &["fmt", "--all", "--check"];
const CLIPPY_ARGUMENTS: &[&str] = &[
    "clippy",
    "--locked",
    "--workspace",
    "--all-targets",
    "--all-features",
    "--",
    "-D",
    "warnings",
];
const DOC_ARGUMENTS: &[&str] =
    &["doc", "--locked", "--workspace", "--no-deps", "--all-features", "--document-private-items"];

fn check(context: &Context, arguments: &[&str]) -> Result<Tally> {
    let mut command = context.cargo();
    // Only rustdoc reads the variable.
    process::run_ok(command.args(arguments).env("RUSTDOCFLAGS", "-D warnings"))?;
    Ok(Tally::pass())
}
