//! `delayed-allocation`: whether blocks are allocated only when data is written back.

use std::io;

use fiemap::{Fiemap, FiemapExtentFlags, FiemapFlags};

use super::{Attribute, in_directory};
use crate::finding::{Finding, Method, Point, Value};
use crate::ground::Ground;

pub(super) static SPEC: Attribute = in_directory(
    "delayed-allocation",
    "yes: blocks are chosen when data is written back; no: when it is written",
    find,
);

/// File size in bytes, so small that the file is not written back at once.
const LENGTH: u64 = 256 << 10;

fn find(ground: &Ground) -> io::Result<Finding> {
    const NAME: &str = "bytes with a disk address in FIEMAP before writeback";
    let scratch = ground.fresh()?;
    scratch.fill(0, LENGTH)?;
    let mut placed = 0;
    for extent in Fiemap::with_flags(&scratch.file, FiemapFlags::empty()) {
        let extent = match extent {
            Ok(extent) => extent,
            Err(error) => {
                return Ok(Finding::none(NAME, format!("extents are not reported ({error})")));
            }
        };
        if !extent.fe_flags.contains(FiemapExtentFlags::DELALLOC) {
            placed += extent.fe_length;
        }
    }
    let series = vec![Point { x: LENGTH, y: placed }];
    Ok(Finding::by(match placed {
        0 => Method::found(NAME, Value::Word("yes"), series),
        LENGTH.. => Method::found(NAME, Value::Word("no"), series),
        _ => Method::failed(NAME, "a part of the file had already been written back", series),
    }))
}
