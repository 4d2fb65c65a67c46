//! Simulated campaigns: how often the pooled interval holds the truth.
//!
//! Each machine has its own speed, and its own effect about the true one: ratios differ between
//! machines far more than between the rounds of one. Rounds are unequal in number.

use fslab_stats::{RatioInterval, clustered_ratio, paired_ratio};
use fslab_vfs_testing::environment::seed;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

const MACHINES: usize = 20;

/// The true ratio, as the geometric mean over all machines there might be.
const TRUTH: f64 = 1.10;

/// Spread of the machines' own effects, as a logarithm.
const BETWEEN: f64 = 0.05;

/// Spread of each time about its machine's, as a logarithm.
const WITHIN: f64 = 0.03;

/// Sum of twelve uniform numbers: near enough to normal.
fn noise(random: &mut Pcg64) -> f64 {
    (0..12).map(|_| random.random::<f64>()).sum::<f64>() - 6.0
}

/// Pairs of times, target and baseline, of each machine.
fn campaign(random: &mut Pcg64) -> Vec<Vec<(f64, f64)>> {
    let mut machine = |number: usize| {
        let speed = (0.7 * noise(random)).exp();
        let effect = TRUTH * (BETWEEN * noise(random)).exp();
        let mut time = |ratio: f64| speed * ratio * (WITHIN * noise(random)).exp();
        (0..2 + number % 5).map(|_| (time(effect), time(1.0))).collect()
    };
    (0..MACHINES).map(&mut machine).collect()
}

/// How many of `trials` intervals hold the truth.
fn held(trials: u64, interval: impl Fn(&[Vec<(f64, f64)>], u64) -> RatioInterval) -> usize {
    let mut random = Pcg64::seed_from_u64(seed() ^ trials);
    let mut holds = |number: &u64| {
        let found = interval(&campaign(&mut random), *number);
        (found.low..=found.high).contains(&TRUTH)
    };
    (0..trials).filter(&mut holds).count()
}

/// Of 1,000 intervals 950 should hold the truth, give or take 6.9 (the standard deviation of that
/// binomial). The limits are four of these: a sound interval misses them once in 16,000 seeds.
#[test]
fn the_pooled_interval_holds_the_truth() {
    let found = held(1000, |machines, number| clustered_ratio(machines, number).unwrap());
    assert!((922..=978).contains(&found), "{found} of 1,000");
}

/// With all pairs in one heap, what makes machines differ passes for knowledge of their mean.
#[test]
fn without_machines_as_clusters_it_does_not() {
    let heap = |machines: &[Vec<(f64, f64)>], number| paired_ratio(&machines.concat(), number);
    let found = held(400, |machines, number| heap(machines, number).unwrap());
    assert!(found < 340, "{found} of 400");
}
