//! `block-size` by timing. One byte that is written into a hole becomes a block of data. Direct
//! reads of that block access the device; reads of the hole around it do not.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::{Timing, in_turns, method};
use crate::finding::{Method, Value};
use crate::ground::{Aligned, Ground, Scratch};
use crate::steps::one_step;

/// Offset of the byte: aligned to any block size.
const PLACE: u64 = 4 << 20;

/// Length of the reads, and distance between them, in bytes.
const SECTOR: u64 = 512;

/// Number of reads. They can detect blocks of up to half the range that they cover.
const POINTS: usize = 64;

const ROUNDS: usize = 9;

pub(super) fn find(ground: &Ground, timing: &Timing<'_>) -> io::Result<Method> {
    const NAME: &str = "nanoseconds for each direct read of 512 bytes, from a written byte into \
                        the hole after it";
    let scratch = ground.one_byte(PLACE)?;
    let direct = match open_for_sectors(&scratch) {
        Ok(direct) => direct,
        Err(error) => {
            let reason = format!("512 bytes can't be read with direct I/O ({error})");
            return Ok(Method::failed(NAME, reason, Vec::new()));
        }
    };
    let mut buffer = Aligned::new(SECTOR as usize);
    let offsets: Vec<u64> = (0..POINTS as u64).map(|point| point * SECTOR).collect();
    let times = in_turns(POINTS, ROUNDS, |point| {
        let place = PLACE + offsets[point];
        timing.clock.ticks(|| direct.read_exact_at(buffer.bytes(), place))
    })?;
    let outcome = match one_step(&times, timing.seed) {
        Ok(step) if step.ratio < 1.0 => Ok(Value::Bytes(offsets[step.at])),
        Ok(_) => Err("the hole is read more slowly than the data".to_owned()),
        Err(refusal) => Err(refusal.to_string()),
    };
    Ok(method(NAME, outcome, &offsets, &times, timing.clock))
}

fn open_for_sectors(scratch: &Scratch) -> io::Result<File> {
    let direct = scratch.open_direct()?;
    direct.read_exact_at(Aligned::new(SECTOR as usize).bytes(), PLACE)?;
    Ok(direct)
}
