//! `fslab dataset check`: reads a whole data set.

use std::path::{Path, PathBuf};

use anyhow::Result;
use fslab_age::snapshot::dataset::SnapshotDataset;
use fslab_dataset::{Manifest, PartReader};
use serde_json::json;

use super::schema_of;
use crate::commands::dataset_counts::bytes_of;
use crate::progress::Progress;
use crate::units::{bytes, counted};

/// Arguments of `fslab dataset check`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Print the counts as JSON
    #[arg(long)]
    json: bool,
    /// The directory of the data set
    dataset: PathBuf,
}

impl Args {
    /// Compares lengths, hashes, columns and rows with the manifest. Fails at the first
    /// difference.
    pub fn run(self) -> Result<()> {
        let directory = &self.dataset;
        let manifest = Manifest::read(directory)?;
        let progress = Progress::new("checked", self.json);
        progress.expect(manifest.parts.len() as u64, bytes_of(&manifest));
        for (number, part) in manifest.parts.iter().enumerate() {
            part.check_hash(directory)?;
            check_rows(directory, &manifest, number)?;
            progress.add(&directory.join(&part.file), part.bytes);
        }
        progress.finish();
        let (parts, rows, bytes_all) = (manifest.parts.len(), manifest.rows, bytes_of(&manifest));
        if self.json {
            let kind = &manifest.kind;
            let counts = json!({"kind": kind, "rows": rows, "parts": parts, "bytes": bytes_all});
            say!("{counts:#}");
            return Ok(());
        }
        say!(
            "{} and {} of a {} checked ({}): no damage",
            counted(parts as u64, "part"),
            counted(rows, "row"),
            manifest.kind,
            bytes(bytes_all)
        );
        Ok(())
    }
}

/// Reads all rows of a part. In a snapshot, it also checks the values and the order of the rows,
/// and that each row is in the right part.
fn check_rows(directory: &Path, manifest: &Manifest, part: usize) -> Result<()> {
    if manifest.kind == "snapshot" {
        let mut entries = SnapshotDataset::open(directory)?.part(part)?;
        return Ok(entries.try_for_each(|entry| entry.map(|_entry| ()))?);
    }
    let schema = schema_of(&manifest.kind)?;
    let mut reader = PartReader::open(directory, manifest, part, &schema)?;
    while reader.next_group()?.is_some() {}
    Ok(())
}
