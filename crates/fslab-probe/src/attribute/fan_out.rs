//! `pointer-fan-out`, `pointer-depth`: how many pointers a pointer block contains, and how many
//! levels of such blocks are needed to reach the end of the largest file.
//!
//! A sparse file with a single data block at a growing index uses one, then two, three and four
//! blocks in total. The number of indices at which it uses two blocks is the fan-out. The number of
//! indices at which it uses three blocks is the square of the fan-out.

use std::io;

use super::direct_pointers::overhead_of_one_block;
use super::{Attribute, allocation_unit, in_directory, limits};
use crate::finding::{Finding, Method, Point, Value};
use crate::ground::Ground;
use crate::search::first_true;

pub(super) static FAN_OUT: Attribute = in_directory(
    "pointer-fan-out",
    "number of pointers that fit into a block of pointers",
    fan_out,
);

pub(super) static DEPTH: Attribute = in_directory(
    "pointer-depth",
    "number of pointer blocks between the inode and the last block of the largest file",
    depth,
);

/// Maximum fan-out: that of a 64 KiB block of 4-byte pointers.
const MOST: u64 = 1 << 14;

/// An upper bound of the number of direct pointers.
const DIRECT_MOST: u64 = 64;

fn fan_out(ground: &Ground) -> io::Result<Finding> {
    let Some(unit) = allocation_unit::known(ground)? else {
        return Ok(allocation_unit::unknown(""));
    };
    let mut series = Vec::new();
    let mut depth = |index: u64| -> io::Result<u64> {
        let depth = overhead_of_one_block(ground, unit, index)? / unit;
        series.push(Point { x: index, y: depth });
        Ok(depth)
    };
    let least = depth(0)?;
    let mut step = |low: u64, high: u64, levels: u64| {
        first_true(low, high, |index| Ok(depth(index)? >= least + levels))
    };
    let Some(single) = step(0, DIRECT_MOST, 1)? else {
        let reason = "extents or a tree are used instead of block pointers, because the overhead \
                      is constant"
            .to_owned();
        return Ok(Finding::by(Method::failed(
            "number of blocks that are reached through one pointer block",
            reason,
            series,
        )));
    };
    let Some(double) = step(single, single + MOST, 2)? else {
        let reason = format!("no second level of pointer blocks within {MOST} blocks");
        return Ok(Finding::by(Method::failed(
            "number of blocks that are reached through one pointer block",
            reason,
            series,
        )));
    };
    let fan_out = double - single;
    let triple = step(double, double + fan_out * fan_out + 1, 3)?;
    let by_square = match triple.filter(|triple| triple - double == fan_out * fan_out) {
        Some(_) => Method::found(
            "square root of the number of blocks that are reached through two pointer blocks",
            Value::Count(fan_out),
            Vec::new(),
        ),
        None => Method::failed(
            "square root of the number of blocks that are reached through two pointer blocks",
            "the third level of pointer blocks does not begin at the expected block",
            Vec::new(),
        ),
    };
    let by_step = Method::found(
        "number of blocks that are reached through one pointer block",
        Value::Count(fan_out),
        series,
    );
    Ok(Finding::conclude(vec![by_step, by_square]))
}

fn depth(ground: &Ground) -> io::Result<Finding> {
    const NAME: &str = "blocks that a file uses in addition to its only data block, which is at \
                        the largest offset";
    let Some(unit) = allocation_unit::known(ground)? else {
        return Ok(allocation_unit::unknown(NAME));
    };
    let (largest, _series) = limits::by_truncate(ground)?;
    let last = (largest / unit).saturating_sub(1);
    let first_has = overhead_of_one_block(ground, unit, 0)? / unit;
    let levels = (overhead_of_one_block(ground, unit, last)? / unit).saturating_sub(first_has);
    let series = vec![Point { x: 0, y: first_has }, Point { x: last, y: first_has + levels }];
    Ok(Finding::by(match levels {
        0 => Method::failed(
            NAME,
            "extents or a tree are used instead of block pointers, because the overhead is \
             constant",
            series,
        ),
        levels => Method::found(NAME, Value::Count(levels), series),
    }))
}
