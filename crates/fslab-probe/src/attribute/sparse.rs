//! `sparse-granularity`: the smallest hole between data.

use std::io;
use std::os::unix::fs::FileExt;

use super::{Attribute, in_directory};
use crate::finding::{Finding, Method, Point, Value};
use crate::ground::Ground;

pub(super) static SPEC: Attribute = in_directory(
    "sparse-granularity",
    "size of the smallest possible hole between data, in bytes",
    find,
);

/// Offset of the first byte: aligned to any block size.
const PLACE: u64 = 4 << 20;

/// The smallest distance of the second byte from the first. It is doubled up to `DOUBLINGS` times.
const NEAREST: u64 = 512;
const DOUBLINGS: u32 = 12;

fn find(ground: &Ground) -> io::Result<Finding> {
    const FIRST: &str = "half of the smallest tested distance of two bytes with a hole between \
                         them";
    let mut series = Vec::new();
    for doubling in 0..DOUBLINGS {
        let distance = NEAREST << doubling;
        let hole = hole_between(ground, distance)?;
        series.push(Point { x: distance, y: hole.unwrap_or(0) });
        if let Some(hole) = hole {
            // The distance covers the block of the first byte and the hole, which have the same
            // length.
            let by_distance = Method::found(FIRST, Value::Bytes(distance / 2), series);
            let by_hole = Method::found(
                "length of the hole between these two bytes",
                Value::Bytes(hole),
                Vec::new(),
            );
            return Ok(Finding::conclude(vec![by_distance, by_hole]));
        }
    }
    let reason = format!(
        "two bytes at a distance of {} bytes have no hole between them",
        NEAREST << (DOUBLINGS - 1)
    );
    Ok(Finding::by(Method::failed(FIRST, reason, series)))
}

/// Returns the length of the hole between two bytes, if there is one.
fn hole_between(ground: &Ground, distance: u64) -> io::Result<Option<u64>> {
    let scratch = ground.fresh()?;
    scratch.file.set_len(2 * PLACE)?;
    scratch.file.write_all_at(b"x", PLACE)?;
    scratch.file.write_all_at(b"x", PLACE + distance)?;
    let scratch = scratch.settle()?;
    let Some(hole) = scratch.hole_after(PLACE)?.filter(|hole| *hole < PLACE + distance) else {
        return Ok(None);
    };
    Ok(scratch.data_after(hole)?.map(|data| data - hole))
}
