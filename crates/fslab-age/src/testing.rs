//! Checks that must succeed for any input, shared by fuzz targets and tests.
//!
//! Each check parses its input as a file of one of the formats that this crate reads. Random bytes
//! are almost never a valid Parquet file, so other checks convert them to rows; see `rows`.

mod rows;

use std::path::Path;

use crate::derive::{Options, derive};
use crate::diff::Diff;
use crate::image::{AgedImage, dump};
use crate::profile::geriatrix::{Ageing, GeriatrixGenerator};
use crate::snapshot::{Every, History, P9Dumps, SnapshotReader, import_csv};
use crate::verify::{Limits, verify};
use crate::workload::WorkloadReader;
use crate::{Error, Result};

pub use rows::{check_entries, check_operations};

/// Separates the three distribution files of Geriatrix in an input.
const SEPARATOR: u8 = b'=';

/// Maximum number of operations that are read from a generator.
const OPERATIONS: usize = 20_000;

/// Maximum size of a text used as a git log, in bytes; the limit is needed because each commit may
/// become a snapshot.
const LOG_BYTES_MAX: usize = 8 << 10;

/// Parses bytes as a trace of a Plan 9 file server. The result must be a one-line error or readable
/// snapshots.
///
/// # Panics
/// Panics if the result is neither.
pub fn check_p9trace(bytes: &[u8]) {
    within(bytes, |file, scratch| {
        let dumps = P9Dumps::read(&[file.to_owned()], scratch)?;
        for path in dumps.write(scratch)?.snapshots {
            snapshot(&path).unwrap_or_else(|error| panic!("unreadable imported snapshot: {error}"));
        }
        Ok(())
    });
}

/// Parses bytes as the distribution files of Geriatrix, separated by `=`.
///
/// # Panics
/// Panics if an error is not one line, or if operations are inconsistent.
pub fn check_geriatrix(bytes: &[u8]) {
    within(&[], |_file, scratch| {
        let names = ["age_distribution.txt", "size_distribution.txt", "dir_distribution.txt"];
        for (name, part) in names.iter().zip(bytes.split(|byte| *byte == SEPARATOR)) {
            let path = scratch.join(name);
            std::fs::write(&path, part).map_err(Error::file(&path))?;
        }
        let (volume_bytes, utilisation, owner) = (8 << 20, 0.5, (0, 0));
        let ageing = Ageing { volume_bytes, utilisation, days: 3, seed: 1, owner };
        let generator = GeriatrixGenerator::read(scratch, ageing)?;
        let mut population = crate::workload::Population::default();
        for operation in generator.take(OPERATIONS) {
            let answer = population.apply(&operation?);
            answer.unwrap_or_else(|error| panic!("inconsistent generated operation: {error}"));
        }
        Ok(())
    });
}

/// Parses bytes as the output of `git log`.
///
/// # Panics
/// Panics if an error is not one line, or if a snapshot can't be read.
pub fn check_git(bytes: &[u8]) {
    within(&[], |_file, scratch| {
        let history = History::of_log(&bytes[..bytes.len().min(LOG_BYTES_MAX)])?;
        for path in history.write(Every::Week, scratch, None)? {
            snapshot(&path).unwrap_or_else(|error| panic!("unreadable imported snapshot: {error}"));
        }
        Ok(())
    });
}

/// Parses bytes as a CSV list of files.
///
/// # Panics
/// Panics if an error is not one line, or if the snapshot can't be read.
pub fn check_csv(bytes: &[u8]) {
    within(bytes, |file, scratch| {
        let output = scratch.join("snapshot");
        import_csv(file, &output, None, 0)?;
        snapshot(&output).unwrap_or_else(|error| panic!("unreadable imported snapshot: {error}"));
        Ok(())
    });
}

/// Parses bytes as a snapshot and as a workload.
///
/// # Panics
/// Panics if an error is not one line.
pub fn check_tables(bytes: &[u8]) {
    within(bytes, |file, _scratch| snapshot(file));
    within(bytes, |file, _scratch| {
        WorkloadReader::open(file)?.try_for_each(|operation| operation.map(|_operation| ()))
    });
}

/// Parses bytes as an aged image.
///
/// # Panics
/// Panics if an error is not one line.
pub fn check_image(bytes: &[u8]) {
    within(bytes, |file, scratch| {
        let image = AgedImage::open(file)?;
        drop(dump(&image));
        let path = scratch.join("image");
        let output = std::fs::File::create(&path).map_err(Error::file(&path))?;
        image.unpack(&path, &output)
    });
}

/// Reads a snapshot with every function that accepts one: a diff, a verification and a derivation.
/// The derivation may fail, because directories of a damaged snapshot may contain themselves.
fn snapshot(path: &Path) -> Result<()> {
    let open = || SnapshotReader::open(path);
    let mut diff = Diff::new(open()?, open()?);
    if let Some(change) = diff.next() {
        panic!("a snapshot differs from itself: {:?}", change?);
    }
    let apart = verify(open()?, open()?, Limits::default())?;
    assert!(
        apart.iter().all(crate::verify::Finding::holds),
        "a snapshot differs from itself: {apart:?}"
    );
    let mut output = path.to_owned();
    output.as_mut_os_string().push(".workload");
    let (seed, rewrite_all) = (1, false);
    let (inodes_per_directory, short_lived) = (None, None);
    let options =
        Options { seed, rewrite_all, inodes_per_directory, short_lived, volume_bytes: 1 << 20 };
    derive(&[path.to_owned()], &output, &options)?;
    let mut population = crate::workload::Population::default();
    WorkloadReader::open(&output)?.try_for_each(|operation| population.apply(&operation?))
}

/// Runs `work` on a file with these bytes, in a temporary directory. If it returns an error, its
/// message must have one line.
fn within(bytes: &[u8], work: impl FnOnce(&Path, &Path) -> Result<()>) {
    let made = tempfile::Builder::new().prefix("fslab-age-fuzz-").tempdir();
    let scratch = made.unwrap_or_else(|error| panic!("can't make a scratch directory: {error}"));
    let file = scratch.path().join("input");
    std::fs::write(&file, bytes).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    if let Err(error) = work(&file, scratch.path()) {
        let message = error.to_string();
        assert!(!message.is_empty() && message.lines().count() == 1, "{message:?}");
    }
}
