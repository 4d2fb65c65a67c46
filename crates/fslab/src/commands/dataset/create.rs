//! `fslab dataset create`: converts a snapshot, a workload, a trace or samples.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Result;
use fslab_age::snapshot::SnapshotReader;
use fslab_age::{Error, snapshot, workload};
use fslab_dataset::{Manifest, PARTS_MAX};

use crate::commands::dataset_counts::print;
use crate::exit::Code;
use crate::runtime;

/// Arguments of `fslab dataset create`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The directory of the new data set, which must not exist
    #[arg(short, long, value_name = "DIR")]
    output: PathBuf,
    /// The number of Parquet files. Two data sets can only be compared by `fslab age diff` if they
    /// have the same number
    #[arg(long, value_name = "COUNT", default_value_t = 16,
          value_parser = clap::value_parser!(u16).range(1..=PARTS_MAX as i64))]
    parts: u16,
    /// Print the counts as JSON
    #[arg(long)]
    json: bool,
    /// A snapshot or a workload of `fslab age`, the directory of a trace, or the samples of a
    /// comparison
    source: PathBuf,
}

impl Args {
    /// Writes the data set.
    pub fn run(self) -> Result<()> {
        let start = Instant::now();
        // The files of all parts are open at the same time.
        runtime::raise_descriptor_limit();
        let manifest = write(&self.source, &self.output, self.parts.into())?;
        print(&manifest, start, self.json);
        Ok(())
    }
}

/// Recognises the kind of the source, and writes the data set.
fn write(source: &Path, output: &Path, parts: usize) -> Result<Manifest> {
    if source.is_dir() {
        return Ok(fslab_trace::write_dataset(source, output, parts)?);
    }
    if !is_parquet(source)? {
        return Ok(fslab_report::dataset::write_dataset(source, output, parts)?);
    }
    match SnapshotReader::open(source) {
        Err(Error::Format { .. }) => {}
        opened => {
            drop(opened?);
            return Ok(snapshot::dataset::write_dataset(source, output, parts)?);
        }
    }
    match workload::dataset::write_dataset(source, output, parts) {
        Err(Error::Format { .. }) => bail_as!(
            BadInput,
            "{}: this is neither a snapshot nor a workload of fslab age; for a trace, give \
             its directory",
            source.display()
        ),
        written => Ok(written?),
    }
}

/// Returns whether a file begins like a Parquet file.
fn is_parquet(path: &Path) -> Result<bool> {
    let mut start = Vec::new();
    let read = File::open(path).and_then(|file| file.take(4).read_to_end(&mut start));
    let unusable = |error| Code::of_io(&error).error(format!("{}: {error}", path.display()));
    read.map_err(unusable)?;
    Ok(start == b"PAR1")
}
