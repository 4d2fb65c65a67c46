//! The seed and the amount of random tests, both from environment variables.

use std::fs::OpenOptions;
use std::io::Write;

use proptest::test_runner::{Config, RngSeed};

/// The environment variable with the seed of all random tests.
pub const SEED_VARIABLE: &str = "FSLAB_SEED";

/// The seed of all random tests if [`SEED_VARIABLE`] is not set. It is the same everywhere, so that
/// a test has the same result on each machine. `cargo xtask explore` tries others.
const SEED: u64 = 20_261_124;

/// The environment variable with the file to which each random test appends its name. `cargo xtask`
/// compares that file with the list of random tests.
const LOG_VARIABLE: &str = "FSLAB_SEED_LOG";

/// Returns the number in an environment variable, if it is set.
///
/// # Panics
/// If the variable is set to anything but a number. The default could test less than requested.
#[must_use]
pub fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    match text.parse() {
        Ok(number) => Some(number),
        Err(error) => panic!("{variable}={text} is not a number: {error}"),
    }
}

/// Returns and prints the seed of a random test: `FSLAB_SEED` or a fixed default.
///
/// A test that calls this must pass with every seed and must be listed in `xtask/random-tests.txt`.
/// A test that passes with some seeds only, such as one that must find a planted bug, uses a
/// constant instead.
///
/// # Panics
/// If `FSLAB_SEED` is not a number, or the file of `FSLAB_SEED_LOG` can't be written.
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

/// The configuration of a property test: `cases` random inputs from [`seed`].
///
/// # Panics
/// If [`seed`] panics.
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
