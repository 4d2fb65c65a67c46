//! Steps `format`, `clippy` and `shipped`: cargo's own checks. Warnings are errors.

use anyhow::Result;

use super::{Context, Step};
use crate::process;
use crate::tally::Tally;

/// Checks that the sources are formatted.
pub const FORMAT: Step = Step {
    name: "format",
    help: "cargo fmt --all --check",
    run: |context| check(context, "fmt --all --check"),
};

/// Checks that no lint gives a warning.
pub const CLIPPY: Step = Step {
    name: "clippy",
    help: "cargo clippy, all targets and features, warnings are errors",
    run: |context| {
        check(context, "clippy --locked --workspace --all-targets --all-features -- -D warnings")
    },
};

/// Checks that the program compiles without the features that are only for tests.
pub const SHIPPED: Step = Step {
    name: "shipped",
    help: "cargo check of the program without test features",
    run: |context| check(context, "check --locked --package fslab"),
};

fn check(context: &Context, arguments: &str) -> Result<Tally> {
    process::run_ok(context.cargo().args(arguments.split(' ')))?;
    Ok(Tally::pass())
}
