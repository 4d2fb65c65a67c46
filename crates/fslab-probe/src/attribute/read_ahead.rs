//! `read-ahead-*`: how many bytes the kernel reads ahead of a reader.
//!
//! The methods count the pages in the cache. During sequential reading the kernel is ahead of the
//! reader by at most two windows minus one page. These are the current window and the next window,
//! which is requested when the reader enters the current one. Reads with RWF_NOWAIT are not used to
//! inspect the cache, because they start read-ahead themselves.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::thread::sleep;
use std::time::Duration;

use fslab_sys::page_cache::{cachestat, mincore, resident_map};

use super::{Attribute, in_directory};
use crate::finding::{Finding, Method, Point, Value};
use crate::ground::{Ground, Scratch};

pub(super) static INITIAL: Attribute = in_directory(
    "read-ahead-initial",
    "bytes in the cache after one page was read at the beginning of a file",
    |ground| after_one_read(ground, 0),
);

pub(super) static RANDOM: Attribute = in_directory(
    "read-ahead-random",
    "bytes in the cache after one page was read in the middle of a file",
    |ground| after_one_read(ground, SHORT / 2),
);

pub(super) static MAXIMAL: Attribute = in_directory(
    "read-ahead-max",
    "size of the largest read-ahead window of a sequential reader, in bytes",
    maximal,
);

/// Size of a file for single reads, in bytes.
const SHORT: u64 = 8 << 20;

/// Interval between checks for new pages. Read-ahead has ended when `QUIET_LOOKS` checks in a row
/// find none.
const LOOK_EVERY: Duration = Duration::from_millis(2);
const QUIET_LOOKS: u32 = 15;

fn after_one_read(ground: &Ground, offset: u64) -> io::Result<Finding> {
    const NAME: &str = "resident pages";
    let Some(file) = cold_file(ground, SHORT)? else { return Ok(not_cold(NAME)) };
    let page = rustix::param::page_size();
    file.file.read_exact_at(&mut vec![0; page], offset)?;
    wait_for_arrival(&file.file)?;
    let resident = resident_map(&file.file, SHORT)?.iter().filter(|resident| **resident).count();
    let bytes = (resident * page) as u64;
    let series = vec![Point { x: offset, y: bytes }];
    let by_map = Method::found(NAME, Value::Bytes(bytes), series);
    Ok(Finding::conclude(vec![by_map, by_cachestat(&file.file, page)]))
}

/// Waits until read-ahead has ended.
fn wait_for_arrival(file: &File) -> io::Result<()> {
    let length = file.metadata()?.len();
    let mut last = None;
    let mut quiet = 0;
    while quiet < QUIET_LOOKS {
        sleep(LOOK_EVERY);
        let now = Some(mincore(file, length)?);
        quiet = if now == last { quiet + 1 } else { 0 };
        last = now;
    }
    Ok(())
}

fn by_cachestat(file: &File, page: usize) -> Method {
    const NAME: &str = "pages that cachestat counts";
    match cachestat(file, 0) {
        Ok(counts) => Method::found(NAME, Value::Bytes(counts.cached * page as u64), Vec::new()),
        Err(error) => Method::failed(NAME, format!("cachestat fails ({error})"), Vec::new()),
    }
}

/// Reads page by page and counts the cached pages ahead of the reader.
fn maximal(ground: &Ground) -> io::Result<Finding> {
    const NAME: &str = "maximum number of cached pages ahead of a sequential reader";
    let length = ground.options.budget / 2;
    let Some(file) = cold_file(ground, length)? else { return Ok(not_cold(NAME)) };
    let page = rustix::param::page_size();
    let mut ahead_max = 0;
    let mut series = Vec::new();
    let mut buffer = vec![0; page];
    for number in 0..length / 2 / page as u64 {
        file.file.read_exact_at(&mut buffer, number * page as u64)?;
        // Only pages after the reader's position are counted, because the kernel may have dropped
        // earlier ones.
        let Ok(counts) = cachestat(&file.file, (number + 1) * page as u64) else {
            let reason = "the kernel has no cachestat; Linux 6.5 or later has it".to_owned();
            return Ok(Finding::by(Method::failed(NAME, reason, series)));
        };
        if counts.cached > ahead_max {
            ahead_max = counts.cached;
            series.push(Point { x: number, y: ahead_max });
        }
    }
    if (ahead_max + 1) * page as u64 >= length / 2 {
        let reason = format!(
            "the read-ahead window is too large to be measured with a file of {length} bytes"
        );
        return Ok(Finding::by(Method::failed(NAME, reason, series)));
    }
    let window = if ahead_max == 0 { 0 } else { ahead_max.div_ceil(2) * page as u64 };
    Ok(Finding::by(Method::found(NAME, Value::Bytes(window), series)))
}

pub(super) fn not_cold(name: &'static str) -> Finding {
    let reason = "the cached pages of a file can't be dropped, or they belong to a lower file";
    Finding::none(name, reason)
}

/// Makes a file of `length` bytes without resident pages; returns `None` if that is impossible.
/// Another file is used to check that reading makes pages resident.
pub(super) fn cold_file(ground: &Ground, length: u64) -> io::Result<Option<Scratch>> {
    let trial = ground.fresh()?;
    trial.fill(0, SHORT)?;
    trial.make_cold()?;
    if resident_map(&trial.file, SHORT)?.contains(&true) {
        return Ok(None);
    }
    trial.file.read_exact_at(&mut [0; 1 << 16], 0)?;
    let mapped = resident_map(&trial.file, SHORT)?.iter().filter(|resident| **resident).count();
    // On overlayfs, mmap uses the lower file, and the overlay's own inode has no pages. Therefore
    // both methods must find cached pages.
    let counted = cachestat(&trial.file, 0).map_or(mapped as u64, |counts| counts.cached);
    if mapped == 0 || counted == 0 {
        return Ok(None);
    }
    let scratch = ground.fresh()?;
    scratch.fill(0, length)?;
    scratch.make_cold()?;
    // The file is reopened, because the read-ahead state of a descriptor depends on earlier reads.
    let scratch = scratch.settle()?;
    let cold = !resident_map(&scratch.file, length)?.contains(&true);
    Ok(cold.then_some(scratch))
}
