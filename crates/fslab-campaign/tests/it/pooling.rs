//! Simulated campaigns: how often the pooled interval contains the true ratio.
//!
//! Each machine has its own speed and its own ratio, which varies around the true ratio. Ratios
//! differ between machines much more than between the rounds of one machine. Machines have
//! different numbers of rounds.

use fslab_stats::{RatioInterval, clustered_ratio, paired_ratio};
use fslab_vfs_testing::environment::seed;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

const MACHINES: usize = 20;

/// The true ratio: the geometric mean over all possible machines.
const TRUTH: f64 = 1.10;

/// Standard deviation of the logarithm of the machines' ratios.
const BETWEEN: f64 = 0.05;

/// Standard deviation of the logarithm of the times on one machine.
const WITHIN: f64 = 0.03;

/// Returns an approximately normal number with mean 0 and variance 1, from twelve uniform numbers.
fn noise(random: &mut Pcg64) -> f64 {
    (0..12).map(|_| random.random::<f64>()).sum::<f64>() - 6.0
}

/// Returns pairs of times (target, baseline) for each machine.
fn campaign(random: &mut Pcg64) -> Vec<Vec<(f64, f64)>> {
    let mut machine = |number: usize| {
        let speed = (0.7 * noise(random)).exp();
        let effect = TRUTH * (BETWEEN * noise(random)).exp();
        let mut time = |ratio: f64| speed * ratio * (WITHIN * noise(random)).exp();
        (0..2 + number % 5).map(|_| (time(effect), time(1.0))).collect()
    };
    (0..MACHINES).map(&mut machine).collect()
}

/// Returns how many of `trials` intervals contain the true ratio.
fn held(trials: u64, interval: impl Fn(&[Vec<(f64, f64)>], u64) -> RatioInterval) -> usize {
    let mut random = Pcg64::seed_from_u64(seed() ^ trials);
    let mut holds = |number: &u64| {
        let found = interval(&campaign(&mut random), *number);
        (found.low..=found.high).contains(&TRUTH)
    };
    (0..trials).filter(&mut holds).count()
}

/// 950 of 1,000 intervals should contain the true ratio, with a standard deviation of 6.9
/// (binomial). The limits of the test are four standard deviations from 950, so a correct interval
/// fails with only one in 16,000 seeds.
#[test]
fn pooled_interval_contains_the_true_ratio() {
    let found = held(1000, |machines, number| clustered_ratio(machines, number).unwrap());
    assert!((922..=978).contains(&found), "{found} of 1,000");
}

/// Pooling all pairs as one sample ignores the spread between machines, so intervals are too
/// narrow.
#[test]
fn interval_without_clusters_often_misses_the_true_ratio() {
    let heap = |machines: &[Vec<(f64, f64)>], number| paired_ratio(&machines.concat(), number);
    let found = held(400, |machines, number| heap(machines, number).unwrap());
    assert!(found < 340, "{found} of 400");
}
