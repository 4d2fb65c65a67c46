//! What the environment asks of random tests: how much, and from which seed.

use std::hash::{BuildHasher, RandomState};

/// Gives the seed of an earlier run back.
pub const SEED_VARIABLE: &str = "FSLAB_SEED";

/// The seed where none is given back. CI draws it from the code it tests, so that changes are tried
/// with other seeds, and what was seen to pass passes again.
const DRAW_VARIABLE: &str = "FSLAB_DRAW";

/// A number from the environment.
///
/// # Panics
/// Where it is none: a test that tries something else than was asked for shows nothing.
#[must_use]
pub fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    match text.parse() {
        Ok(number) => Some(number),
        Err(error) => panic!("{variable}={text} is no number: {error}"),
    }
}

/// The seed of a random test: the one given back, else a new one. It is printed.
#[must_use]
pub fn seed() -> u64 {
    told(number(SEED_VARIABLE).or_else(|| number(DRAW_VARIABLE)).unwrap_or_else(drawn))
}

/// As [`seed`], where a test is the same in every run unless a seed is given: one that must find
/// what was planted, or whose verdict is right for most seeds only.
#[must_use]
pub fn seed_or(usual: u64) -> u64 {
    told(number(SEED_VARIABLE).unwrap_or(usual))
}

/// Of 48 bits, so that counting on from it never ends.
fn drawn() -> u64 {
    RandomState::new().hash_one(0) >> 16
}

fn told(seed: u64) -> u64 {
    eprintln!("{SEED_VARIABLE}={seed}");
    seed
}
