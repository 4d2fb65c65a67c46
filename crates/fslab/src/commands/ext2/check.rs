//! `fslab ext2 check`: checks the consistency of a file system.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use fslab_ext2::check::{Finding, Report, check};
use serde_json::{Value, json};

use crate::leaves::open_device;

/// Arguments of `fslab ext2 check`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Print errors only
    #[arg(short, long, conflicts_with = "json")]
    quiet: bool,
    /// The image or device; nothing is written to it
    image: PathBuf,
}

impl Args {
    /// Prints a line for each finding, and the verdict.
    pub fn run(self) -> Result<()> {
        let shown = self.image.display().to_string();
        let device = Arc::new(open_device(&self.image, true)?);
        let report = check(device).with_context(|| shown.clone())?;
        if self.json {
            say!("{:#}", as_json(&report));
        } else if !self.quiet {
            show(&shown, &report);
        }
        if report.is_clean() {
            return Ok(());
        }
        bail!("{shown} is damaged; `fslab ext2 repair` or 'e2fsck {shown}' repairs it")
    }
}

fn as_json(report: &Report) -> Value {
    json!({
        "clean": report.is_clean(),
        "inodes": report.inodes,
        "directories": report.directories,
        "blocks": report.blocks,
        "findings": report.findings.iter().map(as_finding).collect::<Vec<_>>(),
        "has_more_findings": report.more,
    })
}

/// Converts a finding to JSON: a stable code for its kind, and a sentence.
pub(super) fn as_finding(finding: &Finding) -> Value {
    json!({
        "code": finding.problem.code(),
        "what": finding.to_string(),
        "beyond_e2fsck": finding.beyond_e2fsck,
    })
}

fn show(shown: &str, report: &Report) {
    for finding in &report.findings {
        let note =
            if finding.beyond_e2fsck { " (e2fsck does not report this as an error)" } else { "" };
        say!("{finding}{note}");
    }
    if report.more {
        say!("and more");
    }
    summary(shown, report);
}

fn summary(shown: &str, report: &Report) {
    let Report { inodes, directories, blocks, .. } = report;
    let verdict = if report.is_clean() { "clean" } else { "damaged" };
    say!("{shown}: {verdict}; {inodes} inodes in use ({directories} directories), {blocks} blocks");
}
