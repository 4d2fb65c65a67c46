//! `block-size`: the smallest piece of a file that can contain data between holes.
//!
//! There are three methods. The first finds where the data around one written byte begins and ends
//! (SEEK_DATA, SEEK_HOLE). The second uses the length of the extent that FIEMAP reports. The third
//! counts the bytes written to the device when one byte is overwritten synchronously. A journal or
//! copy-on-write increases this count. So it is only an upper bound: it can confirm the size that
//! another method found, but can't determine a size.
//! `st_blksize` is not used: XFS returns 4096 for any block size.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};

use fslab_sys::block_counters::BlockCounters;
use rustix::fs::OFlags;

use super::{Attribute, Wants};
use crate::finding::{Finding, Method, Point, Value};
use crate::ground::{Ground, SECTOR, Scratch};

pub(super) static SPEC: Attribute = Attribute {
    name: "block-size",
    help: "the smallest unit in which a file's data is stored",
    wants: Wants::QuietDevice,
    find,
};

/// Offset of the written byte: aligned to any block size, with a hole before and after it.
const PLACE: u64 = 4 << 20;

/// Number of bytes that are overwritten, one at a time. The smallest count is used.
const OVERWRITES: u64 = 16;

fn find(ground: &Ground) -> io::Result<Finding> {
    let scratch = ground.one_byte(PLACE)?;
    let holes = by_holes(&scratch)?;
    let known = holes.outcome.clone().ok();
    Ok(Finding::conclude(vec![holes, by_extent(&scratch), by_device(ground, known.as_ref())?]))
}

fn by_holes(scratch: &Scratch) -> io::Result<Method> {
    const NAME: &str = "length of the data around one byte in a hole";
    let Some(data) = scratch.data_after(0)? else {
        return Ok(Method::failed(
            NAME,
            "SEEK_DATA finds no data in a file that contains some",
            Vec::new(),
        ));
    };
    let hole = scratch.hole_after(data)?.unwrap_or(2 * PLACE);
    let series = vec![Point { x: data, y: hole }];
    if data == 0 || hole == 2 * PLACE {
        return Ok(Method::failed(
            NAME,
            "SEEK_DATA and SEEK_HOLE find no hole around the data",
            series,
        ));
    }
    Ok(Method::found(NAME, Value::Bytes(hole - data), series))
}

fn by_extent(scratch: &Scratch) -> Method {
    const NAME: &str = "length of the extent around one byte in a hole";
    match scratch.extents().as_deref() {
        Ok([extent]) => {
            let series = vec![Point { x: extent.fe_logical, y: extent.fe_length }];
            Method::found(NAME, Value::Bytes(extent.fe_length), series)
        }
        Ok([]) => Method::failed(NAME, "the file has no extent", Vec::new()),
        Ok(_) => {
            Method::failed(NAME, "a file with one byte of data has several extents", Vec::new())
        }
        Err(error) => {
            Method::failed(NAME, format!("extents are not reported ({error})"), Vec::new())
        }
    }
}

/// Confirms `known`, the size that another method found, or gives no value.
fn by_device(ground: &Ground, known: Option<&Value>) -> io::Result<Method> {
    const NAME: &str = "smallest number of bytes written to the device for one changed byte";
    let Some(device) = ground.device else {
        return Ok(Method::failed(
            NAME,
            "the file system is not on a single block device",
            Vec::new(),
        ));
    };
    let scratch = ground.stored(OVERWRITES << 16)?;
    let synchronous = i32::try_from(OFlags::DSYNC.bits()).map_err(io::Error::other)?;
    let file = OpenOptions::new().write(true).custom_flags(synchronous).open(scratch.path())?;
    let mut series = Vec::new();
    for number in 0..OVERWRITES {
        let before = BlockCounters::read(device)?;
        file.write_all_at(b"x", number << 16)?;
        let after = BlockCounters::read(device)?;
        series.push(Point { x: number, y: (after - before).sectors_written * SECTOR });
    }
    let least = series.iter().map(|point| point.y).filter(|bytes| *bytes > 0).min();
    Ok(match least {
        Some(bytes) if known == Some(&Value::Bytes(bytes)) => {
            Method::found(NAME, Value::Bytes(bytes), series)
        }
        Some(bytes) => Method::failed(
            NAME,
            format!("{bytes} bytes, which is not the length found with SEEK_DATA and SEEK_HOLE"),
            series,
        ),
        None => Method::failed(NAME, "the device's counters show no writes", series),
    })
}
