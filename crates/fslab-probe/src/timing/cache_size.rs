//! `cache-size` by time: a file that fits is read a second time from memory, a larger one from the
//! device. The original method; it finds the cache of files only where files can outgrow it.

use std::io;
use std::os::unix::fs::FileExt;

use rustix::fs::{Advice, fadvise};

use super::{Timed, Timing, in_turns, method};
use crate::finding::{Method, Value};
use crate::ground::{Ground, Scratch};
use crate::steps::one_step;

pub(super) const SPEC: Timed = Timed { attribute: "cache-size", find };

/// Sizes that are tried, evenly up to the budget.
const POINTS: u64 = 16;

const ROUNDS: usize = 5;

const PIECE: u64 = 1 << 20;

fn find(ground: &Ground, timing: &Timing<'_>) -> io::Result<Method> {
    const NAME: &str = "nanoseconds a page of the second reading, by the file's size";
    let longest = ground.options().budget / 2;
    let step = longest / POINTS / PIECE * PIECE;
    if step == 0 {
        return Ok(Method::failed(NAME, "the budget is too small", Vec::new()));
    }
    let scratch = ground.fresh()?;
    scratch.fill(0, POINTS * step)?;
    let scratch = scratch.settle()?;
    let sizes: Vec<u64> = (1..=POINTS).map(|number| number * step).collect();
    let page = rustix::param::page_size() as u64;
    let times = in_turns(sizes.len(), ROUNDS, |point| {
        let size = sizes[point];
        fadvise(&scratch.file, 0, None, Advice::DontNeed)?;
        read(&scratch, size)?;
        let ticks = timing.clock.ticks(|| read(&scratch, size))?;
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

fn read(scratch: &Scratch, size: u64) -> io::Result<()> {
    let mut buffer = vec![0; PIECE as usize];
    for offset in (0..size).step_by(buffer.len()) {
        scratch.file.read_exact_at(&mut buffer, offset)?;
    }
    Ok(())
}
