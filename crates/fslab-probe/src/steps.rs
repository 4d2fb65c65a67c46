//! Finding a step in times, or refusing to see one.
//!
//! Times carry noise that only ever adds. A point is therefore measured several times, and its
//! least time counts. On the logarithms of these the sequence is cut into pieces of one level
//! each: the best cut into one, two, three pieces is found exactly, by dynamic programming over
//! the sum of absolute deviations from each piece's median, and the number of pieces is the one
//! with the best criterion of Schwarz for errors of Laplace's distribution. Neighbouring pieces
//! whose levels differ by less than a factor of 1.3 are one.
//!
//! What remains is believed only when it is a single step, when orders drawn at random hardly
//! ever show one as clear (a permutation test), and when drawing the measurements of each point
//! again (a bootstrap) leaves the step where it is. Everything here is a function of numbers; the
//! draws come from a seed.

use std::fmt;

use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

/// Levels that differ by less are the same.
pub const RATIO_LEAST: f64 = 1.3;

/// Steps that chance makes more often than this are no steps.
pub const P_MOST: f64 = 0.01;

const PERMUTATIONS: u32 = 999;
const RESAMPLES: usize = 400;

/// More pieces than this are noise.
const PIECES_MOST: usize = 8;

/// Fewer points show nothing.
const POINTS_LEAST: usize = 6;

/// Differences of levels below one percent are not worth a step, even where times have no noise.
const NOISE_FLOOR: f64 = 0.01;

/// The one step of a sequence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// The first point of the new level.
    pub at: usize,
    /// The level after it, divided by that before.
    pub ratio: f64,
    /// Where it lay when measurements were drawn again: the middle 95 percent.
    pub interval: (usize, usize),
    /// How often orders drawn at random show one as clear.
    pub p_value: f64,
}

/// Why no step is told.
#[derive(Clone, Debug, PartialEq)]
pub enum Refusal {
    /// Too few points.
    TooFew,
    /// No two pieces differ enough.
    Flat,
    /// Several steps, where one was looked for: the points where they are.
    Several(Vec<usize>),
    /// Chance shows such steps too often.
    Chance {
        /// How often.
        p_value: f64,
    },
    /// Drawing measurements again moves it.
    Blurred {
        /// Between these points.
        interval: (usize, usize),
    },
}

impl fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooFew => write!(formatter, "fewer than {POINTS_LEAST} points"),
            Self::Flat => write!(formatter, "no step: levels differ by less than {RATIO_LEAST}"),
            Self::Several(at) => write!(formatter, "{} steps, not one", at.len()),
            Self::Chance { p_value } => {
                write!(formatter, "no clear step: chance shows as much (p = {p_value:.3})")
            }
            Self::Blurred { interval: (first, last) } => {
                write!(formatter, "a step, but anywhere from point {first} to {last}")
            }
        }
    }
}

/// The one step in times of points, each measured several times.
///
/// # Errors
/// A [`Refusal`], where it is not clear that there is exactly one, or where it is.
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

/// The logarithm of the least time of a point.
fn log_least(times: &[f64]) -> f64 {
    times.iter().copied().fold(f64::INFINITY, f64::min).ln()
}

/// The first points of all pieces but the first.
fn cut(levels: &[f64]) -> Vec<usize> {
    let cuts = best_cuts(levels);
    let criterion = |number: usize, cost: f64| {
        // A level for each piece, a place for each step, and the scale of the noise.
        let parameters = (2 * (number + 1)) as f64;
        let count = levels.len() as f64;
        2.0 * count * (cost / count).max(NOISE_FLOOR).ln() + parameters * count.ln()
    };
    let best = cuts.into_iter().enumerate().min_by(|(number, one), (other_number, other)| {
        criterion(*number, one.0).total_cmp(&criterion(*other_number, other.0))
    });
    merge(levels, best.map(|(_, (_, steps))| steps).unwrap_or_default())
}

/// Takes out steps, the smallest first, until all are large enough.
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

/// How far apart the levels are on both sides of each step.
fn heights(levels: &[f64], steps: &[usize]) -> Vec<f64> {
    let mut borders = vec![0];
    borders.extend(steps);
    borders.push(levels.len());
    let medians: Vec<f64> =
        borders.windows(2).map(|piece| median(&levels[piece[0]..piece[1]])).collect();
    medians.windows(2).map(|pair| (pair[1] - pair[0]).abs()).collect()
}

