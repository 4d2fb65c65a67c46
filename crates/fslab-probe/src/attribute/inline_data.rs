//! `inline-data`: how many bytes of a file are stored in its inode or metadata.
//!
//! One method uses `st_blocks`, because on ext4 a file with inline data has no block. The other
//! uses FIEMAP's flag, because Btrfs counts a block for inline data. If neither shows inline data,
//! there is none.

use std::io;

use fiemap::{FiemapExtent, FiemapExtentFlags};

use super::{Attribute, allocation_unit, in_directory};
use crate::finding::{Finding, Method, Point, Value};
use crate::ground::Ground;
use crate::search::first_true;

pub(super) static SPEC: Attribute = in_directory(
    "inline-data",
    "size of the largest file that is stored without a separate block; 0 if there is none",
    find,
);

/// The largest file size that is tried, in bytes. It is larger than any metadata block in use.
const MOST: u64 = 64 << 10;

fn find(ground: &Ground) -> io::Result<Finding> {
    let Some(unit) = allocation_unit::known(ground)? else {
        return Ok(allocation_unit::unknown(""));
    };
    let blocks = limit("largest size at which a file uses less than a block", |length| {
        Ok(Some(ground.stored_size(length)? < unit))
    })?;
    let flag = limit("largest size at which FIEMAP reports inline data", |length| {
        flagged(ground, length)
    })?;
    Ok(Finding::conclude(agree(blocks, flag)))
}

/// Returns the largest inline size; 0 if there is none.
fn limit(
    name: &'static str,
    mut is_inline: impl FnMut(u64) -> io::Result<Option<bool>>,
) -> io::Result<Method> {
    let mut series = Vec::new();
    let mut told = true;
    let first = first_true(0, MOST, |length| {
        let inline = is_inline(length)?;
        told &= inline.is_some();
        let inline = inline.unwrap_or(false);
        series.push(Point { x: length, y: inline.into() });
        Ok(!inline)
    })?;
    Ok(match first {
        _ if !told => Method::failed(name, "extents are not reported", series),
        Some(first) => Method::found(name, Value::Bytes(first - 1), series),
        None => Method::failed(name, format!("even a file of {MOST} bytes uses no block"), series),
    })
}

fn flagged(ground: &Ground, length: u64) -> io::Result<Option<bool>> {
    let extents = ground.stored(length)?.extents().ok();
    let is_inline =
        |extent: &FiemapExtent| extent.fe_flags.contains(FiemapExtentFlags::DATA_INLINE);
    Ok(extents.map(|extents| extents.first().is_some_and(is_inline)))
}

/// Drops the result of the method `blocks` if FIEMAP reports inline data, because some file systems
/// count a block for inline data.
fn agree(blocks: Method, flag: Method) -> Vec<Method> {
    let none = |method: &Method| method.outcome == Ok(Value::Bytes(0));
    if none(&blocks) && flag.outcome.is_ok() && !none(&flag) {
        let blocks = Method::failed(
            blocks.name,
            "the file system counts inline data as a block",
            blocks.series,
        );
        return vec![blocks, flag];
    }
    vec![blocks, flag]
}
