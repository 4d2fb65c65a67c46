//! Counts the blocks that are written to the device for each block of a file that grows by synced
//! appends. Hu and Bursum derived the number of direct pointers from this count. If the inode
//! points to the block directly, two blocks are written: the inode's block and the data block. With
//! an indirect block, three blocks are written. Requests are not counted, since a flush is also a
//! request.

use std::io;

use fslab_sys::block_counters::BlockCounters;
use serde::Serialize;

use super::finding::Point;
use super::ground::{Ground, SECTOR};
use super::search::most_common;

/// Number of files that are grown. Most of their counts must agree, because other programs may use
/// the device.
const FILES: u64 = 5;

/// Number of blocks per file: twelve with direct pointers, and twelve with an indirect block.
const BLOCKS: u64 = 24;
const DIRECT: u64 = 12;

/// Numbers of blocks written per block of a growing file.
#[derive(Clone, Debug, Serialize)]
pub struct Growth {
    /// The most common count for blocks to which the inode points directly; `None` if the counts
    /// differ too much.
    pub direct: Option<u64>,
    /// The most common count for blocks to which an indirect block points; `None` if the counts
    /// differ too much.
    pub indirect: Option<u64>,
    /// The most common count for each block of the file.
    pub series: Vec<Point>,
}

/// Appends block by block, syncs after each, and counts the blocks written to the device.
///
/// # Errors
/// Returns errors of writing and of the counters; fails if there is not exactly one block device
/// underneath.
pub fn growth(ground: &Ground, block_bytes: u64) -> io::Result<Growth> {
    let device = ground.device.ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::Unsupported,
            "the file system is not on a single block device",
        )
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
