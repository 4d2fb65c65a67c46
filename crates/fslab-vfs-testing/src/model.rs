//! Random operations on a subject and on [`MemFs`]: all results and the final trees must agree.
//!
//! Names come from a small alphabet, and files and handles from short lists, so that operations
//! often affect the same files. The comparison covers values, errnos, attributes, bytes, xattrs,
//! and which names refer to the same inode. It leaves out times that were not set, sizes and link
//! counts of directories, free space, and the offsets of holes.

use std::fmt;

use proptest::collection::vec;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};

use fslab_vfs::FileSystem;
use fslab_vfs::MemFs;

use super::client::Client;
use super::environment::{SEED_VARIABLE, number, seed};

mod compare;
mod operation;
mod pair;

pub use operation::{Choice, Creator, Operation, Place, Span};
use pair::Pair;

/// The environment variable with the number of sequences.
const CASES_VARIABLE: &str = "FSLAB_MODEL_CASES";

/// Maximum number of attempts to shorten a failing sequence.
const SHRINK_STEPS_MAX: u32 = 20_000;

/// The amount and the kinds of operations to try.
#[derive(Clone, Debug)]
pub struct ModelConfig {
    /// Seed of the random operations.
    pub seed: u64,
    /// Number of sequences, each on a new subject.
    pub cases: u32,
    /// Maximum number of operations in a sequence.
    pub operations: usize,
    /// Operations that the subject lacks or is known to perform differently. They are skipped, and
    /// the reason is printed.
    pub left_out: Vec<LeftOut>,
    /// Whether to use inodes without a name and without a handle. They can't always be reached
    /// through a mount.
    pub nameless: bool,
}

impl ModelConfig {
    /// Returns the configuration for sequences of up to 60 operations. `FSLAB_SEED` sets the seed,
    /// `FSLAB_MODEL_CASES` the number of sequences; the defaults are a fixed seed and `cases`.
    #[must_use]
    pub fn from_environment(cases: u32) -> Self {
        Self {
            seed: seed(),
            cases: number(CASES_VARIABLE).map_or(cases, |cases| cases as u32),
            operations: 60,
            left_out: Vec::new(),
            nameless: true,
        }
    }
}

/// A kind of operation that is skipped, and the reason.
#[derive(Clone, Copy, Debug)]
pub struct LeftOut {
    /// The missing or different behaviour of the subject.
    pub reason: &'static str,
    /// Whether an operation is of this kind.
    pub covers: fn(&Operation) -> bool,
}

/// A sequence of operations after which subject and model differ, as short as possible.
#[derive(Clone, Debug)]
pub struct Counterexample {
    /// The value of `FSLAB_SEED` that repeats the search.
    pub seed: u64,
    /// The difference.
    pub difference: String,
    /// The operations.
    pub operations: Vec<Operation>,
}

impl std::error::Error for Counterexample {}

impl fmt::Display for Counterexample {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "{} ({SEED_VARIABLE}={}), after:", self.difference, self.seed)?;
        for (index, operation) in self.operations.iter().enumerate() {
            writeln!(out, "  {index:2}: {operation:?}")?;
        }
        Ok(())
    }
}

/// Tries random sequences until subject and model differ or all sequences are done. The seed is
/// printed first. `make_subject` may return the same storage each time, because a sequence works in
/// its own directory and removes it.
///
/// # Errors
/// The shortest failing sequence that was found.
pub fn check_against_model(
    make_subject: &dyn Fn() -> Box<dyn FileSystem>,
    config: &ModelConfig,
) -> Result<(), Box<Counterexample>> {
    let ModelConfig { seed, cases, operations, .. } = *config;
    eprintln!("model test: {SEED_VARIABLE}={seed}, {cases} sequences of up to {operations}");
    for left_out in &config.left_out {
        eprintln!("model test: left out: {}", left_out.reason);
    }
    let sequences = vec(operation::any(), 1..=operations);
    let answer = runner(config).run(&sequences, |operations| {
        let subject = make_subject();
        run(&*subject, &operations, config).map_err(TestCaseError::fail)
    });
    let (difference, operations) = match answer {
        Ok(()) => return Ok(()),
        Err(TestError::Fail(reason, operations)) => (reason.to_string(), operations),
        Err(TestError::Abort(reason)) => (format!("given up: {reason}"), Vec::new()),
    };
    Err(Box::new(Counterexample { seed, difference, operations }))
}

/// Runs one sequence, such as a counterexample that is kept as a regression test.
///
/// # Errors
/// The difference.
pub fn run(
    subject: &dyn FileSystem,
    operations: &[Operation],
    config: &ModelConfig,
) -> Result<(), String> {
    let memory = MemFs::default();
    let (subject, model) = (Client::new(subject), Client::new(&memory));
    let mut pair = Pair::new(&subject, &model, config.nameless)?;
    let is_wanted = |operation: &Operation| {
        !config.left_out.iter().any(|left_out| (left_out.covers)(operation))
    };
    for (index, operation) in operations.iter().enumerate().filter(|(_, one)| is_wanted(one)) {
        pair.apply(operation)
            .map_err(|difference| format!("operation {index} ({operation:?}): {difference}"))?;
    }
    pair.finish()
}

fn runner(config: &ModelConfig) -> TestRunner {
    let mut seed = [0; 32];
    seed[..8].copy_from_slice(&config.seed.to_le_bytes());
    let runner_config = Config {
        cases: config.cases,
        failure_persistence: None,
        max_shrink_iters: SHRINK_STEPS_MAX,
        ..Config::default()
    };
    TestRunner::new_with_rng(runner_config, TestRng::from_seed(RngAlgorithm::ChaCha, &seed))
}
