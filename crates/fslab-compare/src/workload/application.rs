//! Shared parts of workloads that run applications: finding programs, and making trees of files.

use std::fs;
use std::path::{Path, PathBuf};

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

use super::content::{self, Pool};
use super::{DefaultValue, Parameter};
use crate::error::{Error, Result};
use fslab_report::sample::{Better, OwnMetric};
use fslab_sys::usage::Instant;

/// A program that a workload runs, with its Debian package.
pub(super) type Needed = (&'static str, &'static str);

/// Directories of administration programs, searched even if `PATH` does not include them.
const MORE_DIRECTORIES: [&str; 2] = ["/usr/sbin", "/sbin"];

/// Parameter for the number of files in a generated tree.
pub(super) const FILES: Parameter =
    Parameter::count("files", "number of files in a generated tree", 2000);

/// Parameter for the source tree.
pub(super) const SOURCE: Parameter = Parameter {
    name: "source",
    help: "directory with the files to use; leave empty to generate files from the seed",
    default: DefaultValue::Text(""),
};

/// Returns the path of a program, or `None` if it is not installed.
pub(super) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let more = MORE_DIRECTORIES.iter().map(PathBuf::from);
    let mut directories = std::env::split_paths(&path).chain(more);
    directories.find_map(|directory| {
        Some(directory.join(program)).filter(|path| path.is_absolute() && path.is_file())
    })
}

/// Checks that all of these programs are installed.
///
/// # Errors
/// Returns [`Error::MissingProgram`] for the first missing program.
pub(super) fn require(workload: &'static str, programs: &[Needed]) -> Result<()> {
    match programs.iter().find(|(program, _)| find(program).is_none()) {
        None => Ok(()),
        Some((program, package)) => Err(Error::MissingProgram { workload, program, package }),
    }
}

/// Converts words into a command line.
pub(super) fn words<const N: usize>(words: [&str; N]) -> Vec<String> {
    words.map(str::to_owned).into()
}

/// Converts a path into a word of a command line.
///
/// # Errors
/// Fails if the path is not UTF-8, which options of the programs can't contain.
pub(super) fn word(path: &Path) -> Result<String> {
    path.to_str().map(str::to_owned).ok_or_else(|| {
        Error::Failed(format!(
            "{}: the path is not UTF-8; choose another directory",
            path.display()
        ))
    })
}

/// Returns the transactions per second since `since`, and the mean time of a transaction.
pub(super) fn rates(transactions: u64, since: Instant) -> [OwnMetric; 2] {
    let each = since.elapsed().as_secs_f64() / transactions.max(1) as f64;
    [
        OwnMetric {
            name: "tps".to_owned(),
            value: each.recip(),
            unit: "1/s".to_owned(),
            better: Better::More,
        },
        OwnMetric {
            name: "latency-mean".to_owned(),
            value: each,
            unit: "s".to_owned(),
            better: Better::Less,
        },
    ]
}

/// The files of a generated tree. As in source trees, most are small and some are large.
#[derive(Clone, Copy, Debug)]
pub(super) struct MadeTree {
    pub seed: u64,
    pub files: u64,
}

/// The number of files in a directory.
const PER_DIRECTORY: u64 = 25;

/// The binary logarithm of the largest file size.
const LARGEST_LOG: f64 = 17.0;

impl MadeTree {
    /// Writes the tree into a directory.
    pub fn write(self, directory: &Path) -> Result<()> {
        let pool = Pool::of(content::make("text", self.seed, 2 << LARGEST_LOG as u32));
        for number in 0..self.files {
            let path = directory.join(Self::path(number));
            if let Some(parent) = path.parent() {
                fs::create_dir_all(parent).map_err(Error::file(parent))?;
            }
            fs::write(&path, self.content(&pool, number)).map_err(Error::file(&path))?;
        }
        Ok(())
    }

    /// Returns the path of a file.
    pub fn path(number: u64) -> PathBuf {
        let directory = number / PER_DIRECTORY;
        format!("part-{}/section-{directory}/file-{number}.txt", directory / 10).into()
    }

    fn content(self, pool: &Pool, number: u64) -> &[u8] {
        let mut random = Pcg64::seed_from_u64(self.seed ^ (number << 16));
        // The mean of two draws gives sizes from 1 byte to 128 KiB with a median of about 2 KiB.
        let log = (random.random::<f64>() + random.random::<f64>()) / 2.0 * LARGEST_LOG;
        pool.piece(number, (log + 2.0).min(LARGEST_LOG).exp2() as usize)
    }
}
