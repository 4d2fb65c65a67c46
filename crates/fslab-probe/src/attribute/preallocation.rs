//! `preallocation`: the space that is allocated beyond the end of a growing file while it is open.

use std::io;

use super::{Attribute, allocation_unit, in_directory};
use crate::finding::{Finding, Method, Point, Value};
use crate::ground::Ground;

pub(super) static SPEC: Attribute = in_directory(
    "preallocation",
    "bytes allocated beyond the end of an open file that grew to 1 MiB by appending",
    find,
);

const PIECE: u64 = 64 << 10;
const LENGTH: u64 = 1 << 20;

fn find(ground: &Ground) -> io::Result<Finding> {
    const NAME: &str = "space of the open file minus its space after closing, in bytes";
    if allocation_unit::known(ground)?.is_none() {
        return Ok(allocation_unit::unknown(NAME));
    }
    let scratch = ground.fresh()?;
    let mut series = Vec::new();
    for piece in 0..LENGTH / PIECE {
        scratch.fill(piece * PIECE, PIECE)?;
        scratch.file.sync_data()?;
        series.push(Point { x: (piece + 1) * PIECE, y: scratch.taken()? });
    }
    let open = scratch.taken()?;
    // The same file is used, because another one may have more extents and need one more pointer
    // block.
    let closed = scratch.settle()?.taken()?;
    Ok(Finding::by(Method::found(NAME, Value::Bytes(open.saturating_sub(closed)), series)))
}
