//! Runs a plan: randomised complete blocks, each target fresh, each sample written at once.
//!
//! A *round* runs every workload once on every target. Within a round, a workload's targets
//! follow each other directly, in an order drawn from the seed: what changes slowly on the
//! machine then meets them all alike, and the ratios of one round can be paired.

mod session;

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fslab_sys::signals::Interrupt;
use fslab_sys::usage::Instant;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64;

use crate::error::{Error, Result};
use crate::host::Host;
use crate::plan::{Base, Plan, TargetKind, TargetPlan};
use crate::provenance::Provenance;
use crate::sample::{End, EndReason, Note, NoteKind, Record, Sample, Writer};
use crate::target::work_directory::{WorkDirectory, check_space};
use crate::target::{self, Workshop};
use crate::workload::{Preparation, Workload};

pub use crate::sample::CacheState;
pub use session::{Phase, Session, Timed};

/// How a plan is to be run.
pub struct RunOptions<'a> {
    /// What is compared.
    pub plan: &'a Plan,
    /// Where everything random comes from.
    pub seed: u64,
    /// How many rounds.
    pub rounds: u32,
    /// Where the work directory is made.
    pub work_parent: &'a Path,
    /// The samples file; must not exist.
    pub samples: &'a Path,
    /// The command that repeats the comparison, for the report.
    pub command: &'a str,
    /// Mounts layers and makes in-process file systems.
    pub host: &'a dyn Host,
    /// Says when to stop.
    pub interrupt: Interrupt,
    /// Things to say on top of the report that were known before the run.
    pub remarks: Vec<String>,
}

/// Is told how far a run has come.
pub trait Observer {
    /// `done` of `total` runs are done; `next` names what comes now.
    fn progress(&mut self, done: u64, total: u64, next: &str);

    /// A note was recorded.
    fn note(&mut self, note: &Note);
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// How and when.
    pub end: End,
    /// Everything that was noted.
    pub notes: Vec<Note>,
}

/// Runs a plan and appends its samples to a file.
///
/// # Errors
/// Where nothing can be measured at all: no target is left, or the samples can't be written. A
/// target that fails is noted, and an interruption is an [`Outcome`].
pub fn run(options: RunOptions<'_>, observer: &mut dyn Observer) -> Result<Outcome> {
    let work = WorkDirectory::create(options.work_parent)?;
    let mut writer = Writer::create(options.samples)?;
    let provenance = Provenance::collect(
        options.plan,
        options.seed,
        options.rounds,
        work.path(),
        options.command,
    );
    let run = provenance.run.clone();
    writer.append(&Record::Provenance(Box::new(provenance)))?;
    let journal = Journal { run, writer, notes: Vec::new(), observer };
    let mut runner = Runner {
        options: &options,
        work: &work,
        journal,
        started: Instant::now(),
        given_up: HashSet::new(),
        done: 0,
    };
    let end = runner.run();
    let notes = std::mem::take(&mut runner.journal.notes);
    drop(runner);
    work.close()?;
    Ok(Outcome { end: end?, notes })
}

/// Where everything that happens is written down.
struct Journal<'a> {
    run: String,
    writer: Writer,
    notes: Vec<Note>,
    observer: &'a mut dyn Observer,
}

impl Journal<'_> {
    fn note(
        &mut self,
        kind: NoteKind,
        target: Option<&str>,
        workload: Option<&str>,
        text: String,
    ) -> Result<()> {
        let (target, workload) = (target.map(str::to_owned), workload.map(str::to_owned));
        let note = Note { kind, target, workload, text };
        if self.notes.contains(&note) {
            return Ok(());
        }
        self.observer.note(&note);
        self.writer.append(&Record::Note(note.clone()))?;
        self.notes.push(note);
        Ok(())
    }

    fn samples(&mut self, samples: Vec<Sample>) -> Result<()> {
        for mut sample in samples {
            sample.run.clone_from(&self.run);
            self.writer.append(&Record::Sample(sample))?;
        }
        Ok(())
    }
}

struct Runner<'a> {
    options: &'a RunOptions<'a>,
    work: &'a WorkDirectory,
    journal: Journal<'a>,
    started: Instant,
    /// Pairs of target and workload that failed.
    given_up: HashSet<(String, String)>,
    done: u64,
}

