//! `direct-pointers`: how many blocks of a file its inode points to directly.
//!
//! A file with one more block also needs a pointer block, which is counted in `st_blocks`. File
//! systems with extents show no such step. A timing method once found "12 direct pointers" on ext4.
//! That method can't have counted extents, because an ext4 inode contains at most four.

use std::io;
use std::os::unix::fs::FileExt;

use super::{Attribute, allocation_unit, in_directory};
use crate::finding::{Finding, Method, Point, Value};
use crate::ground::Ground;
use crate::search::first_true;

pub(super) static SPEC: Attribute =
    in_directory("direct-pointers", "number of blocks to which an inode points directly", find);

/// Maximum number of direct pointers; no inode has room for more.
const MOST: u64 = 64;

fn find(ground: &Ground) -> io::Result<Finding> {
    let Some(unit) = allocation_unit::known(ground)? else {
        return Ok(allocation_unit::unknown(""));
    };
    let whole = method("blocks of the largest file without a pointer block", |blocks| {
        Ok(ground.stored_size(blocks * unit)?.saturating_sub(blocks * unit) / unit)
    })?;
    let sparse = method(
        "blocks of the largest file without a pointer block, if only its last block is written",
        |blocks| Ok(overhead_of_one_block(ground, unit, blocks - 1)? / unit),
    )?;
    Ok(Finding::conclude(vec![whole, sparse]))
}

/// Searches for the first number of blocks at which a file uses more space than its data.
fn method(name: &'static str, overhead: impl Fn(u64) -> io::Result<u64>) -> io::Result<Method> {
    let mut series = Vec::new();
    let mut ask = |blocks: u64| -> io::Result<u64> {
        let overhead = overhead(blocks)?;
        series.push(Point { x: blocks, y: overhead });
        Ok(overhead)
    };
    let least = ask(1)?;
    let first = first_true(1, MOST, |blocks| Ok(ask(blocks)? > least))?;
    Ok(match first {
        Some(first) => Method::found(name, Value::Count(first - 1), series),
        None => {
            let reason = format!(
                "extents or a tree are used, because the overhead is constant up to {MOST} blocks"
            );
            Method::failed(name, reason, series)
        }
    })
}

/// Returns the space that a file with only the block at `index` uses in addition to that block.
pub(super) fn overhead_of_one_block(ground: &Ground, unit: u64, index: u64) -> io::Result<u64> {
    let scratch = ground.fresh()?;
    let block = vec![0x5a; usize::try_from(unit).map_err(io::Error::other)?];
    scratch.file.write_all_at(&block, index * unit)?;
    Ok(scratch.settle()?.taken()?.saturating_sub(unit))
}
