//! Runs a plan in randomised complete blocks. Each run gets a new target, and each sample is
//! written at once.
//!
//! A *round* runs every workload once on every target. Within a round, a workload's targets
//! directly follow each other, in an order drawn from the seed. Slow changes of the machine then
//! affect all targets alike, and the times of one round can be compared in pairs. The runs of one
//! workload in one round are a *block*. A block that was interrupted or disturbed may be repeated
//! as a whole. The samples of all attempts are kept; reports use only the last attempt.

mod host_memory;
mod journal;
mod meeting;
mod part;
mod past;
mod precision;
mod reading;
mod recording;
mod session;
mod surroundings;
mod time_limit;

use std::os::linux::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fslab_sys::block_counters::DeviceNumber;
use fslab_sys::provided_memory::ProvidedMemory;
use fslab_sys::signals::Interrupt;
use fslab_sys::usage::Instant;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64;

use self::journal::Journal;
use self::past::Past;
use self::precision::Precision;
use self::recording::Recorder;
use self::time_limit::Watch;
use crate::error::{Error, Result};
use crate::host::Host;
use crate::pinned::Pinned;
use crate::plan::{ImagePlan, Plan, TargetKind, TargetPlan};
use crate::provenance;
use crate::target::work_directory::{WorkDirectory, check_space};
use crate::target::{self, MadeTarget, Workshop};
use crate::workload::program::start_guardian;
use crate::workload::{Preparation, Workload};
use fslab_report::sample::{
    self, Block, CellTime, End, EndReason, Note, NoteKind, Record, Sample, Writer,
};
use fslab_report::{Choice, Provenance, Recording};

pub(crate) use meeting::{Meeting, name_of_part};
pub(crate) use part::Part;
pub use session::{Phase, Session, Timed};

/// Options for running a plan.
pub struct RunOptions<'a> {
    /// The plan.
    pub plan: &'a Plan,
    /// The seed of all random choices.
    pub seed: u64,
    /// The cells of the plan to run, the number of repetitions of a disturbed block, and the work
    /// directory.
    pub choice: Choice,
    /// The samples file. Unless the run is resumed, it must not contain samples.
    pub samples: &'a Path,
    /// Whether to resume an interrupted run.
    pub resume: bool,
    /// The command that repeats the comparison, for the report.
    pub command: &'a str,
    /// Mounts layers and makes in-process file systems.
    pub host: &'a dyn Host,
    /// Lets the caller interrupt the run.
    pub interrupt: Interrupt,
    /// Remarks to list at the top of the report, in addition to those of the run.
    pub remarks: Vec<String>,
}

/// Receives the progress of a run.
pub trait Observer {
    /// Reports that `done` of `total` runs are done; `next` describes the next one.
    fn progress(&mut self, done: u64, total: u64, next: &str);

    /// Reports a recorded note.
    fn note(&mut self, note: &Note);

    /// Reports that a block is done and its record is in the samples file.
    fn block(&mut self, _block: &Block) {}
}

/// The outcome of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The reason and time of the end.
    pub end: End,
    /// All notes.
    pub notes: Vec<Note>,
}

/// Runs a plan and appends its samples to a file.
///
/// # Errors
/// Fails if no target can be made or the samples can't be written. The failure of a single target
/// is not an error; it is noted. An interrupted run returns an [`Outcome`].
pub fn run(options: RunOptions<'_>, observer: &mut dyn Observer) -> Result<Outcome> {
    options.plan.check_cells(&options.choice.cells)?;
    start_guardian()?;
    let _pinned = Pinned::to(&options.plan.processors)?;
    let work = WorkDirectory::create(options.choice.work_parent_of(options.samples))?;
    let recorder = Recorder::new(&options.choice.recordings, options.samples, work.path())?;
    let (mut writer, past) = open(&options)?;
    let touched_bytes = touched_bytes(options.plan);
    let mut provenance = Provenance {
        command: options.command.to_owned(),
        seed: options.seed,
        rounds: options.plan.rounds,
        rounds_max: options.plan.rounds_max,
        choice: Some(options.choice.clone()),
        touched_bytes,
        ..provenance::collect(options.plan, work.path())
    };
    if let Some(run) = &past.run {
        provenance.run.clone_from(run);
        provenance.second_copy.clone_from(&past.second_copy);
    }
    let run = provenance.run.clone();
    let second_copy = provenance.second_copy.clone();
    let precision = Precision::new(&options.plan.baseline, second_copy.clone());
    writer.append(&Record::Provenance(Box::new(provenance)))?;
    let mut runner = Runner {
        journal: Journal { run, writer, notes: past.notes.clone(), observer },
        precision,
        recorder,
        second_copy,
        touched_bytes,
        given_up: past.given_up.clone(),
        backing: backing_device(work.path()),
        started: Instant::now(),
        options: &options,
        work: &work,
        past,
        done: 0,
    };
    let end = runner.run();
    let notes = std::mem::take(&mut runner.journal.notes);
    drop(runner);
    work.close()?;
    Ok(Outcome { end: end?, notes })
}