impl Runner<'_> {
    fn run(&mut self) -> Result<End> {
        for remark in &self.options.remarks {
            self.journal.note(NoteKind::Remark, None, None, remark.clone())?;
        }
        self.check_space()?;
        let workloads = self.prepare()?;
        let targets = self.try_targets();
        let (reason, rounds) = match targets {
            Ok(targets) => self.rounds(&targets, &workloads)?,
            Err(Error::Interrupted) => (EndReason::Interrupted, 0),
            Err(error) => return Err(error),
        };
        let end = End { reason, rounds, elapsed_seconds: self.started.elapsed().as_secs() };
        self.journal.writer.append(&Record::End(end.clone()))?;
        Ok(end)
    }

    /// Refuses before anything is written where an image would not fit.
    fn check_space(&self) -> Result<()> {
        let plan = self.options.plan;
        let on_image = |target: &TargetPlan| match &target.kind {
            TargetKind::Image { base, .. } => base.kind != Base::Memory,
            TargetKind::Directory { .. } | TargetKind::InProcess { .. } => false,
        };
        if !plan.targets.iter().any(on_image) {
            return Ok(());
        }
        check_space(self.work.path(), plan.image_size)
    }

    /// Makes the workloads and what they read.
    fn prepare(&self) -> Result<Vec<(String, Box<dyn Workload>)>> {
        let mut workloads = Vec::new();
        for plan in &self.options.plan.workloads {
            let mut workload = (plan.spec.construct)(&plan.parameters, self.options.seed);
            let directory = self.work.subdirectory(&format!("source-{}", workloads.len()))?;
            workload.prepare(&Preparation { directory: &directory, host: self.options.host })?;
            workloads.push((plan.label.clone(), workload));
        }
        Ok(workloads)
    }

    /// Makes and ends every target once: those the machine can't make are left out before the
    /// first round.
    fn try_targets(&mut self) -> Result<Vec<TargetPlan>> {
        let mut left = Vec::new();
        let mut reasons = Vec::new();
        for plan in &self.options.plan.targets {
            self.check()?;
            match target::make(plan, self.workshop()) {
                Ok((target, record)) => {
                    self.journal.writer.append(&Record::Target(record))?;
                    self.end_target(plan, target)?;
                    self.remark_on(plan)?;
                    left.push(plan.clone());
                }
                Err(_) if self.options.interrupt.is_raised() => return Err(Error::Interrupted),
                Err(error) => {
                    let missing = error.is_missing_prerequisite();
                    let kind = if missing { NoteKind::LeftOut } else { NoteKind::Failed };
                    reasons.push(format!("{}: {error}", plan.name));
                    self.journal.note(kind, Some(&plan.name), None, error.to_string())?;
                }
            }
        }
        if left.is_empty() {
            return Err(Error::NoTargets { reasons: reasons.join("; ") });
        }
        Ok(left)
    }

    fn remark_on(&mut self, plan: &TargetPlan) -> Result<()> {
        let remark = match &plan.kind {
            TargetKind::Image { .. } => return Ok(()),
            TargetKind::Directory { .. } => {
                "a given directory is never remounted: nothing about it was cold"
            }
            TargetKind::InProcess { .. } => {
                "measured in process, without mount or kernel: nothing about it was cold, and \
                 its times do not compare with those of mounted targets"
            }
        };
        self.journal.note(NoteKind::Remark, Some(&plan.name), None, remark.to_owned())
    }

    fn rounds(
        &mut self,
        targets: &[TargetPlan],
        workloads: &[(String, Box<dyn Workload>)],
    ) -> Result<(EndReason, u32)> {
        let mut longest = Duration::ZERO;
        for round in 0..self.options.rounds {
            let start = Instant::now();
            if round > 0 && self.would_pass_limit(longest) {
                return Ok((EndReason::TimeLimit, round));
            }
            match self.round(round, targets, workloads) {
                Ok(()) => longest = longest.max(start.elapsed()),
                Err(Error::Interrupted) => return Ok((EndReason::Interrupted, round)),
                Err(error) => return Err(error),
            }
        }
        Ok((EndReason::Finished, self.options.rounds))
    }

    fn would_pass_limit(&self, next: Duration) -> bool {
        let limit = self.options.plan.time_limit_seconds.map(Duration::from_secs);
        limit.is_some_and(|limit| self.started.elapsed() + next > limit)
    }

    fn round(
        &mut self,
        round: u32,
        targets: &[TargetPlan],
        workloads: &[(String, Box<dyn Workload>)],
    ) -> Result<()> {
        let total = u64::from(self.options.rounds) * (targets.len() * workloads.len()) as u64;
        for (index, (label, workload)) in workloads.iter().enumerate() {
            let seed = cell_seed(self.options.seed, round, index);
            let mut order: Vec<&TargetPlan> = targets.iter().collect();
            order.shuffle(&mut Pcg64::seed_from_u64(seed));
            for (position, target) in order.into_iter().enumerate() {
                self.check()?;
                let next = format!("round {}, {label} on {}", round + 1, target.name);
                self.journal.observer.progress(self.done, total, &next);
                let cell = Cell { label, round, position: position as u32, seed };
                self.cell(&cell, target, &**workload)?;
                self.done += 1;
            }
        }
        self.journal.observer.progress(self.done, total, "");
        Ok(())
    }

    /// One workload on one fresh target. A failure is noted and ends this pair.
    fn cell(&mut self, cell: &Cell<'_>, plan: &TargetPlan, workload: &dyn Workload) -> Result<()> {
        let pair = (plan.name.clone(), cell.label.to_owned());
        if self.given_up.contains(&pair) {
            return Ok(());
        }
        match self.measure(cell, plan, workload) {
            Ok(()) => Ok(()),
            Err(Failure::Ours(error)) => Err(error),
            // A signal from a terminal reaches mkfs and mount commands as well: what they then
            // answer is no failure of the target.
            Err(Failure::Target(_)) if self.options.interrupt.is_raised() => {
                Err(Error::Interrupted)
            }
            Err(Failure::Target(error)) => {
                self.given_up.insert(pair);
                let missing = error.is_missing_prerequisite();
                let kind = if missing { NoteKind::LeftOut } else { NoteKind::Failed };
                let text = format!("in round {}: {error}", cell.round + 1);
                self.journal.note(kind, Some(&plan.name), Some(cell.label), text)
            }
        }
    }

    fn measure(
        &mut self,
        cell: &Cell<'_>,
        plan: &TargetPlan,
        workload: &dyn Workload,
    ) -> std::result::Result<(), Failure> {
        let (mut target, _) = target::make(plan, self.workshop()).map_err(Failure::Target)?;
        let template = Sample {
            target: plan.name.clone(),
            workload: cell.label.to_owned(),
            round: cell.round,
            position: cell.position,
            seed: cell.seed,
            ..Sample::default()
        };
        let mut session = Session::new(&mut *target, template, self.options.interrupt.clone());
        let ran = workload.run(&mut session);
        let samples = session.into_samples();
        self.journal.samples(samples).map_err(Failure::Ours)?;
        let ended = self.end_target(plan, target);
        ran.map_err(Failure::Target)?;
        ended.map_err(Failure::Target)
    }

    fn end_target(&mut self, plan: &TargetPlan, target: Box<dyn target::Target>) -> Result<()> {
        for remark in target.tear_down()? {
            self.journal.note(NoteKind::Remark, Some(&plan.name), None, remark)?;
        }
        Ok(())
    }

    fn workshop(&self) -> Workshop<'_> {
        Workshop {
            host: self.options.host,
            work_directory: self.work.path(),
            image_size: self.options.plan.image_size,
        }
    }

    fn check(&self) -> Result<()> {
        if self.options.interrupt.is_raised() { Err(Error::Interrupted) } else { Ok(()) }
    }
}

/// A place in the plan's grid.
struct Cell<'a> {
    label: &'a str,
    round: u32,
    position: u32,
    seed: u64,
}

/// Whose failure it is: of the target, which loses its samples, or of the comparison itself.
enum Failure {
    Target(Error),
    Ours(Error),
}

/// The seed of one workload in one round: the same for every target, different from all others.
fn cell_seed(seed: u64, round: u32, workload: usize) -> u64 {
    let cell = (u64::from(round) << 16) | workload as u64;
    seed ^ cell.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// Samples are written below an output directory under this name.
#[must_use]
pub fn samples_path(output: &Path) -> PathBuf {
    output.join("samples.jsonl")
}
