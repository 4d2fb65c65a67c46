//! Runs a share of a campaign.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use fslab_compare::{Host, Observer, Outcome, Plan, RunOptions};
use fslab_report::sample::{Block, Note, Record};
use fslab_report::{Cells, Choice, Share};
use fslab_sys::signals::Interrupt;
use jiff::Timestamp;

use crate::attempt::new_files;
use crate::campaign::Campaign;
use crate::erasable::Erasable;
use crate::error::{Error, Result};
use crate::format::Program;
use crate::host_lock::HostLock;
use crate::state::State;
use crate::writer::{publish, sync_directory, sync_file};

/// The settings for running a share.
pub struct ShareRun<'a> {
    /// The campaign.
    pub campaign: &'a Campaign,
    /// The share to run.
    pub share: Share,
    /// Whether blocks with failed or disturbed cells are run again.
    pub retry: bool,
    /// The directory of this host in which images and mount points are created.
    pub work_parent: PathBuf,
    /// This program.
    pub program: Program,
    /// Whether the program may differ from the one that made the campaign.
    pub allow_other_build: bool,
    /// The path of this host's list of devices.
    pub erasable: PathBuf,
    /// The lock of this host, already acquired.
    pub lock: &'a HostLock,
    /// The command that repeats the run, for the report.
    pub command: String,
    /// Mounts layers and makes in-process file systems.
    pub host: &'a dyn Host,
    /// The interrupt that stops the run.
    pub interrupt: Interrupt,
    /// Remarks for the report that are known before the run.
    pub remarks: Vec<String>,
}

/// The result of running a share.
#[derive(Debug)]
pub enum Done {
    /// All blocks of the share were already done.
    Nothing,
    /// Blocks were run.
    Ran {
        /// How the run ended.
        outcome: Outcome,
        /// The samples file.
        file: PathBuf,
    },
}

impl ShareRun<'_> {
    /// Runs the remaining blocks of the share and writes their samples to a new file. It is safe to
    /// kill the process and to run the share again: all complete blocks in the file are used.
    ///
    /// # Errors
    /// Fails before the first measurement if this build may not run the campaign, if an input has
    /// changed, or if a role has no device on this host. Fails later if the comparison fails or
    /// samples can't be made durable. Blocks that were finished before the error remain valid.
    pub fn run(mut self, observer: &mut dyn Observer) -> Result<Done> {
        if self.allow_other_build && self.program != self.campaign.frozen().program {
            let Program { version, blake3 } = &self.program;
            self.remarks.push(format!(
                "a share was not run by the build of fslab that made the campaign, but by fslab \
                 {version} (BLAKE3 {blake3})"
            ));
        } else {
            self.campaign.check_program(&self.program)?;
        }
        let plan = Erasable::read(&self.erasable)?.place(self.campaign.plan().clone())?;
        self.campaign.check_inputs()?;
        let left = State::of(self.campaign)?.left(self.share, self.retry);
        if left.is_empty() {
            return Ok(Done::Nothing);
        }
        let (part, whole) = new_files(self.campaign, self.share, Timestamp::now());
        let outcome = self.measure(&plan, left, &part, observer);
        match outcome {
            Ok(outcome) => {
                publish(&part, &whole)?;
                Ok(Done::Ran { outcome, file: whole })
            }
            Err(error) => {
                discard_without_blocks(&part);
                Err(error)
            }
        }
    }

    fn measure(
        &self,
        plan: &Plan,
        left: BTreeMap<String, BTreeSet<u32>>,
        samples: &Path,
        observer: &mut dyn Observer,
    ) -> Result<Outcome> {
        let frozen = self.campaign.frozen();
        let blocks: usize = left.values().map(BTreeSet::len).sum();
        let count = (blocks * frozen.targets.len()) as u64;
        let cells = Cells { blocks: Some(left), ..Cells::default() };
        let work_parent =
            fs::canonicalize(&self.work_parent).map_err(Error::file(&self.work_parent))?;
        let options = RunOptions {
            plan,
            seed: frozen.seed,
            choice: Choice {
                cells,
                reruns_max: frozen.reruns_max,
                work_parent: Some(work_parent),
                recordings: Vec::new(),
            },
            samples,
            resume: false,
            command: &self.command,
            host: self.host,
            interrupt: self.interrupt.clone(),
            remarks: self.remarks.clone(),
        };
        let mut durable =
            Durable { observer, samples, cells: count, interrupt: &self.interrupt, failure: None };
        let outcome = fslab_compare::run(options, &mut durable)?;
        match durable.failure {
            Some(failure) => Err(Error::file(samples)(failure)),
            None => Ok(outcome),
        }
    }
}

/// An observer that makes samples durable after each block.
struct Durable<'a> {
    observer: &'a mut dyn Observer,
    samples: &'a Path,
    /// The number of cells to run. The runner itself reports the number of cells in the whole plan.
    cells: u64,
    interrupt: &'a Interrupt,
    /// The first failure, which ends the run.
    failure: Option<io::Error>,
}

impl Observer for Durable<'_> {
    fn progress(&mut self, done: u64, _total: u64, next: &str) {
        self.observer.progress(done, self.cells, next);
    }

    fn note(&mut self, note: &Note) {
        self.observer.note(note);
    }

    fn block(&mut self, block: &Block) {
        let directory = self.samples.parent().unwrap_or(Path::new("."));
        let synced = sync_file(self.samples)
            .and_then(|()| sync_directory(directory).map_err(io::Error::other));
        if let Err(error) = synced {
            self.failure.get_or_insert(error);
            self.interrupt.raise();
        }
        self.observer.block(block);
    }
}

/// Removes the samples file of a failed run if the file contains no complete block.
fn discard_without_blocks(samples: &Path) {
    let has_blocks = fslab_report::sample::read_prefix(samples)
        .is_ok_and(|records| records.iter().any(|one| matches!(one, Record::Block(_))));
    if !has_blocks && let Err(error) = fs::remove_file(samples) {
        tracing::debug!(%error, "can't remove {}", samples.display());
    }
}
