//! `timestamp-granularity`, `timestamp-range`: which timestamps a file can have, found by setting
//! them.

use std::io;

use rustix::fs::{Timespec, Timestamps, futimens};

use super::{Attribute, in_directory};
use crate::finding::{Finding, Method, Point, Value};
use crate::ground::{Ground, Scratch};

pub(super) static GRANULARITY: Attribute = in_directory(
    "timestamp-granularity",
    "the smallest difference between times that files can have",
    granularity,
);

pub(super) static RANGE: Attribute =
    in_directory("timestamp-range", "the first and the last time that files can have", range);

const SECOND_NS: u64 = 1_000_000_000;

/// A second that every file system can store. It is even, because some store only even seconds.
const SOME_SECOND: i64 = 1_000_000_000;

fn granularity(ground: &Ground) -> io::Result<Finding> {
    const NAME: &str = "smallest time step that is stored exactly";
    let scratch = ground.fresh()?;
    let mut series = Vec::new();
    let powers = (0..=9).map(|exponent| 10_u64.pow(exponent)).chain([2 * SECOND_NS]);
    for step_ns in powers {
        let seconds = SOME_SECOND + (step_ns / SECOND_NS) as i64;
        let time = Timespec { tv_sec: seconds, tv_nsec: (step_ns % SECOND_NS) as i64 };
        let kept = keeps(&scratch, time)?;
        series.push(Point { x: step_ns, y: kept.into() });
        if kept {
            return Ok(Finding::by(Method::found(NAME, Value::Nanoseconds(step_ns), series)));
        }
    }
    Ok(Finding::by(Method::failed(
        NAME,
        "the file system does not store the times that futimens sets",
        series,
    )))
}

fn range(ground: &Ground) -> io::Result<Finding> {
    const NAME: &str = "first and last second that are stored exactly";
    let scratch = ground.fresh()?;
    let keeps_second = |second| keeps(&scratch, Timespec { tv_sec: second, tv_nsec: 0 });
    if !keeps_second(SOME_SECOND)? {
        return Ok(Finding::none(
            NAME,
            "the file system does not store the times that futimens sets",
        ));
    }
    let last = furthest(SOME_SECOND, i64::MAX, keeps_second)?;
    let first = furthest(SOME_SECOND, i64::MIN, keeps_second)?;
    Ok(Finding::by(Method::found(NAME, Value::Seconds { first, last }, Vec::new())))
}

/// Returns the time in seconds that is nearest to `end` and still stored correctly. It is found by
/// bisection between `kept` and `end`.
fn furthest(kept: i64, end: i64, keeps: impl Fn(i64) -> io::Result<bool>) -> io::Result<i64> {
    if keeps(end)? {
        return Ok(end);
    }
    let (mut yes, mut no) = (i128::from(kept), i128::from(end));
    while (no - yes).abs() > 1 {
        let middle = yes + (no - yes) / 2;
        let second = i64::try_from(middle).map_err(io::Error::other)?;
        if keeps(second)? {
            yes = middle;
        } else {
            no = middle;
        }
    }
    i64::try_from(yes).map_err(io::Error::other)
}

/// Whether a file stores a modification time exactly.
fn keeps(scratch: &Scratch, time: Timespec) -> io::Result<bool> {
    let times = Timestamps { last_access: time, last_modification: time };
    if futimens(&scratch.file, &times).is_err() {
        return Ok(false);
    }
    let stat = rustix::fs::fstat(&scratch.file)?;
    Ok(stat.st_mtime == time.tv_sec && stat.st_mtime_nsec as i64 == time.tv_nsec)
}
