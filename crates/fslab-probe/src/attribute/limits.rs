//! `file-size-max`, `links-max`: the largest file and the largest number of links. They are found
//! by trying; the limits that the file system reports are not used.

use std::os::unix::fs::FileExt;
use std::{fs, io};

use rustix::process::{Resource, getrlimit};

use super::{Attribute, in_directory};
use crate::finding::{Finding, Method, Point, Value};
use crate::ground::Ground;
use crate::search::first_true;

pub(super) static FILE_SIZE: Attribute =
    in_directory("file-size-max", "maximum size of a file in bytes", file_size);

pub(super) static LINKS: Attribute =
    in_directory("links-max", "maximum number of names of one file", links);

/// The maximum file offset, a signed 64-bit integer.
const OFFSET_MAX: u64 = i64::MAX as u64;

/// Maximum number of links that are tried; some file systems permit two billion.
const LINKS_TRIED: u64 = 70_000;

fn file_size(ground: &Ground) -> io::Result<Finding> {
    let own_limit = getrlimit(Resource::Fsize).current;
    if let Some(limit) = own_limit {
        return Ok(Finding::none(
            "",
            format!("this process must not create files larger than {limit} bytes (RLIMIT_FSIZE)"),
        ));
    }
    let (largest, series) = by_truncate(ground)?;
    let truncate =
        Method::found("largest size that truncate accepts", Value::Bytes(largest), series);
    Ok(Finding::conclude(vec![truncate, by_write(ground, largest)?]))
}

/// Returns the largest size that truncate accepts, and the measured points.
pub(super) fn by_truncate(ground: &Ground) -> io::Result<(u64, Vec<Point>)> {
    let mut series = Vec::new();
    let first_refused = first_true(0, OFFSET_MAX, |length| {
        let scratch = ground.fresh()?;
        let refused = scratch.file.set_len(length).is_err();
        series.push(Point { x: length, y: (!refused).into() });
        Ok(refused)
    })?;
    Ok((first_refused.map_or(OFFSET_MAX, |first_refused| first_refused - 1), series))
}

/// Writes the last byte of the largest file and tries to write one more.
fn by_write(ground: &Ground, largest: u64) -> io::Result<Method> {
    const NAME: &str = "largest file size that write accepts";
    let scratch = ground.fresh()?;
    if let Err(error) = scratch.file.write_all_at(b"x", largest - 1) {
        let reason = format!("the last byte can't be written ({error})");
        return Ok(Method::failed(NAME, reason, Vec::new()));
    }
    let series = vec![Point { x: largest, y: 1 }];
    if largest < OFFSET_MAX && scratch.file.write_all_at(b"x", largest).is_ok() {
        let reason = "write accepts a larger file size than truncate".to_owned();
        return Ok(Method::failed(NAME, reason, series));
    }
    Ok(Method::found(NAME, Value::Bytes(largest), series))
}

fn links(ground: &Ground) -> io::Result<Finding> {
    const NAME: &str = "number of names of a file when one more name is refused";
    if ground.options.gentle {
        return Ok(Finding::none(
            NAME,
            format!("creates up to {LINKS_TRIED} names, so it is skipped by --gentle"),
        ));
    }
    let scratch = ground.fresh()?;
    // The links are in a separate directory, which can be removed as a whole.
    let directory = ground.fresh_path();
    fs::create_dir(&directory)?;
    let mut refusal = None;
    let mut names = 1;
    while refusal.is_none() && names < LINKS_TRIED {
        match fs::hard_link(scratch.path(), directory.join(names.to_string())) {
            Ok(()) => names += 1,
            Err(error) => refusal = Some(error),
        }
    }
    fs::remove_dir_all(&directory)?;
    let series = vec![Point { x: names, y: refusal.is_none().into() }];
    Ok(Finding::by(match refusal {
        None => Method::found(NAME, Value::AtLeast(LINKS_TRIED), series),
        Some(error) if error.kind() == io::ErrorKind::TooManyLinks => {
            Method::found(NAME, Value::Count(names), series)
        }
        Some(error) => Method::failed(
            NAME,
            format!("a name was refused for a reason other than the number of names: {error}"),
            series,
        ),
    }))
}
