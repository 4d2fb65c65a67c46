//! `fslab age diff`: compares two snapshots.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::Result;
use fslab_age::diff::{Change, compare};
use fslab_age::snapshot::Entry;

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
    /// The earlier snapshot: a file, or a data set of `fslab dataset create`
    before: PathBuf,
    /// The later snapshot; also a data set, with as many parts, if the earlier one is a data set
    after: PathBuf,
}

impl Args {
    /// Prints the differences.
    pub fn run(self) -> Result<()> {
        let start = Instant::now();
        let summary = compare(&self.before, &self.after, |change| {
            if self.list {
                say!("{}", line(change));
            }
        })?;
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
