//! Steps `pjdfstest`, `fsx` and `cargo-build`: each outside suite over every stack of CI.

use super::Step;
use crate::suites::{self, Options, cargo_build, fsx, pjdfstest};

/// POSIX, case by case.
pub const PJDFSTEST: Step = Step {
    name: "pjdfstest",
    help: "pjdfstest in every mounted stack",
    run: |context| {
        suites::run(&pjdfstest::SUITE, context, &suites::stacks(context)?, &Options::default())
    },
};

/// File contents under random operations.
pub const FSX: Step = Step {
    name: "fsx",
    help: "fsx in every mounted stack",
    run: |context| {
        suites::run(&fsx::SUITE, context, &suites::stacks(context)?, &Options::default())
    },
};

/// Everyday work.
pub const CARGO_BUILD: Step = Step {
    name: "cargo-build",
    help: "a build by cargo in the first mounted stack",
    run: |context| {
        let first: Vec<_> = suites::stacks(context)?.into_iter().take(1).collect();
        suites::run(&cargo_build::SUITE, context, &first, &Options::default())
    },
};
