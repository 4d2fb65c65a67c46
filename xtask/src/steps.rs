//! The steps of `cargo xtask test`, in the order in which they run.

use anyhow::{Result, bail};

pub use crate::test_step::{Context, Step};
use crate::{guide, package, setup, suites, tidy};

pub mod build;
mod cargo_checks;
mod licences;
pub mod unit;

/// Steps that run one after another.
pub type Lane = &'static [Step];

/// All steps. The lanes of a phase run in parallel; a phase begins when the previous one has ended.
/// Cheap steps come first. The tests mostly wait for devices, so a lane of other steps uses the
/// processors meanwhile.
pub const PHASES: &[&[Lane]] = &[
    &[&[setup::STEP, cargo_checks::FORMAT, tidy::STEP, licences::STEP]],
    &[&[build::STEP]],
    &[
        &[unit::STEP],
        &[
            cargo_checks::CLIPPY,
            cargo_checks::SHIPPED,
            guide::STEP,
            package::STEP,
            suites::PJDFSTEST,
            suites::FSX,
            suites::CARGO_BUILD,
        ],
    ],
];

/// All steps in order.
pub fn all() -> impl Iterator<Item = &'static Step> {
    PHASES.iter().flat_map(|lanes| lanes.iter()).flat_map(|lane| lane.iter())
}

/// Returns the step with this name.
pub fn find(name: &str) -> Result<&'static Step> {
    named("step", name, all().map(|step| (step.name, step)))
}

/// Finds an item by its name; the error lists the known names.
pub fn named<T>(
    what: &str,
    wanted: &str,
    all: impl Iterator<Item = (&'static str, T)>,
) -> Result<T> {
    let mut known = Vec::new();
    for (name, one) in all {
        if name == wanted {
            return Ok(one);
        }
        known.push(name);
    }
    bail!("there is no {what} {wanted:?}; the {what}s are {}", known.join(", "))
}