fn deviation(sorted: &[f64]) -> f64 {
    // Pairs from both ends: the median is between the two of each.
    let half = sorted.len() / 2;
    (0..half).map(|index| sorted[sorted.len() - 1 - index] - sorted[index]).sum()
}

/// The least cost of cutting into one, two, ... pieces, and where these begin.
fn best_cuts(levels: &[f64]) -> Vec<(f64, Vec<usize>)> {
    let count = levels.len();
    let costs: Vec<Vec<f64>> =
        (0..count).map(|first| growing_costs(levels[first..].iter())).collect();
    let between =
        |first: usize, end: usize| if end > first { costs[first][end - first - 1] } else { 0.0 };
    // For each end: the least cost of all before it in so many pieces, and where they begin.
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

/// How much one cut explains of all deviation, and where it is.
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

/// The cost of the first one, two, ... levels.
fn growing_costs<'a>(levels: impl Iterator<Item = &'a f64>) -> Vec<f64> {
    let mut sorted: Vec<f64> = Vec::new();
    let add = |level: &f64| {
        sorted.insert(sorted.partition_point(|other| other < level), *level);
        deviation(&sorted)
    };
    levels.map(add).collect()
}

/// The share of random orders in which one cut explains as much.
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

/// Where the cut lies when the measurements of each point are drawn again: the middle 95 percent.
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

/// Slow points that return after the same number of fast ones.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Period {
    /// From one slow point to the next.
    pub length: usize,
    /// How often it was seen in a row, up to the end.
    pub times: usize,
    /// How much slower they are.
    pub ratio: f64,
    /// The same as a difference.
    pub difference: f64,
    /// The slow point that the first of these periods begins with.
    pub first: usize,
}

/// Why no period is told.
#[derive(Clone, Debug, PartialEq)]
pub enum NoPeriod {
    /// Points are about equally fast.
    Even,
    /// Slow points come irregularly, or too seldom.
    Irregular,
}

impl fmt::Display for NoPeriod {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Even => "all points are about equally fast",
            Self::Irregular => "slow points do not return regularly",
        })
    }
}

/// Slow points have to be this much slower than fast ones.
const SLOW_LEAST: f64 = 2.0;

/// A period must be seen so often in a row, and through this share of all points.
const PERIODS_LEAST: usize = 5;
const SHARE_LEAST: f64 = 0.5;

/// The period of slow points among fast ones at the end of a sequence, which may begin otherwise.
///
/// # Errors
/// Where slow points don't stand out, or don't return regularly.
pub fn period(times: &[Vec<f64>]) -> Result<Period, NoPeriod> {
    let levels: Vec<f64> = times.iter().map(|point| log_least(point)).collect();
    let mut sorted = levels.clone();
    sorted.sort_by(f64::total_cmp);
    let (_, split) = best_gap(&sorted);
    let (fast, slower) = (median(&sorted[..split]), median(&sorted[split..]));
    let ratio = (slower - fast).exp();
    // Most points must be fast: else there is no level that others stand out from.
    if split * 2 < sorted.len() || ratio < SLOW_LEAST {
        return Err(NoPeriod::Even);
    }
    let threshold = f64::midpoint(sorted[split - 1], sorted[split]);
    let slow: Vec<usize> = (0..levels.len()).filter(|index| levels[*index] > threshold).collect();
    let gaps: Vec<usize> = slow.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let Some(length) = gaps.last().copied() else { return Err(NoPeriod::Irregular) };
    let repeats = gaps.iter().rev().take_while(|gap| **gap == length).count();
    // The last window has nothing behind it that could be read ahead when it is entered.
    let to_the_end = slow.last().is_some_and(|last| levels.len() - last <= 2 * length);
    let covered = (repeats * length) as f64 / levels.len() as f64;
    if repeats < PERIODS_LEAST || covered < SHARE_LEAST || !to_the_end {
        return Err(NoPeriod::Irregular);
    }
    let first = slow[slow.len() - 1 - repeats];
    Ok(Period { length, times: repeats, ratio, difference: slower.exp() - fast.exp(), first })
}

/// The widest gap in a sorted sequence, and the index after it.
fn best_gap(sorted: &[f64]) -> (f64, usize) {
    (1..sorted.len())
        .map(|index| (sorted[index] - sorted[index - 1], index))
        .max_by(|one, other| one.0.total_cmp(&other.0))
        .unwrap_or((0.0, 0))
}

#[cfg(test)]
mod tests;
