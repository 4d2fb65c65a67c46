//! Finds a step in measured times, or refuses to answer.
//!
//! Noise never makes a time shorter. A point is therefore measured several times, and its minimum
//! is used. The sequence of the minima's logarithms is cut into pieces, each of which has one
//! level. The best cut into each number of pieces is found exactly, by dynamic programming. Its
//! cost is the sum of absolute deviations from each piece's median. Schwarz's criterion for errors
//! with a Laplace distribution chooses the number of pieces. Neighbouring pieces whose levels
//! differ by less than a factor of 1.3 are merged.
//!
//! The result is accepted only under three conditions. There is a single step. Few random
//! permutations of the points show an equally clear step (a permutation test). The step remains at
//! the same point if the measurements of each point are resampled (a bootstrap). All functions are
//! pure; random draws come from a seed.

use std::fmt;

use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

/// Minimum ratio of two different levels.
pub const RATIO_LEAST: f64 = 1.3;

/// Maximum p-value of an accepted step.
pub const P_MOST: f64 = 0.01;

const PERMUTATIONS: u32 = 999;
const RESAMPLES: usize = 400;

/// Maximum number of pieces that are tried.
const PIECES_MOST: usize = 8;

/// Minimum number of points.
const POINTS_LEAST: usize = 6;

/// Noise of at least one percent is assumed, even if the times vary less.
const NOISE_FLOOR: f64 = 0.01;

/// The single step of a sequence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// The index of the first point of the new level.
    pub at: usize,
    /// The level after the step divided by the level before.
    pub ratio: f64,
    /// The central 95 percent of the step's positions in the bootstrap.
    pub interval: (usize, usize),
    /// The share of random permutations that show an equally clear step.
    pub p_value: f64,
}

/// The reason for refusing a step.
#[derive(Clone, Debug, PartialEq)]
pub enum Refusal {
    /// There are too few points.
    TooFew,
    /// No adjacent pieces differ enough.
    Flat,
    /// There are several steps instead of one, at these points.
    Several(Vec<usize>),
    /// Too many random permutations show an equally clear step.
    Chance {
        /// The probability.
        p_value: f64,
    },
    /// Resampling the measurements moves the step.
    Blurred {
        /// The central 95 percent of the step's positions.
        interval: (usize, usize),
    },
}

impl fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooFew => write!(formatter, "fewer than {POINTS_LEAST} points"),
            Self::Flat => write!(
                formatter,
                "no step: the levels differ by a factor of less than {RATIO_LEAST}"
            ),
            Self::Several(at) => write!(formatter, "{} steps instead of one", at.len()),
            Self::Chance { p_value } => {
                write!(
                    formatter,
                    "no significant step, because too many random permutations have an equally \
                     clear step (p = {p_value:.3})"
                )
            }
            Self::Blurred { interval: (first, last) } => {
                write!(
                    formatter,
                    "the position of the step is uncertain: between the points {first} and {last}"
                )
            }
        }
    }
}

/// Finds the single step in the times of a sequence of points. Each point has several measurements.
///
/// # Errors
/// Returns a [`Refusal`] if it is uncertain whether there is exactly one step, or where it is.
pub fn one_step(times: &[Vec<f64>], seed: u64) -> Result<Step, Refusal> {
    let levels: Vec<f64> = times.iter().map(|point| log_least(point)).collect();
    if levels.len() < POINTS_LEAST || levels.iter().any(|level| !level.is_finite()) {
        return Err(Refusal::TooFew);
    }
    let steps = cut(&levels);
    let at = match steps[..] {
        [] => return Err(Refusal::Flat),
        [at] => at,
        _ => return Err(Refusal::Several(steps)),
    };
    let mut random = Pcg64::seed_from_u64(seed);
    let p_value = chance(&levels, &mut random);
    if p_value > P_MOST {
        return Err(Refusal::Chance { p_value });
    }
    let interval = redraw(times, &mut random);
    if interval != (at, at) {
        return Err(Refusal::Blurred { interval });
    }
    let ratio = (median(&levels[at..]) - median(&levels[..at])).exp();
    Ok(Step { at, ratio, interval, p_value })
}

fn log_least(times: &[f64]) -> f64 {
    times.iter().copied().fold(f64::INFINITY, f64::min).ln()
}

