//! `fslab ext2 check`: whether a file system is whole, and if not, what is wrong with it.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use fslab_ext2::check::{Report, check};

use crate::leaves::open_device;

/// Arguments of `fslab ext2 check`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The image or device; nothing is written to it
    image: PathBuf,
}

impl Args {
    /// Prints a line for each finding, and the verdict.
    pub fn run(self) -> Result<()> {
        let shown = self.image.display().to_string();
        let device = Arc::new(open_device(&self.image, true)?);
        let report = check(device).with_context(|| shown.clone())?;
        for finding in &report.findings {
            let note = if finding.beyond_e2fsck { " (e2fsck does not count this)" } else { "" };
            say!("{finding}{note}");
        }
        if report.more {
            say!("and more");
        }
        summary(&shown, &report);
        if report.is_clean() {
            return Ok(());
        }
        bail!("{shown} is damaged; 'e2fsck {shown}' repairs it")
    }
}

fn summary(shown: &str, report: &Report) {
    let Report { inodes, directories, blocks, .. } = report;
    let verdict = if report.is_clean() { "clean" } else { "damaged" };
    say!("{shown}: {verdict}; {inodes} inodes in use ({directories} directories), {blocks} blocks");
}
