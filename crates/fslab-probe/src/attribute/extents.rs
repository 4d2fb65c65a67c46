//! `extents-in-inode`, `extents-a-block`: how many extents fit into an inode and into a block of
//! the extent tree. For file systems with extents, these attributes correspond to direct pointers
//! and fan-out.
//!
//! Every second block of a contiguous file is punched out. Each punch frees one block and adds one
//! extent. When the space for extents is full, a punch also allocates a new tree block, so the
//! file's size on disk does not change. The opposite method, to write every second block, would
//! fail, because XFS would also allocate the blocks in between.

use std::io;

use rustix::fs::FallocateFlags;

use super::{Attribute, allocation_unit, in_directory};
use crate::finding::{Finding, Method, Point, Value};
use crate::ground::{Ground, Scratch};

pub(super) static IN_INODE: Attribute =
    in_directory("extents-in-inode", "number of extents that fit into an inode", |ground| {
        find(ground, 0)
    });

pub(super) static IN_BLOCK: Attribute = in_directory(
    "extents-a-block",
    "number of extents that fit into a block of the extent tree",
    |ground| find(ground, 1),
);

/// Numbers of punches that should overflow the space for extents: in the inode, and in a tree
/// block. An inode has space for a few dozen extents. A tree block of 64 KiB has space for 4096
/// extents of 16 bytes, but only 1000 punches are tried.
const PUNCHES: [u64; 2] = [40, 1000];

/// Maximum number of files that are made until one is contiguous.
const TRIES: u32 = 5;

fn find(ground: &Ground, overflows_before: usize) -> io::Result<Finding> {
    let name = "number of extents when punching out a block freed no space";
    let Some(unit) = allocation_unit::known(ground)? else {
        return Ok(allocation_unit::unknown(name));
    };
    let punches = PUNCHES[overflows_before.min(1)];
    let Some(scratch) = contiguous(ground, unit * 2 * punches)? else {
        return Ok(Finding::none(
            name,
            "no contiguous file could be created, or extents are not reported",
        ));
    };
    let mut series = Vec::new();
    let mut overflows = 0;
    for punch in 0..punches {
        let before = scratch.taken()?;
        let extents_before = if overflows == overflows_before { extents(&scratch) } else { None };
        if let Err(error) = punch_block(&scratch, unit, 2 * punch + 1) {
            let reason = format!("blocks can't be punched out ({error})");
            return Ok(Finding::by(Method::failed(name, reason, series)));
        }
        let freed = before.saturating_sub(scratch.taken()?);
        series.push(Point { x: punch + 1, y: freed / unit });
        if freed >= unit {
            continue;
        }
        if overflows == overflows_before {
            return Ok(conclude(punch + 1, extents_before, series));
        }
        overflows += 1;
    }
    let reason = format!(
        "after {punches} punched blocks, the space for extents is not full; the file system may \
         have no extents or no extent tree"
    );
    Ok(Finding::by(Method::failed(name, reason, series)))
}

/// Makes a file with a single extent. Returns `None` if there are no extents or no file was
/// contiguous.
fn contiguous(ground: &Ground, length: u64) -> io::Result<Option<Scratch>> {
    for _ in 0..TRIES {
        let scratch = ground.fresh()?;
        // Space allocated at once is contiguous more often than space allocated by successive
        // writes. If fallocate is not supported, writing allocates the space.
        let reserved = rustix::fs::fallocate(&scratch.file, FallocateFlags::empty(), 0, length);
        tracing::debug!(?reserved, length, "requested space for a contiguous file");
        scratch.fill(0, length)?;
        let scratch = scratch.settle()?;
        if extents(&scratch) == Some(1) {
            return Ok(Some(scratch));
        }
    }
    Ok(None)
}

fn extents(scratch: &Scratch) -> Option<u64> {
    scratch.extents().ok().map(|extents| extents.len() as u64)
}

fn punch_block(scratch: &Scratch, unit: u64, block: u64) -> io::Result<()> {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    // The file has no dirty pages, so blocks are freed and allocated immediately.
    Ok(rustix::fs::fallocate(&scratch.file, flags, block * unit, unit)?)
}

fn conclude(by_punches: u64, by_fiemap: Option<u64>, series: Vec<Point>) -> Finding {
    let by_count = match by_fiemap {
        Some(extents) => {
            Method::found("number of extents that FIEMAP reported", Value::Count(extents), vec![])
        }
        None => Method::failed("number of extents that FIEMAP reported", "FIEMAP failed", vec![]),
    };
    let name = "number of extents when punching out a block freed no space";
    Finding::conclude(vec![Method::found(name, Value::Count(by_punches), series), by_count])
}
