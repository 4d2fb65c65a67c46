//! `access-time`: whether, and in which case, a read updates a file's access time.

use std::fs::{File, FileTimes};
use std::io::{self, Read};
use std::time::{Duration, SystemTime};

use super::{Attribute, in_directory};
use crate::finding::{Finding, Method, Value};
use crate::ground::Ground;

pub(super) static SPEC: Attribute = in_directory(
    "access-time",
    "strictatime: each read sets the time; relatime: only if it is older than the last change; \
           noatime: never",
    find,
);

const HOUR: Duration = Duration::from_hours(1);

fn find(ground: &Ground) -> io::Result<Finding> {
    const NAME: &str = "access time after a read, starting from an old and from a future time";
    let now = SystemTime::now();
    // Setting the access time also sets the change time to now. One of the two tested access times
    // is before the change time, and one is after it.
    let old = is_set_by_reading(ground, now - HOUR)?;
    let future = is_set_by_reading(ground, now + HOUR)?;
    Ok(Finding::by(match (old, future) {
        (true, true) => Method::found(NAME, Value::Word("strictatime"), Vec::new()),
        (true, false) => Method::found(NAME, Value::Word("relatime"), Vec::new()),
        (false, false) => Method::found(NAME, Value::Word("noatime"), Vec::new()),
        (false, true) => Method::failed(
            NAME,
            "a read updates an access time in the future, but not one in the past",
            Vec::new(),
        ),
    }))
}

fn is_set_by_reading(ground: &Ground, accessed: SystemTime) -> io::Result<bool> {
    let scratch = ground.fresh()?;
    scratch.fill(0, 1)?;
    scratch.file.set_times(FileTimes::new().set_accessed(accessed))?;
    let before = scratch.file.metadata()?.accessed()?;
    File::open(scratch.path())?.read_exact(&mut [0])?;
    Ok(std::fs::metadata(scratch.path())?.accessed()? != before)
}