/// Opens the samples file and reads the records of a resumed run.
fn open(options: &RunOptions<'_>) -> Result<(Writer, Past)> {
    let path = options.samples;
    if !options.resume {
        return Ok((Writer::create(path)?, Past::default()));
    }
    let writer = Writer::resume(path)?;
    let records = sample::read(path)?;
    let first = sample::sessions(&records).next();
    let reason = match first {
        Some(first) if first.seed != options.seed => {
            Some("its seed differs from the requested seed")
        }
        Some(first) if first.plan != options.plan.text => {
            Some("its plan differs from the given plan")
        }
        Some(first) if first.format < 2 => {
            Some("it was written by an older fslab, which did not record the finished blocks")
        }
        Some(first) if several_runs(&records, &first.run) => {
            Some("it contains several runs; resume each of them in its own file")
        }
        _ => Choice::of(&records).and_then(|begun| options.choice.differs(begun)),
    };
    match reason {
        Some(reason) => Err(Error::NotResumable { path: path.to_owned(), reason }),
        None => Ok((writer, Past::of(&records))),
    }
}

/// Returns the number of bytes of memory to touch before each run. It is 0 if all targets run in
/// this process, because such targets do not use the page cache.
fn touched_bytes(plan: &Plan) -> u64 {
    let has_cache = |target: &TargetPlan| !matches!(target.kind, TargetKind::InProcess { .. });
    if plan.targets.iter().any(has_cache) { host_memory::to_touch() } else { 0 }
}

fn several_runs(records: &[Record], run: &str) -> bool {
    records.iter().any(|record| matches!(record, Record::Provenance(found) if found.run != run))
}

/// Returns the disk that contains a directory; `None` if it is not on a disk.
fn backing_device(directory: &Path) -> Option<DeviceNumber> {
    let number = std::fs::metadata(directory).ok()?.st_dev();
    let device =
        DeviceNumber { major: rustix::fs::major(number), minor: rustix::fs::minor(number) };
    device.sysfs("stat").exists().then_some(device)
}

struct Runner<'a> {
    options: &'a RunOptions<'a>,
    work: &'a WorkDirectory,
    backing: Option<DeviceNumber>,
    journal: Journal<'a>,
    started: Instant,
    past: Past,
    precision: Precision,
    /// Bytes of memory touched before each run.
    touched_bytes: u64,
    /// Records the phases on request.
    recorder: Option<Recorder>,
    /// The name of the second copy of the baseline, if one is run.
    second_copy: Option<String>,
    /// Pairs of target and workload that failed and are not run again.
    given_up: std::collections::HashSet<(String, String)>,
    done: u64,
}

/// The workloads of a plan with their labels, ready to run.
type Workloads = Vec<(String, Box<dyn Workload>)>;

