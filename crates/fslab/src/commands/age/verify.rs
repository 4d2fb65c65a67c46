//! `fslab age verify`: compares an aged volume with a real one.

use std::path::PathBuf;

use anyhow::{Result, bail};
use fslab_age::snapshot::SnapshotReader;
use fslab_age::verify::{Finding, Limits, Moment, moments, over_time, verify};

use super::chart;
use super::snapshot::files_of;

/// Arguments of `fslab age verify`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Largest allowed difference of counts and bytes, as a share of the reference
    #[arg(long, default_value_t = Limits::default().share)]
    share: f64,
    /// Largest allowed difference between the cumulative distributions of file sizes
    #[arg(long, default_value_t = Limits::default().sizes)]
    sizes: f64,
    /// Largest allowed difference of utilisation and layout scores
    #[arg(long, default_value_t = Limits::default().difference)]
    difference: f64,
    /// Compare scores over time too. FILE is the output of `fslab age replay --json --score-every
    /// DAYS` or `fslab age simulate --json` for the aged volume
    #[arg(long, value_name = "FILE", requires = "earlier")]
    scores: Option<PathBuf>,
    /// With --scores: the snapshots of the real file system from which the workload was derived.
    /// They must contain layouts. A directory stands for all snapshots in it, sorted by name
    #[arg(long, value_name = "SNAPSHOTS", requires = "scores")]
    earlier: Option<PathBuf>,
    /// Print the findings as JSON
    #[arg(long)]
    json: bool,
    /// A snapshot of the real file system
    reference: PathBuf,
    /// A snapshot of the aged volume
    aged: PathBuf,
}

impl Args {
    /// Prints the findings. Fails if a figure is too far from the reference.
    pub fn run(self) -> Result<()> {
        let limits = Limits { share: self.share, sizes: self.sizes, difference: self.difference };
        let reference = SnapshotReader::open(&self.reference)?;
        let mut findings = verify(reference, SnapshotReader::open(&self.aged)?, limits)?;
        findings.extend(self.over_time(limits)?);
        if self.json {
            say!("{}", serde_json::to_string_pretty(&findings)?);
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

impl Args {
    fn over_time(&self, limits: Limits) -> Result<Option<Finding>> {
        let (Some(scores), Some(earlier)) = (&self.scores, &self.earlier) else { return Ok(None) };
        let snapshots = files_of(earlier)?;
        let real = moments(snapshots.iter().map(|path| SnapshotReader::open(path)))?;
        let aged: Vec<_> = chart::read(scores, None)?
            .into_iter()
            .take(1)
            .flat_map(|line| line.points)
            .map(|(day, score)| Moment { day, score })
            .collect();
        let Some(finding) = over_time(&real, &aged, limits) else {
            bail_as!(
                BadInput,
                "no day has a score in both {} and {}; take snapshots without --no-layout, and \
                 replay with --score-every",
                earlier.display(),
                scores.display()
            );
        };
        Ok(Some(finding))
    }
}

pub(super) fn print(finding: &Finding) {
    let Finding { what, reference, aged, distance, limit } = finding;
    let verdict = if finding.holds() { "near" } else { "FAR" };
    // Counts are printed without decimals, shares and scores with four.
    let is_count = reference.fract() == 0.0 && aged.fract() == 0.0 && reference.max(*aged) > 1.0;
    let places = if is_count { 0 } else { 4 };
    say!(
        "{verdict:<5} {what}: {reference:.places$} in the reference, {aged:.places$} aged; \
         {distance:.4} apart, {limit} allowed"
    );
}
