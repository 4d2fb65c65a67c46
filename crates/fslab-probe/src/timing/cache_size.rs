//! `cache-size` by timing. If a file fits into the cache, its second read is served from memory;
//! the second read of a larger file is served from the device. This is the method of Hu and Bursum.
//! It finds the cache size only if files can exceed it.

use std::io;

use rustix::fs::{Advice, fadvise};

use super::{Timing, in_turns, method};
use crate::finding::{Method, Value};
use crate::ground::{Ground, PIECE};
use crate::steps::one_step;

/// Number of file sizes that are tried, evenly spaced up to half the budget.
const POINTS: u64 = 16;

const ROUNDS: usize = 5;

pub(super) fn find(ground: &Ground, timing: &Timing<'_>) -> io::Result<Method> {
    const NAME: &str = "nanoseconds per page when a file is read again, by the file's size";
    let longest = ground.options.budget / 2;
    let step = longest / POINTS / PIECE * PIECE;
    if step == 0 {
        return Ok(Method::failed(NAME, "the space budget (--budget) is too small", Vec::new()));
    }
    let scratch = ground.stored(POINTS * step)?;
    let sizes: Vec<u64> = (1..=POINTS).map(|number| number * step).collect();
    let page = rustix::param::page_size() as u64;
    let times = in_turns(sizes.len(), ROUNDS, |point| {
        let size = sizes[point];
        fadvise(&scratch.file, 0, None, Advice::DontNeed)?;
        scratch.read_all(size)?;
        let ticks = timing.clock.ticks(|| scratch.read_all(size))?;
        Ok(ticks.map(|ticks| ticks / (size / page)))
    })?;
    let outcome = match one_step(&times, timing.seed) {
        Ok(step) if step.ratio > 1.0 => {
            Ok(Value::Between { low: sizes[step.at - 1], high: sizes[step.at] })
        }
        Ok(_) => Err("larger files are read faster".to_owned()),
        Err(refusal) => Err(format!("{refusal}, up to {longest} bytes")),
    };
    Ok(method(NAME, outcome, &sizes, &times, timing.clock))
}
