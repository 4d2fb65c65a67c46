//! `cache-size`, `cache-bound`: how much of a file stays in the page cache, and the cause of this
//! limit.
//!
//! A file is read twice. If it fits into the cache, all of its pages are resident after the first
//! read, and the second read requests nothing from the device. If the file is slightly larger, each
//! page is dropped before the second read reaches it, so the second read finds no cached pages.
//! Both counts therefore change abruptly at the size of the cache. The time per block, which the
//! original method used, changes gradually. A memory control group limits the cache of its
//! processes. The largest file that fits is 10 to 15 percent smaller than this limit, because other
//! memory is charged to the group, too.

use std::io;

use fslab_sys::block_counters::{BlockCounters, DeviceNumber};
use fslab_sys::memory_bound::limit_here;
use fslab_sys::page_cache::cachestat;
use fslab_sys::usage::memory_available;
use rustix::fs::{Advice, fadvise};

use super::read_ahead::{cold_file, not_cold};
use super::{Attribute, in_directory};
use crate::finding::{Finding, Method, Point, Value};
use crate::ground::{Ground, PIECE, SECTOR, Scratch};
use crate::search::first_true;

pub(super) static SIZE: Attribute = in_directory(
    "cache-size",
    "bytes of the largest file that is completely in memory after it was read",
    size,
);

pub(super) static BOUND: Attribute = in_directory(
    "cache-bound",
    "the limit of the page cache for this process: control-group (its memory limit) or free-memory",
    bound,
);

/// Resolution of sizes in bytes.
const STEP: u64 = PIECE;

/// The results of reading the beginning of a file twice.
#[derive(Clone, Copy, Debug, Default)]
struct Readings {
    /// Number of bytes resident after the first read.
    resident: u64,
    /// Number of bytes that the device read during the second read; `None` if no device counts
    /// them.
    read_again: Option<u64>,
}

fn size(ground: &Ground) -> io::Result<Finding> {
    const NAME: &str = "largest file that is completely resident after it was read";
    let Some(file) = cold_file(ground, ground.options.budget / 2)? else {
        return Ok(not_cold(NAME));
    };
    let most = ground.options.budget / 2 / STEP;
    let mut readings = Vec::new();
    let first_lost = first_true(0, most, |steps| {
        let reading = read_twice(&file, steps * STEP, ground.device)?;
        readings.push((steps * STEP, reading));
        Ok(reading.resident < steps * STEP)
    })?;
    let value = match first_lost {
        None => Value::BytesAtLeast(most * STEP),
        Some(1) => {
            let reason = format!("not even {STEP} bytes remain in memory");
            return Ok(Finding::by(Method::failed(NAME, reason, residents(&readings))));
        }
        Some(steps) => Value::Between { low: (steps - 1) * STEP, high: steps * STEP },
    };
    let by_pages = Method::found(NAME, value.clone(), residents(&readings));
    Ok(Finding::conclude(vec![by_pages, by_device(&readings, value)]))
}

fn residents(readings: &[(u64, Readings)]) -> Vec<Point> {
    readings.iter().map(|(length, reading)| Point { x: *length, y: reading.resident }).collect()
}

/// Confirms a value if the device's counters agree with it for every size that was tried. They also
/// count requests of other programs, so they can't refute a value.
fn by_device(readings: &[(u64, Readings)], value: Value) -> Method {
    const NAME: &str = "largest file that is not read from the device again";
    let told: Option<Vec<_>> = readings
        .iter()
        .map(|(length, reading)| Some((*length, reading.resident, reading.read_again?)))
        .collect();
    let Some(told) = told else {
        return Method::failed(NAME, "the file system is not on a single block device", Vec::new());
    };
    let series = told.iter().map(|(length, _, again)| Point { x: *length, y: *again }).collect();
    if told.iter().all(|(length, resident, again)| (resident == length) == (*again == 0)) {
        Method::found(NAME, value, series)
    } else {
        Method::failed(NAME, "the device also read for other programs", series)
    }
}

fn read_twice(file: &Scratch, length: u64, device: Option<DeviceNumber>) -> io::Result<Readings> {
    fadvise(&file.file, 0, None, Advice::DontNeed)?;
    // Disables read-ahead, because pages beyond the length would be counted too.
    fadvise(&file.file, 0, None, Advice::Random)?;
    file.read_all(length)?;
    let resident = cachestat(&file.file, 0)?.cached * rustix::param::page_size() as u64;
    let Some(device) = device else { return Ok(Readings { resident, read_again: None }) };
    let before = BlockCounters::read(device)?;
    file.read_all(length)?;
    let read = (BlockCounters::read(device)? - before).sectors_read * SECTOR;
    Ok(Readings { resident, read_again: Some(read) })
}

fn bound(ground: &Ground) -> io::Result<Finding> {
    const NAME: &str = "the smaller of the control group's memory limit and the free memory";
    let available = memory_available()?;
    let limit = match limit_here() {
        Ok(limit) => limit.unwrap_or(u64::MAX),
        Err(error) => {
            return Ok(Finding::none(
                NAME,
                format!("limits of control groups can't be read ({error})"),
            ));
        }
    };
    let word = if limit < available { "control-group" } else { "free-memory" };
    let series = vec![Point { x: limit, y: available }];
    let by_limit = Method::found(NAME, Value::Word(word), series);
    Ok(Finding::conclude(vec![by_limit, by_loss(ground, available)?]))
}

/// Concludes that there is a memory limit if pages are lost while much memory is free.
fn by_loss(ground: &Ground, available: u64) -> io::Result<Method> {
    const NAME: &str = "cached pages lost from a file although much memory is free";
    let length = ground.options.budget / 2 / STEP * STEP;
    if available < 4 * length {
        return Ok(Method::failed(NAME, "too little memory is free", Vec::new()));
    }
    let Some(file) = cold_file(ground, length)? else {
        return Ok(Method::failed(
            NAME,
            "the file's cached pages can't be dropped, or they belong to a lower file",
            Vec::new(),
        ));
    };
    let reading = read_twice(&file, length, None)?;
    let series = vec![Point { x: length, y: reading.resident }];
    Ok(if reading.resident < length {
        Method::found(NAME, Value::Word("control-group"), series)
    } else {
        Method::failed(NAME, format!("none of the {length} cached bytes were lost"), series)
    })
}
