//! The blocks that a device is sent for each block of a file that grows by synced appends: the
//! original's argument for the number of direct pointers. With a direct pointer two, the inode's
//! and the data's; with an indirect block a third. Not requests: a flush is one of those too.

use std::io;

use fslab_sys::block_counters::BlockCounters;
use serde::Serialize;

use super::finding::Point;
use super::ground::{Ground, SECTOR};
use super::search::most_common;

/// Files that are grown: the counts of a busy device differ, and most of them must not.
const FILES: u64 = 5;

/// Blocks of each: twelve with direct pointers, the thirteenth, and as many behind it.
const BLOCKS: u64 = 24;
const DIRECT: u64 = 12;

/// Blocks written for a block of a growing file.
#[derive(Clone, Debug, Serialize)]
pub struct Growth {
    /// For most blocks that the inode maps itself; `None` where the counts differ too much.
    pub direct: Option<u64>,
    /// For most blocks that an indirect block maps.
    pub indirect: Option<u64>,
    /// For each block, the count of most files.
    pub series: Vec<Point>,
}

/// Appends block by block, syncs after each, and counts what the device was sent.
///
/// # Errors
/// Those of writing and of the counters; where there is no one block device below.
pub fn growth(ground: &Ground, block_bytes: u64) -> io::Result<Growth> {
    let device = ground.device.ok_or_else(|| {
        io::Error::new(io::ErrorKind::Unsupported, "there is no one block device below")
    })?;
    let mut counts = vec![Vec::new(); BLOCKS as usize];
    for _ in 0..FILES {
        let scratch = ground.fresh()?;
        for (block, counts) in counts.iter_mut().enumerate() {
            let before = BlockCounters::read(device)?;
            scratch.fill(block as u64 * block_bytes, block_bytes)?;
            scratch.file.sync_data()?;
            let sent = BlockCounters::read(device)? - before;
            counts.push(sent.sectors_written * SECTOR / block_bytes);
        }
    }
    let of = |from: u64, to: u64| {
        let blocks = counts.get(from as usize..to as usize).unwrap_or_default();
        most_common(blocks.iter().flatten().copied())
    };
    let agreed = counts.iter().enumerate().filter_map(|(block, counts)| {
        Some(Point { x: block as u64, y: most_common(counts.iter().copied())? })
    });
    Ok(Growth { direct: of(0, DIRECT), indirect: of(DIRECT, BLOCKS), series: agreed.collect() })
}
