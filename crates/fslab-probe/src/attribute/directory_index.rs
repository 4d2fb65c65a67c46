//! `directory-index`: whether finding a name costs more in a large directory than in a small one.
//!
//! To create a file, the file system first searches the directory for the name. Without an index,
//! this search gets slower with every name. Only searches for names that do not exist are measured.
//! Such a search must examine the whole directory if there is no index. It changes nothing, so it
//! can be repeated. The measured value is the kernel's processor time for this thread. With sixteen
//! times the names, this time grows sixteenfold or hardly at all, so noise can't be mistaken for
//! growth. If the growth is in between, the prober gives no answer.
//!
//! A second method uses the size of the directory. An index in hash order splits directory blocks,
//! so the directory becomes larger than its names require.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use rustix::time::{ClockId, clock_gettime};

use super::{Attribute, in_directory};
use crate::finding::{Finding, Method, Point, Value};
use crate::ground::Ground;

pub(super) static SPEC: Attribute = in_directory(
    "directory-index",
    "yes: a lookup costs about the same in a large directory; no: its cost grows with \
           the number of names",
    find,
);

/// Numbers of names in the directory at which the search is measured. The last is sixteen times the
/// first.
const SIZES: [u64; 3] = [512, 2048, 8192];

/// Number of searches that are timed together.
const SEARCHES: u64 = 200;

/// Number of repetitions; the fastest is used.
const ROUNDS: u32 = 9;

/// The factor by which the cost grows with sixteen times the names: its minimum without an index,
/// and its maximum with an index.
const LINEAR_LEAST: f64 = 4.0;
const INDEXED_MOST: f64 = 2.0;

/// Length of the names in bytes. The largest directory uses about a hundred blocks of 4 KiB without
/// an index.
const NAME_LENGTH: usize = 40;

fn find(ground: &Ground) -> io::Result<Finding> {
    const NAME: &str = "nanoseconds to look up a missing name, by number of names";
    if ground.options.gentle {
        return Ok(Finding::none(
            NAME,
            format!("creates {} names, so it is skipped by --gentle", SIZES[2]),
        ));
    }
    let directory = ground.fresh_path();
    fs::create_dir(&directory)?;
    let in_this_process = !ground.file_system().starts_with("fuse");
    let mut series = Vec::new();
    let mut made = 0;
    let mut space = Vec::new();
    for size in SIZES {
        while made < size {
            File::create_new(directory.join(name("there", made)))?;
            made += 1;
        }
        let cost = least_cost(&directory, size, in_this_process)?;
        series.push(Point { x: size, y: cost });
        space.push(Point { x: size, y: fs::metadata(&directory)?.len() });
    }
    fs::remove_dir_all(&directory)?;
    let by_cost = by_cost(NAME, series);
    let by_space = by_space(ground.file_system(), space);
    Ok(Finding::conclude(vec![by_cost, by_space]))
}

fn name(kind: &str, number: u64) -> String {
    format!("{kind}-{number:0width$}", width = NAME_LENGTH - kind.len() - 1)
}

/// Returns the smallest cost of a search in nanoseconds.
fn least_cost(directory: &Path, size: u64, in_this_process: bool) -> io::Result<u64> {
    // While a file system in user space works, this thread waits, so only elapsed time includes
    // that work.
    let clock = if in_this_process { ClockId::ThreadCPUTime } else { ClockId::Monotonic };
    let mut least = u64::MAX;
    for round in 0..u64::from(ROUNDS) {
        // Each search uses new names, because the kernel caches failed lookups. The paths are made
        // in advance, so that only the searches are timed.
        let number = |search| (size * u64::from(ROUNDS) + round) * SEARCHES + search;
        let paths: Vec<_> =
            (0..SEARCHES).map(|search| directory.join(name("gone", number(search)))).collect();
        let start = nanoseconds(clock)?;
        for path in &paths {
            search(path)?;
        }
        least = least.min((nanoseconds(clock)? - start) / SEARCHES);
    }
    Ok(least)
}

fn nanoseconds(clock: ClockId) -> io::Result<u64> {
    let now = clock_gettime(clock);
    let nanoseconds = i128::from(now.tv_sec) * 1_000_000_000 + i128::from(now.tv_nsec);
    u64::try_from(nanoseconds).map_err(io::Error::other)
}

fn search(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(_status) => Err(io::Error::other(format!(
            "{}: exists, although no process created it",
            path.display()
        ))),
    }
}

fn by_cost(name: &'static str, series: Vec<Point>) -> Method {
    let (Some(first), Some(last)) = (series.first(), series.last()) else {
        return Method::failed(name, "nothing was measured", series);
    };
    if first.y == 0 {
        return Method::failed(name, "processor time is reported too coarsely", series);
    }
    let growth = last.y as f64 / first.y as f64;
    if growth >= LINEAR_LEAST {
        Method::found(name, Value::Word("no"), series)
    } else if growth <= INDEXED_MOST {
        Method::found(name, Value::Word("yes"), series)
    } else {
        let reason = format!(
            "unclear: with sixteen times as many names, a lookup costs {growth:.1} times as much"
        );
        Method::failed(name, reason, series)
    }
}

/// Judges by the size of the directory. In ext2 and its successors, splitting full directory blocks
/// leaves many blocks half empty. In other file systems the size shows nothing about an index.
fn by_space(file_system: &str, series: Vec<Point>) -> Method {
    const NAME: &str = "size of the directory in bytes, by number of names";
    /// Size of a directory entry in bytes: inode, lengths, file type and name, padded to four
    /// bytes.
    const ENTRY: u64 = 8 + NAME_LENGTH as u64;
    if !file_system.starts_with("ext") {
        return Method::failed(
            NAME,
            "on this file system, the size of a directory does not reveal an index",
            series,
        );
    }
    let Some(last) = series.last().copied() else {
        return Method::failed(NAME, "nothing was measured", series);
    };
    // Without splits, only the end of a block is unused, because the next entry does not fit there.
    // This is at most a twentieth of the block.
    let word = if last.y > ENTRY * last.x * 115 / 100 { "yes" } else { "no" };
    Method::found(NAME, Value::Word(word), series)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(first: u64, last: u64) -> Result<Value, String> {
        by_cost("", vec![Point { x: 512, y: first }, Point { x: 8192, y: last }]).outcome
    }

    #[test]
    fn ambiguous_cost_growth_gives_no_answer() {
        assert_eq!(cost(5_000, 60_000), Ok(Value::Word("no")));
        assert_eq!(cost(1_000, 1_300), Ok(Value::Word("yes")));
        let between = "unclear: with sixteen times as many names, a lookup costs 3.0 times as much";
        assert_eq!(cost(1_000, 3_000), Err(between.to_owned()));
        assert!(cost(0, 3_000).is_err());
    }

    #[test]
    fn directory_size_reveals_an_index_only_on_ext() {
        let space = |name, bytes| by_space(name, vec![Point { x: 8192, y: bytes }]).outcome;
        assert_eq!(space("ext2", 8192 * 48 * 103 / 100), Ok(Value::Word("no")));
        assert_eq!(space("ext4", 8192 * 48 * 140 / 100), Ok(Value::Word("yes")));
        assert!(space("xfs", 8192 * 48).is_err());
    }

    #[test]
    fn generated_names_have_equal_length() {
        assert_eq!(name("there", 1).len(), NAME_LENGTH);
        assert_eq!(name("gone", 123_456).len(), NAME_LENGTH);
    }
}
