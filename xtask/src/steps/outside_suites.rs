//! Steps `pjdfstest`, `fsx` and `cargo-build`: each outside suite over its stacks of CI.

use super::Step;
use crate::suites::{self, cargo_build, fsx, pjdfstest};

/// POSIX, case by case.
pub const PJDFSTEST: Step = Step {
    name: "pjdfstest",
    help: "pjdfstest in every mounted stack, tiers among them",
    run: |context| suites::run_in_ci(&pjdfstest::SUITE, context),
};

/// File contents under random operations.
pub const FSX: Step = Step {
    name: "fsx",
    help: "fsx in every mounted stack",
    run: |context| suites::run_in_ci(&fsx::SUITE, context),
};

/// Everyday work.
pub const CARGO_BUILD: Step = Step {
    name: "cargo-build",
    help: "a build by cargo in the first mounted stack",
    run: |context| suites::run_in_ci(&cargo_build::SUITE, context),
};