/// Returns the first points of all pieces except the first.
fn cut(levels: &[f64]) -> Vec<usize> {
    let cuts = best_cuts(levels);
    let criterion = |number: usize, cost: f64| {
        // The parameters of the model are a level per piece, a position per step, and the scale of
        // the noise.
        let parameters = (2 * (number + 1)) as f64;
        let count = levels.len() as f64;
        2.0 * count * (cost / count).max(NOISE_FLOOR).ln() + parameters * count.ln()
    };
    let best = cuts.into_iter().enumerate().min_by(|(number, one), (other_number, other)| {
        criterion(*number, one.0).total_cmp(&criterion(*other_number, other.0))
    });
    merge(levels, best.map(|(_, (_, steps))| steps).unwrap_or_default())
}

/// Removes steps, the smallest first, until all are large enough.
fn merge(levels: &[f64], mut steps: Vec<usize>) -> Vec<usize> {
    loop {
        let heights = heights(levels, &steps);
        let smallest = heights.iter().enumerate().min_by(|one, other| one.1.total_cmp(other.1));
        match smallest {
            Some((index, height)) if *height < RATIO_LEAST.ln() => {
                steps.remove(index);
            }
            _ => return steps,
        }
    }
}

/// Returns the difference of the levels on both sides of each step.
fn heights(levels: &[f64], steps: &[usize]) -> Vec<f64> {
    let mut borders = vec![0];
    borders.extend(steps);
    borders.push(levels.len());
    let medians: Vec<f64> =
        borders.windows(2).map(|piece| median(&levels[piece[0]..piece[1]])).collect();
    medians.windows(2).map(|pair| (pair[1] - pair[0]).abs()).collect()
}

fn deviation(sorted: &[f64]) -> f64 {
    // The smallest value is paired with the largest, and so on. The median lies between the two
    // values of a pair, so the sum of their distances from the median is their difference.
    let half = sorted.len() / 2;
    (0..half).map(|index| sorted[sorted.len() - 1 - index] - sorted[index]).sum()
}

/// Returns the best cuts into one piece, two pieces, and so on. Each has its cost and the starts of
/// all pieces except the first.
fn best_cuts(levels: &[f64]) -> Vec<(f64, Vec<usize>)> {
    let count = levels.len();
    let costs: Vec<Vec<f64>> =
        (0..count).map(|first| growing_costs(levels[first..].iter())).collect();
    let between =
        |first: usize, end: usize| if end > first { costs[first][end - first - 1] } else { 0.0 };
    // For each index, the best cut of all levels before it into the current number of pieces: its
    // cost, and the starts of these pieces.
    let mut row: Vec<(f64, Vec<usize>)> =
        (0..=count).map(|end| (between(0, end), Vec::new())).collect();
    let mut best = vec![row[count].clone()];
    for _ in 1..PIECES_MOST.min(count) {
        let last_piece = |end: usize| {
            let from = |first: usize| (row[first].0 + between(first, end), first);
            (1..end).map(from).min_by(|one, other| one.0.total_cmp(&other.0))
        };
        row = (0..=count)
            .map(|end| match last_piece(end) {
                Some((cost, first)) => (cost, [&row[first].1[..], &[first]].concat()),
                None => (f64::INFINITY, Vec::new()),
            })
            .collect();
        best.push(row[count].clone());
    }
    best
}

/// Returns by how much the best single cut reduces the cost, and the position of this cut.
fn best_split(levels: &[f64]) -> (f64, usize) {
    let count = levels.len();
    let before = growing_costs(levels.iter());
    let after = growing_costs(levels.iter().rev());
    let explained = |at: usize| before[count - 1] - before[at - 1] - after[count - at - 1];
    (1..count)
        .map(|at| (explained(at), at))
        .max_by(|one, other| one.0.total_cmp(&other.0))
        .unwrap_or((0.0, 0))
}

/// Returns the costs of the pieces that consist of the first level, the first two levels, and so
/// on.
fn growing_costs<'a>(levels: impl Iterator<Item = &'a f64>) -> Vec<f64> {
    let mut sorted: Vec<f64> = Vec::new();
    let add = |level: &f64| {
        sorted.insert(sorted.partition_point(|other| other < level), *level);
        deviation(&sorted)
    };
    levels.map(add).collect()
}

