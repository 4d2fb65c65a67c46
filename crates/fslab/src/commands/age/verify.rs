//! `fslab age verify`: how near an aged volume comes to a real one.

use std::path::PathBuf;

use anyhow::{Result, bail};
use fslab_age::snapshot::SnapshotReader;
use fslab_age::verify::{Finding, Limits, verify};

/// Arguments of `fslab age verify`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// How far counts and bytes may be apart, as a share of the reference
    #[arg(long, default_value_t = Limits::default().share)]
    share: f64,
    /// How far the cumulative shares of sizes may be apart
    #[arg(long, default_value_t = Limits::default().sizes)]
    sizes: f64,
    /// How far utilisation and layout scores may be apart
    #[arg(long, default_value_t = Limits::default().difference)]
    difference: f64,
    /// Print the findings as JSON
    #[arg(long)]
    json: bool,
    /// A snapshot of the real file system
    reference: PathBuf,
    /// A snapshot of the aged volume
    aged: PathBuf,
}

impl Args {
    /// Prints the findings; fails where they are too far apart.
    pub fn run(self) -> Result<()> {
        let limits = Limits { share: self.share, sizes: self.sizes, difference: self.difference };
        let reference = SnapshotReader::open(&self.reference)?;
        let findings = verify(reference, SnapshotReader::open(&self.aged)?, limits)?;
        if self.json {
            println!("{}", serde_json::to_string_pretty(&findings)?);
        } else {
            findings.iter().for_each(print);
        }
        let far = findings.iter().filter(|finding| !finding.holds()).count();
        if far > 0 {
            bail!("{far} of {} figures are too far from the reference", findings.len());
        }
        Ok(())
    }
}

fn print(finding: &Finding) {
    let Finding { what, reference, aged, distance, limit } = finding;
    let verdict = if finding.holds() { "near" } else { "FAR" };
    println!(
        "{verdict:<5} {what}: {reference:.4} in the reference, {aged:.4} aged; {distance:.4} \
         apart, {limit} allowed"
    );
}
