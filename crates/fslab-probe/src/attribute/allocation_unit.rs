//! `allocation-unit`: by how much the space that a file takes grows.
//!
//! With ext4's clusters (bigalloc) it is more than a block. Files are made anew for each size and
//! closed before they are looked at, because file systems reserve more for files that grow.

use std::io;

use super::{Attribute, in_directory};
use crate::finding::{Finding, Method, Point, Value};
use crate::ground::Ground;
use crate::search::first_true;

pub(super) static SPEC: Attribute =
    in_directory("allocation-unit", "by how many bytes the space grows that a file takes", find);

/// From here files grow: too large to be stored within an inode, and before the first indirect
/// block could be full (with 1 KiB blocks that is at 268 KiB).
const FROM: u64 = 96 << 10;

/// Units above this are not looked for.
const LARGEST: u64 = 1 << 20;

fn find(ground: &Ground) -> io::Result<Finding> {
    let mut series = Vec::new();
    let mut taken = |length: u64| -> io::Result<u64> {
        let taken = ground.stored_size(length)?;
        series.push(Point { x: length, y: taken });
        Ok(taken)
    };
    let start = taken(FROM)?;
    let first = first_true(FROM, FROM + LARGEST, |length| Ok(taken(length)? > start))?;
    let Some(first) = first else {
        return Ok(nothing(series));
    };
    let one_more = taken(first)?;
    let second = first_true(first, first + LARGEST, |length| Ok(taken(length)? > one_more))?;
    let Some(second) = second else {
        return Ok(nothing(series));
    };
    let two_more = taken(second)?;
    Ok(Finding::conclude(vec![
        Method::found("bytes of data until more is taken", Value::Bytes(second - first), series),
        Method::found("bytes taken at once", Value::Bytes(two_more - one_more), Vec::new()),
    ]))
}

fn nothing(series: Vec<Point>) -> Finding {
    let reason = format!("a file takes no more space within {LARGEST} bytes of growth");
    Finding::by(Method::failed("bytes of data until more is taken", reason, series))
}

/// That a method does not apply, because the unit is not known.
pub(super) fn unknown(name: &'static str) -> Finding {
    Finding::none(name, "the allocation unit is not known")
}

/// The unit where it is known, found once a ground.
pub(crate) fn known(ground: &Ground) -> io::Result<Option<u64>> {
    if let Some(known) = ground.allocation_unit.get() {
        return Ok(*known);
    }
    let unit = find(ground)?.value().and_then(|value| match value {
        Value::Bytes(bytes) => Some(*bytes),
        _ => None,
    });
    Ok(*ground.allocation_unit.get_or_init(|| unit))
}
