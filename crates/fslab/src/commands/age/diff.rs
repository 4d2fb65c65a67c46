//! `fslab age diff`: compares two snapshots.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::Result;
use fslab_age::diff::{Change, Diff, Summary};
use fslab_age::snapshot::{Entry, SnapshotReader};

use crate::units::{bytes, duration};

/// Arguments of `fslab age diff`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Print a line for each difference
    #[arg(long, short_alias = 'l')]
    list: bool,
    /// Print the counts as JSON
    #[arg(long, conflicts_with = "list")]
    json: bool,
    /// The earlier snapshot
    before: PathBuf,
    /// The later snapshot
    after: PathBuf,
}

impl Args {
    /// Prints the differences.
    pub fn run(self) -> Result<()> {
        let start = Instant::now();
        let (before, after) =
            (SnapshotReader::open(&self.before)?, SnapshotReader::open(&self.after)?);
        let mut diff = Diff::new(before, after);
        let mut summary = Summary::default();
        for change in diff.by_ref() {
            let change = change?;
            summary.add(&change);
            if self.list {
                say!("{}", line(&change));
            }
        }
        summary.unchanged = diff.unchanged();
        if self.json {
            say!("{}", serde_json::to_string_pretty(&summary)?);
            return Ok(());
        }
        say!(
            "created {} ({}), deleted {} ({}), modified {}, grown {}, truncated {}, renamed {}, \
             other attributes {}, unchanged {}; {}",
            summary.created,
            bytes(summary.created_bytes),
            summary.deleted,
            bytes(summary.deleted_bytes),
            summary.modified,
            summary.grown,
            summary.truncated,
            summary.renamed,
            summary.attributes,
            summary.unchanged,
            duration(start.elapsed().as_nanos() as u64),
        );
        Ok(())
    }
}

fn line(change: &Change) -> String {
    let one = |sign: char, entry: &Entry| {
        format!("{sign} {} {} {}", entry.inode, entry.size, entry.name.bytes().escape_ascii())
    };
    match change {
        Change::Created(entry) => one('+', entry),
        Change::Deleted(entry) => one('-', entry),
        Change::Changed { before, after, what } => {
            let words = [
                (what.modified, "modified"),
                (what.grown, "grown"),
                (what.truncated, "truncated"),
                (what.renamed, "renamed"),
                (what.attributes, "attributes"),
            ];
            let words: Vec<_> = words.iter().filter(|(is, _)| *is).map(|(_, word)| *word).collect();
            let name = after.name.bytes().escape_ascii();
            format!(
                "~ {} {} -> {} {name}: {}",
                after.inode,
                before.size,
                after.size,
                words.join(", ")
            )
        }
    }
}
