//! `fslab dataset show`: shows the manifest and the columns of a data set.

use std::path::PathBuf;

use anyhow::Result;
use fslab_dataset::{Column, Manifest};
use serde_json::json;

use super::{bytes_of, schema_of};
use crate::units::bytes;

/// Arguments of `fslab dataset show`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// The directory of the data set
    dataset: PathBuf,
}

impl Args {
    /// Prints the manifest and the columns.
    pub fn run(self) -> Result<()> {
        let manifest = Manifest::read(&self.dataset)?;
        let columns = schema_of(&manifest.kind)?.columns;
        if self.json {
            let list = columns.iter().map(|column| {
                let (kind, nullable) = (column.kind.name(), column.nullable);
                json!({"name": column.name, "type": kind, "nullable": nullable})
            });
            let list: Vec<_> = list.collect();
            let parts: Vec<_> = manifest
                .parts
                .iter()
                .map(|part| json!({"file": part.file, "rows": part.rows, "bytes": part.bytes}))
                .collect();
            say!(
                "{:#}",
                json!({
                    "kind": manifest.kind,
                    "partition": manifest.partition,
                    "facts": manifest.facts,
                    "rows": manifest.rows,
                    "bytes": bytes_of(&manifest),
                    "columns": list,
                    "parts": parts,
                })
            );
            return Ok(());
        }
        say!("kind: {}\nrows: {}", manifest.kind, manifest.rows);
        let (parts, size) = (manifest.parts.len(), bytes(bytes_of(&manifest)));
        say!("parts: {parts} by {} ({size})", manifest.partition);
        manifest.facts.iter().for_each(|(name, value)| say!("{name}: {value}"));
        columns.iter().for_each(|column| say!("  {}", line(column)));
        Ok(())
    }
}

fn line(column: &Column) -> String {
    let may = if column.nullable { ", may be null" } else { "" };
    format!("{}: {}{may}", column.name, column.kind.name())
}
