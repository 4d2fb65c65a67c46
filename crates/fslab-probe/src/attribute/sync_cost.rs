//! `sync-flushes`: how many cache flushes the device receives when a file is synced.

use std::io;

use fslab_sys::block_counters::BlockCounters;

use super::{Attribute, Wants};
use crate::finding::{Finding, Method, Point, Value};
use crate::ground::Ground;
use crate::search::most_common;

pub(super) static SPEC: Attribute = Attribute {
    name: "sync-flushes",
    help: "number of cache flushes of the device for one fsync of a file that grew",
    wants: Wants::QuietDevice,
    find,
};

const SYNCS: u64 = 16;
const PIECE: u64 = 4096;

fn find(ground: &Ground) -> io::Result<Finding> {
    const NAME: &str = "most frequent number of device flushes per sync, in 16 syncs";
    let Some(device) = ground.device else {
        return Ok(Finding::none(NAME, "the file system is not on a single block device"));
    };
    if ground.options.gentle {
        return Ok(Finding::none(NAME, "syncs 16 times, so it is skipped by --gentle"));
    }
    let scratch = ground.fresh()?;
    let mut series = Vec::new();
    for number in 0..SYNCS {
        scratch.fill(number * PIECE, PIECE)?;
        let before = BlockCounters::read(device)?;
        scratch.file.sync_all()?;
        let after = BlockCounters::read(device)?;
        series.push(Point { x: number, y: (after - before).flushes });
    }
    Ok(Finding::by(match most_common(series.iter().map(|point| point.y)) {
        Some(flushes) => Method::found(NAME, Value::Count(flushes), series),
        None => Method::failed(NAME, "the counts differ too much; is the device busy?", series),
    }))
}
