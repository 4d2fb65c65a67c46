//! `fslab sca check` checks the structure of stored files; `fslab sca verify` also checks the
//! checksums.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use fslab_sca::{Depth, Finding};
use serde_json::json;

use super::walk;
use crate::progress::{Progress, Verbosity};
use crate::units::counted;

/// Arguments of both commands.
#[derive(Debug, clap::Args)]
pub struct Verify {
    /// Stored files, or directories of them, by their paths in the lower directory
    #[arg(required = true)]
    pub(super) paths: Vec<PathBuf>,
    /// Print JSON, one object per line: each finding, then the totals
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    verbosity: Verbosity,
}

impl Verify {
    /// Checks each file to the given depth, and reports damage.
    pub fn run(&self, depth: Depth) -> Result<()> {
        let Verbosity { verbose, quiet } = self.verbosity;
        let done = if depth == Depth::Structure { "checked" } else { "verified" };
        let progress = Progress::new(done, quiet || self.json);
        let (within, mut damaged) = (progress.within(), 0_u64);
        let outcome = walk::each(&self.paths, &progress, |path, tool| {
            let share = |share| within.set_share(path, share, tool.stored_bytes());
            let findings = tool.check_and_report(depth, &share)?;
            damaged += u64::from(!findings.is_empty());
            progress.print(|| self.show(path, &findings, verbose && !self.json));
            Ok(())
        });
        drop(progress);
        let (stored, failed) = (outcome.stored_files, outcome.failures());
        if self.json {
            say!(
                "{}",
                json!({
                    "kind": "total",
                    "stored_files": stored,
                    "damaged_files": damaged,
                    "failed_files": failed,
                    "plain_files": outcome.plain_files,
                })
            );
        }
        match (damaged, failed) {
            (0, 0) => {
                if !quiet && !self.json {
                    self.show_success(done, stored, outcome.plain_files);
                }
                Ok(())
            }
            (0, _) => outcome.refuse_failures(done),
            _ => bail!(
                "{damaged} of {} damaged; run `fslab sca repair` to save the readable content",
                counted(stored, "stored file")
            ),
        }
    }

    fn show(&self, path: &Path, findings: &[Finding], shows_whole_files: bool) {
        for finding in findings {
            if self.json {
                say!(
                    "{}",
                    json!({
                        "kind": "finding",
                        "path": path.display().to_string(),
                        "offset": finding.offset,
                        "chunk": finding.chunk,
                        "what": finding.what,
                    })
                );
            } else {
                let chunk = finding.chunk.map(|chunk| format!(", chunk {chunk}"));
                let chunk = chunk.unwrap_or_default();
                say!("{}: offset {}{chunk}: {}", path.display(), finding.offset, finding.what);
            }
        }
        if findings.is_empty() && shows_whole_files {
            say!("{}: ok", path.display());
        }
    }

    fn show_success(&self, done: &str, stored_files: u64, plain_files: u64) {
        let others = match plain_files {
            0 => String::new(),
            others => format!("; not {done}: {} that no layer wrote", counted(others, "file")),
        };
        let found = if stored_files == 0 { "" } else { ", no damage found" };
        say!("{} {done}{found}{others}", counted(stored_files, "stored file"));
    }
}