impl Runner<'_> {
    fn run(&mut self) -> Result<End> {
        for remark in &self.options.remarks {
            self.journal.note(NoteKind::Remark, None, None, remark.clone())?;
        }
        let recordings = &self.options.choice.recordings;
        if !recordings.is_empty() {
            let names: Vec<&str> = recordings.iter().map(|one| one.name()).collect();
            let text = format!("phases were recorded ({}), which takes time", names.join(", "));
            self.journal.note(NoteKind::Remark, None, None, text)?;
        }
        for ((workload, round), samples) in &self.past.samples {
            self.precision.set_block(workload, *round, samples);
        }
        self.check_space()?;
        let workloads = self.prepare()?;
        let targets = self.try_targets();
        let (reason, rounds) = match targets {
            Ok(mut targets) => {
                targets.extend(self.second_copy(&targets));
                let _provided = self.provide_memory()?;
                self.rounds(&targets, &workloads)?
            }
            Err(Error::Interrupted) => (EndReason::Interrupted, 0),
            Err(error) => return Err(error),
        };
        let end = End { reason, rounds, elapsed_seconds: self.started.elapsed().as_secs() };
        self.journal.append(&Record::End(end.clone()))?;
        Ok(end)
    }

    /// Checks that the work directory has space for an image, before anything is written.
    fn check_space(&self) -> Result<()> {
        let plan = self.options.plan;
        let mut images = plan.targets.iter().filter_map(|target| target.kind.image());
        if !images.any(ImagePlan::is_on_image) {
            return Ok(());
        }
        check_space(self.work.path(), plan.image_size)
    }

    /// Notes that a target has no device whose requests could be recorded.
    fn remark_on_recordings(&mut self, plan: &TargetPlan, target: &MadeTarget) -> Result<()> {
        let is_asked = self.options.choice.recordings.contains(&Recording::Block);
        if !is_asked || target.target.device().is_some() {
            return Ok(());
        }
        let text = "it has no block device of its own, so no requests were recorded".to_owned();
        self.journal.note(NoteKind::Remark, Some(&plan.name), None, text)
    }

    /// Constructs the workloads and makes the files that they read.
    fn prepare(&self) -> Result<Workloads> {
        let mut workloads = Vec::new();
        for plan in &self.options.plan.workloads {
            let mut workload = (plan.spec.construct)(&plan.parameters, self.options.seed);
            let directory = self.work.subdirectory(&format!("source-{}", workloads.len()))?;
            workload.prepare(&Preparation { directory: &directory, host: self.options.host })?;
            workloads.push((plan.label.clone(), workload));
        }
        Ok(workloads)
    }

    /// Makes and removes every target once. Targets that the machine can't make are left out before
    /// the first round.
    fn try_targets(&mut self) -> Result<Vec<TargetPlan>> {
        let mut left = Vec::new();
        let mut reasons = Vec::new();
        let cells = &self.options.choice.cells;
        for plan in self.options.plan.targets.iter().filter(|plan| cells.hold_target(&plan.name)) {
            self.check()?;
            let made = self.watch(self.options.interrupt.part())?;
            match made.end(target::make(plan, self.workshop())) {
                Ok((target, record)) => {
                    self.journal.append(&Record::Target(record))?;
                    self.remark_on_recordings(plan, &target)?;
                    self.end_target(plan, target)?;
                    self.remark_on(plan)?;
                    left.push(plan.clone());
                }
                Err(_) if self.options.interrupt.is_raised() => return Err(Error::Interrupted),
                Err(error) => {
                    let kind = kind_of_note(&error);
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

    /// In a virtual machine, keeps a reserve of memory that the host has already provided, or notes
    /// why this is impossible.
    fn provide_memory(&mut self) -> Result<Option<ProvidedMemory>> {
        match host_memory::provide(self.touched_bytes) {
            Ok(provided) => Ok(provided),
            Err(error) => {
                let text = format!("times may vary, because memory can't be allocated: {error}");
                self.journal.note(NoteKind::Remark, None, None, text)?;
                Ok(None)
            }
        }
    }

    /// Returns the second copy of the baseline, if the plan has one and the baseline is run.
    fn second_copy(&self, targets: &[TargetPlan]) -> Option<TargetPlan> {
        let plan = self.options.plan;
        let copy = plan.second_copy().filter(|copy| Some(&copy.name) == self.second_copy.as_ref());
        // A comparison with a single target needs no second copy. But if the user chose the target,
        // another run may contain the other targets.
        let is_compared = targets.len() > 1 || !self.options.choice.cells.targets.is_empty();
        let is_run = targets.iter().any(|target| target.name == plan.baseline);
        copy.filter(|_| is_run && is_compared)
    }

    fn remark_on(&mut self, plan: &TargetPlan) -> Result<()> {
        let remark = match &plan.kind {
            TargetKind::Image { .. } => return Ok(()),
            TargetKind::Directory { cold: true, .. } if target::drops_names() => {
                "fslab never remounts an existing directory. Before cold phases, it drops the \
                 cached pages of the directory's files, and the cached names and inodes of the \
                 whole machine. Blocks of directories may remain in memory"
            }
            TargetKind::Directory { cold: true, .. } => {
                "fslab never remounts an existing directory. Before cold phases, it drops the \
                 cached pages of the directory's files. Names and inodes remain in memory, because \
                 only root may drop them"
            }
            TargetKind::Directory { .. } => {
                "none of its phases was cold, because fslab never remounts an existing directory"
            }
            TargetKind::InProcess { .. } => {
                "this target ran inside the fslab process, without a mount. So none of its phases \
                 was cold, and its times can't be compared with those of mounted targets"
            }
        };
        self.journal.note(NoteKind::Remark, Some(&plan.name), None, remark.to_owned())
    }

    fn rounds(
        &mut self,
        targets: &[TargetPlan],
        workloads: &Workloads,
    ) -> Result<(EndReason, u32)> {
        let mut longest = Duration::ZERO;
        for round in 0..self.options.plan.rounds_max {
            let wanted = self.wanted(round, workloads);
            if wanted.is_empty() {
                return Ok((EndReason::Narrow, round));
            }
            let start = Instant::now();
            let limit = self.options.plan.time_limit_seconds.map(Duration::from_secs);
            let is_passed = |limit| self.started.elapsed() + longest > limit;
            if longest > Duration::ZERO && limit.is_some_and(is_passed) {
                return Ok((EndReason::TimeLimit, round));
            }
            match self.round(round, &wanted, targets, workloads) {
                Ok(()) => longest = longest.max(start.elapsed()),
                Err(Error::Interrupted) => return Ok((EndReason::Interrupted, round)),
                Err(error) => return Err(error),
            }
        }
        self.remark_on_widths(workloads)?;
        Ok((EndReason::Finished, self.options.plan.rounds_max))
    }

    /// Returns the workloads that need a round. In the first `rounds` rounds, all workloads need
    /// it. Later, only those with an interval that is still too wide need it.
    fn wanted(&self, round: u32, workloads: &Workloads) -> Vec<usize> {
        let Plan { rounds, half_width, .. } = *self.options.plan;
        let wide = |label: &str| self.precision.is_wide(label, half_width);
        (0..workloads.len()).filter(|index| round < rounds || wide(&workloads[*index].0)).collect()
    }

    /// Adds a remark on each workload whose intervals are still too wide after the last round.
    fn remark_on_widths(&mut self, workloads: &Workloads) -> Result<()> {
        let Plan { rounds, rounds_max, half_width: asked, .. } = *self.options.plan;
        if rounds_max == rounds {
            return Ok(());
        }
        for (label, _) in workloads {
            let mut wide = self.precision.widths(label);
            wide.retain(|width| width.half > asked);
            wide.sort_by(|a, b| b.half.total_cmp(&a.half));
            if let Some(widest) = wide.first() {
                let text = format!(
                    "{} intervals are wider than \u{b1}{:.1} % after {rounds_max} rounds; the \
                     widest, of {} on {}, is \u{b1}{:.1} %",
                    wide.len(),
                    asked * 100.0,
                    widest.phase,
                    widest.target,
                    widest.half * 100.0
                );
                self.journal.note(NoteKind::Remark, None, Some(label), text)?;
            }
        }
        Ok(())
    }

    fn round(
        &mut self,
        round: u32,
        wanted: &[usize],
        targets: &[TargetPlan],
        workloads: &Workloads,
    ) -> Result<()> {
        for index in wanted {
            let (options, (label, workload)) = (self.options, &workloads[*index]);
            let chosen = options.choice.cells.hold_block(round, *index, label, workloads.len());
            let seed = block_seed(options.seed, round, *index);
            let first = self.past.next_attempt(label, round);
            if !chosen || self.past.is_done(label, round, targets) {
                continue;
            }
            for attempt in first..=first + options.choice.reruns_max {
                let cell = Cell { label, round, seed, attempt };
                // The minimum number of runs. More rounds may follow if intervals stay too wide.
                let cells_a_round = (targets.len() * self.chosen(workloads)) as u64;
                let total = u64::from(options.plan.rounds.max(round + 1)) * cells_a_round;
                if self.block(&cell, targets, &**workload, total)? {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Returns the number of chosen workloads.
    fn chosen(&self, workloads: &Workloads) -> usize {
        let chosen = &self.options.choice.cells.workloads;
        let is_chosen = |label: &String| chosen.is_empty() || chosen.contains(label);
        workloads.iter().filter(|(label, _)| is_chosen(label)).count()
    }

    /// Runs one workload of one round on all targets, in an order drawn from the seed. Returns
    /// whether there was no interference.
    fn block(
        &mut self,
        cell: &Cell<'_>,
        targets: &[TargetPlan],
        workload: &dyn Workload,
        total: u64,
    ) -> Result<bool> {
        let mut order: Vec<&TargetPlan> = targets.iter().collect();
        order.shuffle(&mut Pcg64::seed_from_u64(cell.seed));
        let mut samples = Vec::new();
        let mut cells = Vec::new();
        for (position, target) in order.into_iter().enumerate() {
            self.check()?;
            let next = format!("round {}, {} on {}", cell.round + 1, cell.label, target.name);
            self.journal.observer.progress(self.done, total, &next);
            host_memory::touch(self.touched_bytes);
            let start = Instant::now();
            let run = self.cell(cell, position as u32, target, workload)?;
            self.done += u64::from(cell.attempt == self.past.next_attempt(cell.label, cell.round));
            let seconds = start.elapsed().as_secs_f64();
            cells.push(CellTime { target: target.name.clone(), seconds, done: run.is_some() });
            samples.extend(run.into_iter().flatten());
        }
        self.journal.observer.progress(self.done, total, "");
        let block = Block {
            run: self.journal.run.clone(),
            workload: cell.label.to_owned(),
            round: cell.round,
            attempt: cell.attempt,
            cells,
        };
        self.journal.append(&Record::Block(block.clone()))?;
        self.journal.observer.block(&block);
        self.precision.set_block(cell.label, cell.round, &samples);
        Ok(samples.iter().all(|sample| sample.contaminated.is_none()))
    }

    /// Runs one workload on one new target and returns its samples. A failure is noted, and this
    /// pair of target and workload is not run again.
    fn cell(
        &mut self,
        cell: &Cell<'_>,
        position: u32,
        plan: &TargetPlan,
        workload: &dyn Workload,
    ) -> Result<Option<Vec<Sample>>> {
        let pair = (plan.name.clone(), cell.label.to_owned());
        if self.given_up.contains(&pair) {
            return Ok(None);
        }
        match self.measure(cell, position, plan, workload)? {
            Ok(samples) => Ok(Some(samples)),
            // A signal from a terminal also reaches mkfs and mount commands. Their errors are then
            // not failures of the target.
            Err(_) if self.options.interrupt.is_raised() => Err(Error::Interrupted),
            Err(error) => {
                self.given_up.insert(pair);
                let kind = kind_of_note(&error);
                let text = format!("in round {}: {error}", cell.round + 1);
                self.journal.note(kind, Some(&plan.name), Some(cell.label), text)?;
                Ok(None)
            }
        }
    }

    /// Returns the samples. The inner error is a failure of the target, and the outer one is a
    /// failure of the whole comparison. Samples of a failed run are written but not returned.
    fn measure(
        &mut self,
        cell: &Cell<'_>,
        position: u32,
        plan: &TargetPlan,
        workload: &dyn Workload,
    ) -> Result<Result<Vec<Sample>>> {
        // Data of earlier runs is written back now, so that this does not happen during the
        // measurement.
        rustix::fs::sync();
        // A target may hang as soon as it is mounted, so it is also watched while it is made.
        // Making and running have separate time limits.
        let watch = self.watch(self.options.interrupt.part())?;
        let mut target = match watch.end(target::make(plan, self.workshop())) {
            Ok((target, _)) => target,
            Err(error) => return Ok(Err(error)),
        };
        let interrupt = self.options.interrupt.part();
        let template = Sample {
            target: plan.name.clone(),
            workload: cell.label.to_owned(),
            round: cell.round,
            attempt: cell.attempt,
            position,
            seed: cell.seed,
            ..Sample::default()
        };
        let watch = self.watch(interrupt.clone())?;
        // Targets in this process do not use the disk, so other users of the disk do not disturb
        // them.
        let in_process = matches!(plan.kind, TargetKind::InProcess { .. });
        let mut session = Session::new(&mut *target.target, template, interrupt);
        session.backing = self.backing.filter(|_| !in_process);
        session.slowed = plan.slowed;
        session.recorder = self.recorder.as_ref();
        let ran = watch.end(workload.run(&mut session));
        let mut samples = session.samples;
        self.journal.samples(&mut samples)?;
        let ended = self.end_target(plan, target);
        Ok(ran.and(ended).map(|()| samples))
    }

    /// Starts a watch that interrupts a run at its time limit.
    fn watch(&self, interrupt: Interrupt) -> Result<Watch> {
        let limit = Duration::from_secs(self.options.plan.run_limit_seconds);
        Watch::begin(limit, interrupt, self.work.path())
    }

    fn end_target(&mut self, plan: &TargetPlan, target: MadeTarget) -> Result<()> {
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

/// One attempt at one workload in one round, for all targets.
struct Cell<'a> {
    label: &'a str,
    round: u32,
    seed: u64,
    attempt: u32,
}

fn kind_of_note(error: &Error) -> NoteKind {
    if error.is_missing_prerequisite() { NoteKind::LeftOut } else { NoteKind::Failed }
}

/// Returns the seed of one workload in one round, both counted from 0. All targets have the same
/// seed; other workloads and rounds have different ones. `seed` is the seed of the whole run.
#[must_use]
pub fn block_seed(seed: u64, round: u32, workload: usize) -> u64 {
    let cell = (u64::from(round) << 16) | workload as u64;
    seed ^ cell.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// Returns the path of the samples in an output directory.
#[must_use]
pub fn samples_path(output: &Path) -> PathBuf {
    output.join("samples.jsonl")
}