/// Returns the share of random permutations in which a single cut reduces the cost at least as much
/// as in the measured order.
fn chance(levels: &[f64], random: &mut Pcg64) -> f64 {
    let (observed, _) = best_split(levels);
    let mut order = levels.to_vec();
    let mut as_clear = 1;
    for _ in 0..PERMUTATIONS {
        order.shuffle(random);
        as_clear += u32::from(best_split(&order).0 >= observed);
    }
    f64::from(as_clear) / f64::from(PERMUTATIONS + 1)
}

/// Returns the central 95 percent of the cut's positions when each point's measurements are
/// resampled.
fn redraw(times: &[Vec<f64>], random: &mut Pcg64) -> (usize, usize) {
    let mut places: Vec<usize> = (0..RESAMPLES)
        .map(|_| {
            let mut least = |point: &Vec<f64>| {
                let drawn = point.iter().map(|_| point[random.random_range(0..point.len())]);
                drawn.fold(f64::INFINITY, f64::min).ln()
            };
            let levels: Vec<f64> = times.iter().map(&mut least).collect();
            best_split(&levels).1
        })
        .collect();
    places.sort_unstable();
    let cut_off = RESAMPLES / 40;
    (places[cut_off], places[RESAMPLES - 1 - cut_off])
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        length => f64::midpoint(sorted[(length - 1) / 2], sorted[length / 2]),
    }
}

/// The regular distance at which slow points recur among fast ones.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Period {
    /// The distance between slow points.
    pub length: usize,
    /// Number of consecutive periods up to the last slow point.
    pub times: usize,
    /// The ratio of slow to fast times.
    pub ratio: f64,
    /// The difference of slow and fast times.
    pub difference: f64,
    /// The index of the slow point at which the first of these periods starts.
    pub first: usize,
}

/// The reason for finding no period.
#[derive(Clone, Debug, PartialEq)]
pub enum NoPeriod {
    /// All points are about equally fast.
    Even,
    /// Slow points recur at irregular distances or too rarely.
    Irregular,
}

impl fmt::Display for NoPeriod {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Even => "all points are about equally fast",
            Self::Irregular => "slow points do not recur regularly",
        })
    }
}

/// Minimum ratio of slow to fast times.
const SLOW_LEAST: f64 = 2.0;

/// Minimum number of consecutive periods, and the minimum share of points that they cover.
const PERIODS_LEAST: usize = 5;
const SHARE_LEAST: f64 = 0.5;

/// Finds the period of slow points in the last part of a sequence. The first part may be irregular.
///
/// # Errors
/// Fails if slow points do not stand out or do not recur regularly.
pub fn period(times: &[Vec<f64>]) -> Result<Period, NoPeriod> {
    let levels: Vec<f64> = times.iter().map(|point| log_least(point)).collect();
    let mut sorted = levels.clone();
    sorted.sort_by(f64::total_cmp);
    let (_, split) = best_gap(&sorted);
    let (fast, slower) = (median(&sorted[..split]), median(&sorted[split..]));
    let ratio = (slower - fast).exp();
    // Most points must be fast, otherwise there is no base level.
    if split * 2 < sorted.len() || ratio < SLOW_LEAST {
        return Err(NoPeriod::Even);
    }
    let threshold = f64::midpoint(sorted[split - 1], sorted[split]);
    let slow: Vec<usize> = (0..levels.len()).filter(|index| levels[*index] > threshold).collect();
    let gaps: Vec<usize> = slow.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let Some(length) = gaps.last().copied() else { return Err(NoPeriod::Irregular) };
    let repeats = gaps.iter().rev().take_while(|gap| **gap == length).count();
    // In the last window, no page starts another read-ahead, so up to two periods may follow the
    // last slow point.
    let to_the_end = slow.last().is_some_and(|last| levels.len() - last <= 2 * length);
    let covered = (repeats * length) as f64 / levels.len() as f64;
    if repeats < PERIODS_LEAST || covered < SHARE_LEAST || !to_the_end {
        return Err(NoPeriod::Irregular);
    }
    let first = slow[slow.len() - 1 - repeats];
    Ok(Period { length, times: repeats, ratio, difference: slower.exp() - fast.exp(), first })
}

/// Returns the widest gap between neighbours in a sorted sequence, and the index after it.
fn best_gap(sorted: &[f64]) -> (f64, usize) {
    (1..sorted.len())
        .map(|index| (sorted[index] - sorted[index - 1], index))
        .max_by(|one, other| one.0.total_cmp(&other.0))
        .unwrap_or((0.0, 0))
}

#[cfg(test)]
mod tests;
