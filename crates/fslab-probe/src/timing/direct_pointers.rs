//! `direct-pointers` by timing: the first read of a block accesses the device once, or twice in
//! sequence if the block's address is in another block.
//!
//! There is a file for each number of blocks. Its last block is read once after all caches were
//! cleared, because block addresses are cached too. On file systems with extents, each of these
//! files has one extent, which is in the inode. Every read then accesses the device only once.
//! Extents therefore can't explain the "12 direct pointers" that Hu and Bursum found by timing
//! synchronous writes on ext4.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::{Timing, in_turns, method};
use crate::attribute::allocation_unit;
use crate::finding::{Method, Value};
use crate::ground::{Aligned, Ground, Scratch};
use crate::steps::one_step;

/// Number of files: direct pointers up to about this number can be detected.
const FILES: u64 = 24;

const ROUNDS: usize = 9;

/// Maximum number of extents of a file. This many certainly fit into an inode.
const EXTENTS_MOST: usize = 3;

pub(super) fn find(ground: &Ground, timing: &Timing<'_>) -> io::Result<Method> {
    const NAME: &str = "nanoseconds of the first direct read of the last block, by its index";
    let refuse = |reason: &str| Ok(Method::failed(NAME, reason, Vec::new()));
    let Some(make_cold) = timing.make_cold else {
        return refuse("the file system's caches can't be cleared: use --drop-caches");
    };
    let Some(unit) = allocation_unit::known(ground)? else {
        return refuse("the allocation unit is not known");
    };
    let files = (0..FILES).map(|index| ground.stored((index + 1) * unit));
    let files = files.collect::<io::Result<Vec<_>>>()?;
    if files.iter().any(is_fragmented) {
        return refuse("files are fragmented, or their extents are not reported");
    }
    let mut buffer = Aligned::new(usize::try_from(unit).map_err(io::Error::other)?);
    if let Err(error) =
        files[0].open_direct().and_then(|file| file.read_exact_at(buffer.bytes(), 0))
    {
        return refuse(&format!("blocks can't be read with direct I/O ({error})"));
    }
    // The files are closed, because a file system with open files can't be remounted.
    let files: Vec<Scratch> = files.into_iter().map(Scratch::close).collect::<io::Result<_>>()?;
    let mut left_in_round = 0;
    let times = in_turns(files.len(), ROUNDS, |point| {
        if left_in_round == 0 {
            make_cold()?;
            left_in_round = files.len();
        }
        left_in_round -= 1;
        let file: File = files[point].open_direct()?;
        // This loads the inode, so that the timed read does not.
        file.metadata()?;
        let place = point as u64 * unit;
        timing.clock.ticks(|| file.read_exact_at(buffer.bytes(), place))
    })?;
    let outcome = match one_step(&times, timing.seed) {
        Ok(step) if step.ratio > 1.0 => Ok(Value::Count(step.at as u64)),
        Ok(_) => Err("later blocks are read faster".to_owned()),
        Err(refusal) => Err(refusal.to_string()),
    };
    let indices: Vec<u64> = (0..FILES).collect();
    Ok(method(NAME, outcome, &indices, &times, timing.clock))
}

fn is_fragmented(scratch: &Scratch) -> bool {
    scratch.extents().map_or(true, |extents| extents.len() > EXTENTS_MOST)
}
