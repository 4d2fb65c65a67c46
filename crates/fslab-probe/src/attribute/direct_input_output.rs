//! `direct-io-offset`, `direct-io-memory`: the alignment of offsets and addresses that direct I/O
//! requires.

use std::fs::File;
use std::io;

use super::{Attribute, in_directory};
use crate::finding::{Finding, Method, Point, Value};
use crate::ground::Ground;

pub(super) static OFFSET: Attribute = in_directory(
    "direct-io-offset",
    "alignment that direct reads need for offsets and lengths",
    |ground| find(ground, |alignment| (LARGEST, alignment)),
);

pub(super) static MEMORY: Attribute = in_directory(
    "direct-io-memory",
    "alignment that direct reads need for memory addresses",
    |ground| find(ground, |alignment| (alignment, LARGEST)),
);

/// The largest alignment that is tried; no device requires more.
const LARGEST: usize = 64 << 10;

fn find(ground: &Ground, pair: fn(usize) -> (usize, usize)) -> io::Result<Finding> {
    const NAME: &str = "smallest alignment with which a direct read succeeds";
    let scratch = ground.stored(4 * LARGEST as u64)?;
    let file = match scratch.open_direct() {
        Ok(file) => file,
        Err(error) => {
            return Ok(Finding::none(
                NAME,
                format!("files can't be opened with O_DIRECT ({error})"),
            ));
        }
    };
    let mut series = Vec::new();
    let mut alignment = LARGEST;
    let mut least = None;
    while alignment >= 1 {
        let (memory, offset) = pair(alignment);
        let read = try_read(&file, memory, offset);
        series.push(Point { x: alignment as u64, y: read.into() });
        if !read {
            break;
        }
        least = Some(alignment as u64);
        alignment /= 2;
    }
    Ok(Finding::by(match least {
        // Btrfs reads through the cache if the alignment does not suffice, and reports no alignment
        // in statx.
        Some(1) => Method::failed(
            NAME,
            "any alignment works, so these reads go through the page cache",
            series,
        ),
        Some(least) => Method::found(NAME, Value::Bytes(least), series),
        None => Method::failed(NAME, "no direct read succeeds", series),
    }))
}

/// Reads with an offset and a memory address that are aligned to exactly these powers of two.
/// Returns whether the read succeeds.
fn try_read(file: &File, memory: usize, offset: usize) -> bool {
    let mut buffer = vec![0_u8; 4 * LARGEST];
    let misaligned = |alignment: usize| if alignment == LARGEST { 0 } else { alignment };
    let to_aligned = buffer.as_ptr().align_offset(LARGEST);
    let start = to_aligned + misaligned(memory);
    let length = if offset == LARGEST { LARGEST } else { offset };
    let read =
        rustix::io::pread(file, &mut buffer[start..start + length], misaligned(offset) as u64);
    read == Ok(length)
}
