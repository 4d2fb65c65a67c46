//! Steps `pjdfstest`, `fsx` and `cargo-build`: each outside suite, over a stack of each kind.

use super::Step;
use crate::suites::{self, cargo_build, fsx, pjdfstest};

/// POSIX, case by case.
pub const PJDFSTEST: Step = Step {
    name: "pjdfstest",
    help: "pjdfstest in a mounted stack of each kind, and in tiers",
    run: |context| suites::run_quickly(&pjdfstest::SUITE, context),
};

/// File contents under random operations.
pub const FSX: Step = Step {
    name: "fsx",
    help: "fsx in a mounted stack of each kind",
    run: |context| suites::run_quickly(&fsx::SUITE, context),
};

/// Everyday work.
pub const CARGO_BUILD: Step = Step {
    name: "cargo-build",
    help: "a build by cargo in the first mounted stack",
    run: |context| suites::run_quickly(&cargo_build::SUITE, context),
};
