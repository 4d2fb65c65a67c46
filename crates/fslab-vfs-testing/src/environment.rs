//! How much random tests try, and from which seed: both set by environment variables.

use std::fs::OpenOptions;
use std::io::Write;

use proptest::test_runner::{Config, RngSeed};

/// Sets the seed of every random test.
pub const SEED_VARIABLE: &str = "FSLAB_SEED";

/// The seed of every random test where [`SEED_VARIABLE`] is not set: the same for everybody, so
/// that a test passes or fails the same way on each machine. `cargo xtask explore` tries others.
const SEED: u64 = 20_261_124;

/// Names a file to which each random test appends its name. `cargo xtask` holds the list of random
/// tests against it.
const LOG_VARIABLE: &str = "FSLAB_SEED_LOG";

/// A number from the environment.
///
/// # Panics
/// Panics if the variable holds anything else: a test must not try less than it was asked to.
#[must_use]
pub fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    match text.parse() {
        Ok(number) => Some(number),
        Err(error) => panic!("{variable}={text} is not a number: {error}"),
    }
}

/// The seed of a random test: `FSLAB_SEED`, else one fixed seed. The test prints it.
///
/// A test that calls this must hold for every seed, and is listed in `xtask/random-tests.txt`. A
/// test that holds for some seeds only, such as one that must find a planted bug, has a constant.
///
/// # Panics
/// Panics if `FSLAB_SEED` is not a number, or the file of `FSLAB_SEED_LOG` can't be written to.
#[must_use]
pub fn seed() -> u64 {
    let seed = number(SEED_VARIABLE).unwrap_or(SEED);
    eprintln!("{SEED_VARIABLE}={seed}");
    if let Some(log) = std::env::var_os(LOG_VARIABLE) {
        let line = format!("{}\n", test_name());
        let opened = OpenOptions::new().create(true).append(true).open(&log);
        let written = opened.and_then(|mut file| file.write_all(line.as_bytes()));
        assert!(written.is_ok(), "can't write to {}: {written:?}", log.display());
    }
    seed
}

/// How a property test runs: `cases` random inputs, drawn from [`seed`].
///
/// # Panics
/// Panics where [`seed`] does.
#[must_use]
pub fn cases(cases: u32) -> Config {
    let rng_seed = RngSeed::Fixed(seed());
    Config { cases, rng_seed, failure_persistence: None, ..Config::default() }
}

/// The binary and the name of the running test, as cargo-nextest names them.
fn test_name() -> String {
    let of_runner = |name: &str| std::env::var(name).ok();
    let binary = of_runner("NEXTEST_BINARY_ID").unwrap_or_default();
    let test = of_runner("NEXTEST_TEST_NAME")
        .or_else(|| std::thread::current().name().map(str::to_owned))
        .unwrap_or_default();
    format!("{binary} {test}")
}
