//! `fslab sca compact`: compacts the stored files of an unmounted lower directory, which frees
//! their garbage.

use std::path::{Path, PathBuf};

use anyhow::Result;
use fslab_sca::{Packed, Tool};

use super::walk;
use crate::exit::Code;
use crate::progress::{Progress, Verbosity};
use crate::units::{self, counted};

/// Arguments of `fslab sca compact`.
#[derive(Debug, clap::Args)]
pub struct Compact {
    /// Stored files, or directories of them, by their paths in the lower directory
    #[arg(required = true)]
    pub(super) paths: Vec<PathBuf>,
    /// Print the space that would be freed, without changing anything
    #[arg(short = 'n', long)]
    dry_run: bool,
    #[command(flatten)]
    verbosity: Verbosity,
}

#[derive(Default)]
struct Totals {
    compacted: u64,
    already: u64,
    given_up: u64,
    freed_bytes: u64,
}

impl Compact {
    /// Compacts the files. A file that can't be compacted is reported and left unchanged.
    pub fn run(&self) -> Result<()> {
        let mut totals = Totals::default();
        let progress = Progress::new("compacted", self.verbosity.quiet);
        let outcome = walk::each(&self.paths, &progress, |path, tool| {
            let freed = if self.dry_run {
                totals.expect(&tool)?
            } else {
                // Compaction locks the file, so the tool must release its own lock first.
                drop(tool);
                totals.compact(path, &progress)?
            };
            if self.verbosity.verbose
                && let Some(bytes) = freed
            {
                progress.print(|| say!("{}: {}", path.display(), units::bytes(bytes)));
            }
            Ok(())
        });
        drop(progress);
        if !self.verbosity.quiet {
            self.show(&totals);
        }
        let left = totals.given_up + outcome.failures();
        if left == 0 {
            return Ok(());
        }
        let code = if totals.given_up == 0 { outcome.first_code() } else { Code::Failure };
        let are = if left == 1 { "is" } else { "are" };
        Err(code.error(format!(
            "{} could not be compacted and {are} unchanged; see `fslab sca verify`",
            counted(left, "file")
        )))
    }

    fn show(&self, totals: &Totals) {
        let freed = units::bytes(totals.freed_bytes);
        let (files, already) = (counted(totals.compacted, "file"), totals.already);
        if self.dry_run {
            say!("{files} would be compacted, with {freed} of garbage");
            say!("no compaction needed for {}; nothing was changed", counted(already, "file"));
        } else {
            say!("{files} compacted, {freed} freed; not needed for {}", counted(already, "file"));
        }
    }
}

impl Totals {
    /// Counts a file that compaction would rewrite. Returns the bytes of its garbage; `None` if the
    /// file needs no compaction.
    fn expect(&mut self, tool: &Tool) -> Result<Option<u64>> {
        if !tool.gains_by_packing()? {
            self.already += 1;
            return Ok(None);
        }
        let bytes = tool.figures()?.garbage_bytes;
        self.compacted += 1;
        self.freed_bytes += bytes;
        Ok(Some(bytes))
    }

    /// Compacts a file. Returns the freed bytes, or `None` if the file needed no compaction.
    fn compact(&mut self, path: &Path, progress: &Progress) -> Result<Option<u64>> {
        let within = progress.within();
        let done = fslab_sca::pack(path, &|bytes| within.set(path, bytes))?;
        match done.outcome {
            Packed::Already => {
                self.already += 1;
                return Ok(None);
            }
            Packed::Now => self.compacted += 1,
            Packed::GivenUp => {
                self.given_up += 1;
                let shown = path.display();
                progress.print(|| eprintln!("fslab: {shown}: a part of the file can't be read"));
            }
        }
        let freed = done.before_bytes.saturating_sub(done.after_bytes);
        self.freed_bytes += freed;
        Ok(Some(freed))
    }
}
