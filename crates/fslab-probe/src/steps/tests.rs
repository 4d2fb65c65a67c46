//! Tests that steps and periods are found where they exist, and nowhere else.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

use fslab_vfs_testing::environment::seed;

use super::*;

const REPEATS: usize = 9;

/// Simulates measurements of points with these levels. The noise only adds to a level: usually a
/// little, sometimes much.
fn measured(levels: &[f64], random: &mut Pcg64) -> Vec<Vec<f64>> {
    let noise = |random: &mut Pcg64| {
        let little = 1.0 - random.random::<f64>().ln() * 0.05;
        if random.random_bool(0.1) { little * 20.0 } else { little }
    };
    levels.iter().map(|level| (0..REPEATS).map(|_| level * noise(random)).collect()).collect()
}

fn stairs(before: usize, after: usize, ratio: f64) -> Vec<f64> {
    [vec![1000.0; before], vec![1000.0 * ratio; after]].concat()
}

#[test]
fn a_step_is_found_at_every_place() {
    let mut random = Pcg64::seed_from_u64(seed());
    for before in 3..21 {
        let times = measured(&stairs(before, 24 - before, 2.0), &mut random);
        let step = one_step(&times, 1).unwrap();
        assert_eq!((step.at, step.interval), (before, (before, before)));
        assert!((step.ratio - 2.0).abs() < 0.2, "{step:?}");
        let down = measured(&stairs(before, 24 - before, 0.5), &mut random);
        assert_eq!(one_step(&down, 1).unwrap().at, before);
    }
}

/// At most two of 1,000 flat sequences with heavy noise may show a step.
#[test]
fn flat_times_are_refused() {
    let mut random = Pcg64::seed_from_u64(seed());
    let levels = vec![1000.0; 24];
    let found = (0..1000).filter(|_| one_step(&measured(&levels, &mut random), 1).is_ok()).count();
    assert!(found <= 2, "{found} of 1000 flat sequences show a step");
}

#[test]
fn small_steps_several_steps_and_slopes_are_refused() {
    let mut random = Pcg64::seed_from_u64(seed());
    let small = measured(&stairs(12, 12, 1.15), &mut random);
    assert_eq!(one_step(&small, 1), Err(Refusal::Flat));
    let two = [stairs(8, 8, 2.0), vec![8000.0; 8]].concat();
    assert_eq!(one_step(&measured(&two, &mut random), 1), Err(Refusal::Several(vec![8, 16])));
    let slope: Vec<f64> = (0..24).map(|point| 1000.0 * 1.1_f64.powi(point)).collect();
    assert!(one_step(&measured(&slope, &mut random), 1).is_err());
    assert_eq!(one_step(&[vec![1.0], vec![9.0]], 1), Err(Refusal::TooFew));
}

/// Most measurements of the point before the step are disturbed, so the position of the step is
/// uncertain.
#[test]
fn step_with_an_uncertain_position_is_refused() {
    let mut random = Pcg64::seed_from_u64(seed());
    let mut times = measured(&stairs(12, 12, 2.0), &mut random);
    times[11] = vec![2000.0, 2100.0, 2050.0, 2080.0, 2040.0, 2090.0, 2010.0, 2030.0, 1000.0];
    assert!(matches!(one_step(&times, 1), Err(Refusal::Blurred { .. })));
}

fn cost(levels: &[f64]) -> f64 {
    growing_costs(levels.iter()).last().copied().unwrap_or(0.0)
}

#[test]
fn best_cuts_match_an_exhaustive_search() {
    let mut random = Pcg64::seed_from_u64(seed());
    for _ in 0..50 {
        let levels: Vec<f64> = (0..9).map(|_| random.random::<f64>()).collect();
        let between = |first: usize, end: usize| cost(&levels[first..end]);
        let best = best_cuts(&levels);
        let one = (1..9).map(|at| between(0, at) + between(at, 9));
        let two = (1..8).flat_map(|first| (first + 1..9).map(move |second| (first, second)));
        let two = two
            .map(|(first, second)| between(0, first) + between(first, second) + between(second, 9));
        let least = |costs: &mut dyn Iterator<Item = f64>| costs.fold(f64::INFINITY, f64::min);
        assert!((best[1].0 - least(&mut one.clone())).abs() < 1e-9);
        assert!((best[2].0 - least(&mut two.into_iter())).abs() < 1e-9);
        let (explained, at) = best_split(&levels);
        assert!((between(0, 9) - explained - best[1].0).abs() < 1e-9);
        // Several cuts may be equally good.
        let cost_of = |at| between(0, at) + between(at, 9);
        assert!((cost_of(at) - cost_of(best[1].1[0])).abs() < 1e-9);
    }
}

#[test]
fn the_cost_of_a_piece_is_its_deviation_from_the_median() {
    let levels = [1.0, 5.0, 2.0, 4.0];
    assert!((cost(&levels) - 6.0).abs() < 1e-12);
    assert!((cost(&levels[..3]) - 4.0).abs() < 1e-12);
    assert!(cost(&levels[2..3]).abs() < 1e-12);
}

#[test]
fn period_is_found_after_an_irregular_start() {
    let mut random = Pcg64::seed_from_u64(seed());
    let mut levels = vec![1000.0; 512];
    for slow in [0, 1, 4, 12].into_iter().chain((28..512).step_by(32)) {
        levels[slow] = 20_000.0;
    }
    // Slow points are at 28, 60, ... 476. Point 508 is fast, as if there were nothing more to read
    // ahead.
    levels[508] = 1000.0;
    let period = period(&measured(&levels, &mut random)).unwrap();
    assert_eq!((period.length, period.times), (32, 14));
    // Without the last two slow points, the period ends too early.
    levels[476] = 1000.0;
    levels[444] = 1000.0;
    assert_eq!(super::period(&measured(&levels, &mut random)), Err(NoPeriod::Irregular));
}

#[test]
fn irregular_times_have_no_period() {
    let mut random = Pcg64::seed_from_u64(seed());
    let flat = measured(&vec![1000.0; 256], &mut random);
    assert_eq!(period(&flat), Err(NoPeriod::Even));
    let mut levels = vec![1000.0; 256];
    for slow in (0..256).step_by(32) {
        levels[slow] = 20_000.0;
    }
    levels[200] = 20_000.0;
    assert_eq!(period(&measured(&levels, &mut random)), Err(NoPeriod::Irregular));
    let mut once = vec![1000.0; 256];
    once[100] = 50_000.0;
    assert_eq!(period(&measured(&once, &mut random)), Err(NoPeriod::Irregular));
}
