//! The original's four results again, on ext2, ext3 and ext4, counted and timed side by side.
//!
//! Hu and Bursum ("Measurement and Impact of Key File System Attributes") found on ext4 under
//! Linux 2.6.32: blocks of 4096 bytes, a prefetch buffer of 256 KB, a file cache of 2 MB and 12
//! direct pointers.

use std::path::Path;

use fslab_sys::make_file_system::Kind;
use fslab_sys::memory_bound::MemoryBound;
use fslab_sys::signals::Interrupt;

use super::ground::{Ground, Options};
use super::matrix::{Cell, Stage};
use super::timing::Timing;
use super::{ATTRIBUTES, Answer, find_both};
use crate::error::{Error, Result};
use crate::host::Host;

/// The attributes of the original, with what it found.
pub const FOUND: [(&str, &str); 4] = [
    ("block-size", "4096 bytes"),
    ("read-ahead-max", "262144 bytes"),
    ("cache-size", "2097152 bytes"),
    ("direct-pointers", "12"),
];

/// Why a twelve can't come from extents.
pub const TWELVE: &str = "\
Twelve is the number of direct pointers of ext2 and ext3: from the thirteenth block on, its place \
stands in a block of pointers, which is read before it and written with it. ext4 makes no such \
blocks: its inodes hold four extents, each of up to 32768 blocks, so that the first 24 blocks of a \
file are one extent and their first reads cost the same, as timing finds above by refusing. A \
jump at twelve on ext4 came from something else: the original timed single writes to a growing \
file, without repeats, on a file system that delays allocation and journals its metadata.";

/// Why 256 KB are two windows.
pub const PREFETCH: &str = "\
The kernel reads ahead in windows of 128 KiB unless a device says otherwise, as here. While a \
reader is in one window, the next is already there or on its way: up to 256 KiB less a page are \
ahead of it, which is what the original calls the prefetch buffer.";

/// Why the cache is no 2 MB.
pub const CACHE: &str = "\
The cache of files takes whatever memory is free; it has a size only where something bounds it, \
here a control group of 40 MiB. A slower second reading from 2 MB on, on a machine with gigabytes, \
tells of the processor's caches, not of the file system.";

/// What disks have unless they say otherwise; loop devices say so.
const READ_AHEAD_KIB: u64 = 128;

/// The memory that files are cached in, so that the cache has a size.
const MEMORY: u64 = 40 << 20;

/// Finds the four attributes on each file system, made for it: in memory, if `memory_directory`
/// is on tmpfs, where no neighbour delays a device; but for the cache, because tmpfs would pay
/// for its pages from the same bound.
///
/// # Errors
/// Where file systems can't be made or mounted, or memory not be bounded.
pub fn reproduce(
    work_directory: &Path,
    memory_directory: &Path,
    host: &dyn Host,
    timing: &Timing<'_>,
    interrupt: &Interrupt,
) -> Result<Vec<(Kind, Vec<Answer>)>> {
    let mut all = Vec::new();
    for kind in [Kind::Ext2, Kind::Ext3, Kind::Ext4] {
        let cell = Cell::image(kind, "-b 4096").read_ahead(READ_AHEAD_KIB);
        let mut answers = Vec::new();
        for (attribute, _) in FOUND {
            if interrupt.is_raised() {
                return Err(Error::Interrupted);
            }
            answers.extend(if attribute == "cache-size" {
                let stage = Stage::make(&cell, work_directory, host)?;
                let bound = MemoryBound::enter(MEMORY)?;
                let answer = on(&stage, attribute, 4 * MEMORY, timing);
                bound.leave()?;
                answer?
            } else {
                let stage = Stage::make(&cell, memory_directory, host)?;
                on(&stage, attribute, Options::default().budget, timing)?
            });
        }
        all.push((kind, answers));
    }
    Ok(all)
}

fn on(stage: &Stage, attribute: &str, budget: u64, timing: &Timing<'_>) -> Result<Option<Answer>> {
    let remount = || stage.remount().map_err(std::io::Error::other);
    let timing = Timing { make_cold: Some(&remount), ..*timing };
    let ground = Ground::prepare(&stage.path(), Options { budget, ..Options::default() })?;
    let attribute = ATTRIBUTES.iter().find(|known| known.name == attribute);
    let answer = attribute.map(|attribute| find_both(attribute, &ground, &timing));
    ground.clear()?;
    Ok(answer)
}
