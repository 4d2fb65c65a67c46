//! `cache-replacement`: which pages remain in the page cache when more is read than fits into it.
//!
//! The prober enters a separate memory control group. There it reads one file twice, a second one
//! once, and then a third one that exceeds the group's memory. The remaining pages of each file
//! show how pages are replaced. Inspecting the cache with cachestat(2) and mincore(2) changes
//! nothing. Earlier methods had to read the files again (Burnett and others: Dust, 2002).

use std::io;
use std::ops::Range;

use fslab_sys::memory_bound::MemoryBound;
use fslab_sys::page_cache::resident_map;
use rustix::fs::{Advice, fadvise};

use super::read_ahead::{cold_file, not_cold};
use super::{Attribute, Wants};
use crate::finding::{Finding, Method, Point, Value};
use crate::ground::{Ground, Scratch};

pub(super) static SPEC: Attribute = Attribute {
    name: "cache-replacement",
    help: "pages that remain cached after a large file was read: twice-read (those read twice \
           before), latest (only the last pages read) or earliest (only the first)",
    wants: Wants::MemoryBound,
    find,
};

/// Memory limit of the group, in bytes.
const BOUND: u64 = 48 << 20;

/// Size of each of the two files read first, in bytes.
const BEFORE: u64 = 8 << 20;

/// Size of the large file in bytes: more than the group's memory.
const LARGE: u64 = 64 << 20;

/// Number of parts of the large file that are examined.
const PARTS: u64 = 8;

fn find(ground: &Ground) -> io::Result<Finding> {
    const NAME: &str = "remaining pages of a file read twice, a file read once, and a large file \
                        read last";
    let refuse = |reason: String| Ok(Finding::none(NAME, reason));
    if !ground.options.bound_memory {
        return refuse("limiting the memory of this process was not requested".to_owned());
    }
    if ground.options.budget < LARGE + 2 * BEFORE {
        return refuse(format!("needs a space budget (--budget) of {} bytes", LARGE + 2 * BEFORE));
    }
    let files = [cold_file(ground, BEFORE)?, cold_file(ground, BEFORE)?, cold_file(ground, LARGE)?];
    let [Some(twice), Some(once), Some(large)] = files else { return Ok(not_cold(NAME)) };
    let bound = match MemoryBound::enter(BOUND) {
        Ok(bound) => bound,
        Err(error) => return refuse(error.to_string()),
    };
    let survivors = scan(&twice, &once, &large);
    bound.leave().map_err(io::Error::other)?;
    Ok(Finding::by(conclude(NAME, &survivors?)))
}

/// The percentage of each file's pages that are still cached.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Survivors {
    twice: u64,
    once: u64,
    /// One percentage for each part of the large file, in reading order.
    large: Vec<u64>,
}

fn scan(twice: &Scratch, once: &Scratch, large: &Scratch) -> io::Result<Survivors> {
    for file in [twice, once, large] {
        // Disables read-ahead, which would load pages that were not requested.
        fadvise(&file.file, 0, None, Advice::Random)?;
    }
    twice.read_all(BEFORE)?;
    once.read_all(BEFORE)?;
    twice.read_all(BEFORE)?;
    large.read_all(LARGE)?;
    let part = LARGE / PARTS;
    let parts = (0..PARTS).map(|number| left(large, LARGE, number * part..(number + 1) * part));
    Ok(Survivors {
        twice: left(twice, BEFORE, 0..BEFORE)?,
        once: left(once, BEFORE, 0..BEFORE)?,
        large: parts.collect::<io::Result<_>>()?,
    })
}

/// Returns the percentage of a range's pages that are resident.
fn left(file: &Scratch, length: u64, range: Range<u64>) -> io::Result<u64> {
    let page = rustix::param::page_size() as u64;
    let map = resident_map(&file.file, length)?;
    let pages = &map[(range.start / page) as usize..(range.end / page) as usize];
    let resident = pages.iter().filter(|resident| **resident).count();
    Ok((100 * resident / pages.len().max(1)) as u64)
}

fn conclude(name: &'static str, survivors: &Survivors) -> Method {
    const MOST: u64 = 75;
    const FEW: u64 = 25;
    let Survivors { twice, once, large } = survivors;
    // The series contains the first two files, then the parts of the large file.
    let shares = [*twice, *once].into_iter().chain(large.iter().copied());
    let series = shares.enumerate().map(|(x, y)| Point { x: x as u64, y }).collect();
    let (Some(first), Some(last)) = (large.first(), large.last()) else {
        return Method::failed(name, "nothing was read", series);
    };
    match (*twice, *once, *first, *last) {
        (MOST.., ..=FEW, ..=FEW, MOST..) => Method::found(name, Value::Word("twice-read"), series),
        (..=FEW, ..=FEW, ..=FEW, MOST..) => Method::found(name, Value::Word("latest"), series),
        (MOST.., MOST.., MOST.., ..=FEW) => Method::found(name, Value::Word("earliest"), series),
        (MOST.., MOST.., MOST.., MOST..) => Method::failed(name, "nothing was replaced", series),
        _ => Method::failed(name, "the remaining pages match none of the known policies", series),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(twice: u64, once: u64, first: u64, last: u64, expected: Result<&'static str, &str>) {
        let survivors = Survivors { twice, once, large: vec![first, 50, last] };
        let outcome = conclude("", &survivors).outcome;
        assert_eq!(outcome, expected.map(Value::Word).map_err(str::to_owned));
    }

    #[test]
    fn replacement_order_is_inferred_from_remaining_pages() {
        check(100, 0, 0, 100, Ok("twice-read"));
        check(0, 0, 3, 99, Ok("latest"));
        check(100, 100, 100, 0, Ok("earliest"));
        check(50, 50, 50, 50, Err("the remaining pages match none of the known policies"));
        check(100, 100, 100, 100, Err("nothing was replaced"));
    }
}
