//! Reads the three distribution files of Geriatrix. Each file contains its number of rows, then the
//! rows, then optional text.

use std::path::Path;

use crate::error::{Error, Result};

/// Maximum number of rows in a distribution.
const ROWS_MAX: usize = 10_000;

/// Maximum size of a distribution file in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

const DEPTH_MAX: u64 = 200;

/// Maximum number of directories at one depth.
const DIRECTORIES_MAX: u64 = 1_000_000;

/// A value and its share of all files.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bucket {
    /// An upper bound of ages, in any unit, or a size in bytes.
    pub value: f64,
    /// Share of all files, from 0 to 1. The shares of a distribution sum to 1.
    pub share: f64,
}

/// A depth, its share of all files, and its number of directories.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Depth {
    /// The depth; files in the root have depth 1.
    pub depth: u64,
    /// Share of all files, from 0 to 1. The shares of all depths sum to 1.
    pub share: f64,
    /// Number of directories, at least 1; always 1 for the root.
    pub directories: u64,
}

/// The requested distributions of files.
#[derive(Clone, Debug, PartialEq)]
pub struct Distributions {
    /// Upper bounds of ages in any unit, each with the share of files between the previous bound
    /// and this one.
    pub ages: Vec<Bucket>,
    /// Sizes in bytes.
    pub sizes: Vec<Bucket>,
    /// Depths; only the root directory if `dir_distribution.txt` does not exist.
    pub depths: Vec<Depth>,
}

impl Distributions {
    /// Reads `age_distribution.txt`, `size_distribution.txt` and, if it exists,
    /// `dir_distribution.txt` from a directory. Geriatrix uses these file names for its profiles.
    ///
    /// # Errors
    /// Fails at the first invalid line, and on I/O errors.
    pub fn read(directory: &Path) -> Result<Self> {
        let ages = buckets(&directory.join("age_distribution.txt"))?;
        let sizes = buckets(&directory.join("size_distribution.txt"))?;
        let path = directory.join("dir_distribution.txt");
        let is_there = path.try_exists().map_err(Error::file(&path))?;
        let root = Depth { depth: 1, share: 1.0, directories: 1 };
        let depths = if is_there { depths(&path)? } else { vec![root] };
        Ok(Self { ages, sizes, depths })
    }
}

fn buckets(path: &Path) -> Result<Vec<Bucket>> {
    let rows = rows(path, 2)?;
    let total = total(path, &rows)?;
    let bucket = |row: &Row| Bucket { value: row.numbers[0], share: row.numbers[1] / total };
    Ok(rows.iter().map(bucket).collect())
}

fn depths(path: &Path) -> Result<Vec<Depth>> {
    let rows = rows(path, 3)?;
    let total = total(path, &rows)?;
    let depth = |row: &Row| {
        let whole = |number: f64, most: u64| {
            (number.fract() == 0.0 && (1.0..=most as f64).contains(&number))
                .then_some(number as u64)
        };
        let (found, directories) =
            (whole(row.numbers[0], DEPTH_MAX), whole(row.numbers[2], DIRECTORIES_MAX));
        let what = "a depth must be from 1 to 200 and must have from 1 to 1,000,000 directories";
        let wrong = || wrong(path, row.line, what);
        let (depth, directories) = found.zip(directories).ok_or_else(wrong)?;
        let directories = if depth == 1 { 1 } else { directories };
        Ok(Depth { depth, share: row.numbers[1] / total, directories })
    };
    rows.iter().map(depth).collect()
}

struct Row {
    line: u64,
    numbers: Vec<f64>,
}

/// Returns the rows of a file. The first numbers of successive rows must increase.
fn rows(path: &Path, columns: usize) -> Result<Vec<Row>> {
    let length = path.metadata().map_err(Error::file(path))?.len();
    if length > FILE_BYTES_MAX {
        return Err(wrong(path, 1, "the file is larger than 1 MiB, the limit for a distribution"));
    }
    let text = std::fs::read_to_string(path).map_err(Error::file(path))?;
    let mut lines = (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty());
    let count = lines.next().and_then(|(_, line)| line.trim().parse::<usize>().ok());
    let count = count.filter(|count| (1..=ROWS_MAX).contains(count));
    let count = count.ok_or_else(|| wrong(path, 1, "the first line must be a number of rows"))?;
    let mut rows: Vec<Row> = Vec::new();
    for (line, text) in lines.take(count) {
        let numbers: Vec<f64> =
            text.split_whitespace().map_while(|word| word.parse().ok()).collect();
        let fits = numbers.len() == columns
            && numbers.iter().all(|number| number.is_finite() && *number >= 0.0)
            && rows.last().is_none_or(|last| last.numbers[0] < numbers[0]);
        if !fits {
            let what = "each row needs a value above the previous row's, a weight and, for depths, \
                        the number of directories";
            return Err(wrong(path, line, what));
        }
        rows.push(Row { line, numbers });
    }
    if rows.len() == count {
        return Ok(rows);
    }
    Err(wrong(path, 1, "there are fewer rows than the first line states"))
}

/// Returns the sum of the weights.
fn total(path: &Path, rows: &[Row]) -> Result<f64> {
    let total: f64 = rows.iter().map(|row| row.numbers[1]).sum();
    let last = rows.last().map_or(0.0, |row| row.numbers[0]);
    if total > 0.0 && total.is_finite() && last > 0.0 {
        return Ok(total);
    }
    Err(wrong(path, 2, "the last value and at least one weight must be above 0"))
}

fn wrong(path: &Path, line: u64, what: &str) -> Error {
    Error::Line { path: path.to_owned(), line, what: what.to_owned() }
}
