//! `allocation-unit`: the step by which a file's allocated space grows.
//!
//! With ext4's clusters (bigalloc), the unit is larger than a block. A new file is made for each
//! size and closed before it is examined, because file systems preallocate space for growing files.

use std::io;

use super::{Attribute, in_directory};
use crate::finding::{Finding, Method, Point, Value};
use crate::ground::Ground;
use crate::search::first_true;

pub(super) static SPEC: Attribute = in_directory(
    "allocation-unit",
    "step by which the allocated space of a file grows, in bytes",
    find,
);

/// The smallest file size that is tried. Files of this size are too large to be stored in an inode.
/// They are too small to fill the first indirect block (268 KiB with blocks of 1 KiB).
const FROM: u64 = 96 << 10;

/// Maximum allocation unit that is searched for.
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
        Method::found(
            "bytes added to a file until more space is allocated",
            Value::Bytes(second - first),
            series,
        ),
        Method::found(
            "bytes of space allocated in one step",
            Value::Bytes(two_more - one_more),
            Vec::new(),
        ),
    ]))
}

fn nothing(series: Vec<Point>) -> Finding {
    let reason = format!(
        "the allocated space of a file did not increase while the file grew by {LARGEST} bytes"
    );
    Finding::by(Method::failed(
        "bytes added to a file until more space is allocated",
        reason,
        series,
    ))
}

/// Returns the finding that a method does not apply because the unit is unknown.
pub(super) fn unknown(name: &'static str) -> Finding {
    Finding::none(name, "the allocation unit is not known")
}

/// Returns the allocation unit if it can be found. It is searched for only once per [`Ground`].
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
