//! `fslab compare`: runs a plan, prints tables and writes an HTML report.

mod choice;
mod dry_run;
mod durations;
pub(super) mod host;
mod init;
pub(super) mod memory;
pub(super) mod progress;
mod resume;
mod self_test;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use fslab_compare::plan::Form;
use fslab_compare::{Outcome, Plan, RunOptions, is_work_directory, remove_leftovers, samples_path};
use fslab_report::sample::{self, EndReason, NoteKind, Record};
use fslab_report::{Choice, Report, Share};
use fslab_sys::signals::Interrupt;

pub(super) use choice::DEFAULT_RERUNS;

use super::report::Shown;
use super::{built_in, candidates, places};

/// Built-in plans that are run if no plan is given.
const DEFAULT_PLAN: &str = "default";
const QUICK_PLAN: &str = "quick";
const IN_PROCESS_PLAN: &str = "in-process";

/// The file name of the report in the output directory.
const PAGE: &str = "report.html";

const HELP: &str = "\
Names of targets:
A plan gives each target (a file system to compare) a unique name of your choice. --only-target and
--baseline take this name, and reports print it. --dry-run lists the targets of a plan, and
--init writes a plan for you to change.";

/// Arguments of `fslab compare`.
#[derive(Debug, Default, clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    /// A plan file, or a built-in plan by its name (`fslab list plans`) [default: ext4, XFS, Btrfs
    /// and ext4 under the null layer]
    #[arg(add = candidates::plans())]
    plan: Option<PathBuf>,
    /// Use the quick form of the plan, which ends within minutes
    #[arg(long)]
    quick: bool,
    /// Write a commented plan for this machine, without running it [default: compare.toml]
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "compare.toml",
          conflicts_with_all = ["plan", "quick", "dry_run", "resume", "out"])]
    init: Option<PathBuf>,
    /// Print the planned runs and their estimated time, without running them
    #[arg(short = 'n', long, conflicts_with = "resume")]
    dry_run: bool,
    /// With --dry-run: run one round in a temporary directory to estimate the time
    #[arg(long, requires = "dry_run")]
    trial: bool,
    /// Test the harness on this machine, with the baseline or the target of --only-target, in
    /// memory. The test compares this target with itself ten times, and simulates 1,000 such
    /// comparisons from the measured noise. It also injects a delay of 5 %. It fails if equal
    /// targets are found different too often, or if the delay is not detected often enough. It
    /// prints these counts and their limits. --rounds is the number of rounds of a comparison
    /// [default: 12]
    #[arg(long, conflicts_with_all = ["init", "dry_run", "resume", "cells", "only_workload",
          "only_rounds", "record", "baseline", "margin", "html", "markdown", "csv", "parquet",
          "metric", "fail_if", "smaller_is_better", "bigger_is_better", "run"])]
    self_test: bool,
    /// Resume the interrupted comparison in DIR with its original options
    #[arg(long, value_name = "DIR", conflicts_with_all = ["plan", "quick", "out", "seed"])]
    resume: Option<PathBuf>,
    /// A new or empty directory for the samples and the page [default: fslab-report-TIME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Seed for all random choices [default: the plan's, else drawn from the clock]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Number of rounds, instead of that of the plan
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rounds: Option<u32>,
    /// Maximum number of repeats of a round that other programs disturbed [default: the plan's,
    /// else 1]
    #[arg(long, value_name = "N")]
    reruns: Option<u32>,
    /// Run only the K-th of N equal shares of the comparison. Use the same --seed for all shares.
    /// `fslab report` combines their samples
    #[arg(long, value_name = "K/N")]
    cells: Option<Share>,
    /// Run only this target (may be given several times)
    #[arg(long, value_name = "NAME", add = candidates::targets())]
    only_target: Vec<String>,
    /// Run only this workload (may be given several times)
    #[arg(long, value_name = "LABEL", add = candidates::workloads())]
    only_workload: Vec<String>,
    /// Run only these rounds, such as 1-5
    #[arg(long, value_name = "A-B", value_parser = rounds_range)]
    only_rounds: Option<(u32, u32)>,
    /// Compare two builds of fslab. OLD and NEW are the paths of the two programs; OLD is the
    /// baseline. Each of the two programs mounts the plan's first target that is a mount of fslab
    #[arg(long, num_args = 2, value_names = ["OLD", "NEW"],
          conflicts_with_all = ["init", "resume", "self_test", "only_target", "baseline"])]
    ab: Vec<PathBuf>,
    /// An existing directory for images and mount points [default: the output directory; with
    /// --quick: memory, if it has room]
    #[arg(long, value_name = "DIR")]
    work_dir: Option<PathBuf>,
    /// Record each phase in the folder `recordings` beside the samples: the stacks of all
    /// processors by perf(1), the requests of the target's block device as text, or both. Times
    /// then include the cost of recording (may be given several times)
    #[arg(long, value_name = "KIND", value_delimiter = ',', value_parser = ["perf", "block"])]
    record: Vec<String>,
    /// Allow a target to erase its `device` if the device has this serial number, whatever the
    /// device contains (may be given several times). Without this option, the device must be empty.
    /// A device that is mounted, swap, or part of md, LVM or Btrfs is always refused
    #[arg(long, value_name = "SERIAL")]
    erase: Vec<String>,
    #[command(flatten)]
    shown: Shown,
    /// Run this command in each target instead of the plan's workloads
    #[arg(last = true, value_name = "COMMAND", conflicts_with_all = ["init", "resume"])]
    run: Vec<String>,
}

/// Parses a range of rounds, such as "3-7" or "4".
fn rounds_range(text: &str) -> Result<(u32, u32), String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (first.parse(), last.parse()) {
        (Ok(first), Ok(last)) if 1 <= first && first <= last => Ok((first, last)),
        _ => Err("rounds are written A-B and counted from 1, such as 1-5".to_owned()),
    }
}

impl Args {
    /// Runs the comparison, or the action that an option selects instead.
    pub fn run(mut self) -> Result<()> {
        if let Some(path) = &self.init {
            return init::write(path);
        }
        if let Some(directory) = &self.resume {
            return resume::run(directory, &self);
        }
        if self.self_test {
            return self.self_test();
        }
        let (plan, mut remarks) = self.plan()?;
        self.shown.check_gates(&plan)?;
        let seed = self.seed.or(plan.seed).unwrap_or_else(seed_from_clock);
        if self.dry_run {
            return dry_run::run(&self, &plan, seed);
        }
        remarks.extend(remark_on_build());
        let in_memory = self.quick.then_some("--quick");
        let comparison = self.begun(plan, seed, remarks, in_memory)?;
        self.compare(&comparison)
    }

    /// Prepares a new comparison in its directory. `in_memory` is the option, if any, that requests
    /// images in memory.
    fn begun(
        &mut self,
        plan: Plan,
        seed: u64,
        mut remarks: Vec<String>,
        in_memory: Option<&str>,
    ) -> Result<Comparison> {
        if let Some(option) = in_memory.filter(|_| self.work_dir.is_none()) {
            let (directory, remark) = memory::for_images(&plan, option).unzip();
            self.work_dir = directory;
            remarks.extend(remark);
        }
        let out = self.out.clone().unwrap_or_else(|| places::dated("fslab-report"));
        // The work directory is checked before anything is created.
        if let Some(path) = self.work_dir.as_deref().filter(|path| *path != out) {
            places::check_work_dir(path)?;
        }
        make_out(&out)?;
        self.fresh(plan, seed, remarks, out)
    }

    fn fresh(
        &self,
        plan: Plan,
        seed: u64,
        remarks: Vec<String>,
        out: PathBuf,
    ) -> Result<Comparison> {
        let choice = self.choice(&plan, &samples_path(&out))?;
        let command = self.command(seed, &plan);
        Ok(Comparison { plan, seed, remarks, choice, command, out, resume: false })
    }

    fn compare(&self, comparison: &Comparison) -> Result<()> {
        let outcome = comparison.execute()?;
        let out = &comparison.out;
        let gates = self.shown.show(&[samples_path(out)], Some(&out.join(PAGE)))?;
        match outcome.end.reason {
            EndReason::Interrupted => bail!(
                "interrupted; the samples so far are kept and reported. \
                 Resume with: fslab compare --resume {}",
                quoted(out)
            ),
            EndReason::Finished | EndReason::Narrow | EndReason::TimeLimit => {
                gates.refuse()?;
                all_done(&outcome)?;
                anything_measured(&outcome, out)
            }
        }
    }

    /// Returns the chosen plan, and remarks about this choice for the top of the report.
    fn plan(&self) -> Result<(Plan, Vec<String>)> {
        let (mut plan, remarks) = self.plan_alone()?;
        if let [old, new] = &self.ab[..] {
            plan = plan.of_programs([program(old)?, program(new)?])?;
        }
        if !self.run.is_empty() {
            plan = plan.with_command(self.run.clone());
        }
        self.set_rounds(&mut plan);
        Ok((plan, remarks))
    }

    fn plan_alone(&self) -> Result<(Plan, Vec<String>)> {
        let form = if self.quick { Form::Quick } else { Form::Full };
        if let Some(path) = &self.plan {
            return Ok((built_in::read(path, form)?.erasing(&self.erase), Vec::new()));
        }
        let (name, remarks) = match obstacle_to_mounting() {
            Some(obstacle) => {
                let remark = format!(
                    "nothing was mounted ({obstacle}). File systems within the process and this \
                     directory were measured instead"
                );
                (IN_PROCESS_PLAN, vec![remark])
            }
            None if self.quick => (QUICK_PLAN, Vec::new()),
            None => (DEFAULT_PLAN, Vec::new()),
        };
        Ok((built_in::plan_of(name, form)?.erasing(&self.erase), remarks))
    }

    fn set_rounds(&self, plan: &mut Plan) {
        if let Some(rounds) = self.rounds {
            (plan.rounds, plan.rounds_max) = (rounds, rounds);
        }
    }

    /// Returns the command that repeats this comparison.
    fn command(&self, seed: u64, plan: &Plan) -> String {
        let mut words = vec!["fslab compare".to_owned()];
        words.extend(self.plan.as_ref().map(|plan| quoted(plan)));
        if let [old, new] = &self.ab[..] {
            words.push(format!("--ab {} {}", quoted(old), quoted(new)));
        }
        words.extend(self.quick.then(|| "--quick".to_owned()));
        words.push(format!("--seed {seed}"));
        if plan.rounds == plan.rounds_max {
            words.push(format!("--rounds {}", plan.rounds));
        }
        words.extend(self.chosen());
        if !self.run.is_empty() {
            words.push("--".to_owned());
            words.push(fslab_report::command_line(&self.run));
        }
        words.join(" ")
    }
}

/// A comparison to run, and the directory of its samples.
struct Comparison {
    plan: Plan,
    seed: u64,
    remarks: Vec<String>,
    choice: Choice,
    /// The command that repeats the comparison.
    command: String,
    out: PathBuf,
    resume: bool,
}

impl Comparison {
    /// Runs the comparison, and writes its samples to its directory.
    fn execute(&self) -> Result<Outcome> {
        let samples = samples_path(&self.out);
        let work_parent = self.choice.work_parent_of(&samples);
        places::check_work_dir(work_parent)?;
        report_leftovers(work_parent)?;
        let Plan { name, rounds, rounds_max, .. } = &self.plan;
        let most = if rounds_max > rounds { format!(" to {rounds_max}") } else { String::new() };
        let (seed, shown) = (self.seed, samples.display());
        let limit = self
            .plan
            .time_limit_seconds
            .map(|seconds| format!(" in at most {}", dry_run::spoken(seconds as f64)));
        let limit = limit.unwrap_or_default();
        eprintln!("{name}: seed {seed}, {rounds}{most} rounds{limit}, samples in {shown}");
        let outcome = self.measure()?;
        durations::remember(&samples, &self.plan);
        Ok(outcome)
    }

    fn measure(&self) -> Result<Outcome> {
        let options = RunOptions {
            plan: &self.plan,
            seed: self.seed,
            choice: self.choice.clone(),
            samples: &samples_path(&self.out),
            resume: self.resume,
            command: &self.command,
            host: &host::Binary::new()?,
            interrupt: Interrupt::on_signals()
                .context("can't install handlers for SIGINT and SIGTERM")?,
            remarks: self.remarks.clone(),
        };
        let limit = self.plan.time_limit_seconds.map(Duration::from_secs);
        let mut progress = progress::Progress::new(limit);
        let outcome = fslab_compare::run(options, &mut progress)?;
        progress.finish();
        Ok(outcome)
    }
}

impl Args {
    /// Returns arguments that choose some targets and workloads of a plan, for another command.
    pub(super) fn of_cells(
        plan_file: PathBuf,
        form: Form,
        (only_target, only_workload): (Vec<String>, Vec<String>),
        work_dir: Option<PathBuf>,
        seed: u64,
    ) -> Self {
        let (plan, quick, seed) = (Some(plan_file), form == Form::Quick, Some(seed));
        Self { plan, quick, only_target, only_workload, work_dir, seed, ..Self::default() }
    }

    /// Runs cells of a plan for another command, and writes their samples and a report into a
    /// directory. If an error ends the run, the report contains the measurements before the error.
    /// `goes_on` is set if the directory already contains rounds of the same cells.
    pub(super) fn run_cells(&self, plan: Plan, out: PathBuf, goes_on: bool) -> Result<EndReason> {
        if !goes_on {
            make_out(&out)?;
        }
        let remarks = remark_on_build().into_iter().collect();
        // A claim states its own margin, so no second copy of the baseline is needed to measure the
        // noise floor.
        let plan = Plan { noise_floor: false, ..plan };
        let seed = self.seed.unwrap_or_else(seed_from_clock);
        let mut comparison = self.fresh(plan, seed, remarks, out)?;
        comparison.resume = goes_on;
        let ended = comparison.execute();
        let written = write_page(&comparison.out);
        let ended = ended?;
        written?;
        Ok(ended.end.reason)
    }

    /// Returns a sentence with the estimated time for the chosen cells of a plan.
    pub(super) fn estimate(&self, plan: &Plan) -> String {
        dry_run::estimate(self, plan, &durations::Durations::load())
    }
}

/// Writes the report of a directory's samples into that directory.
fn write_page(out: &Path) -> Result<()> {
    let records = sample::read(&samples_path(out))?;
    let mut report = Report::new(&records);
    report.workload_help = super::report::workload_help;
    super::report::write("html", &out.join(PAGE), &report)
}

/// Returns the absolute path of a program given with `--ab`. Fails if it is not executable.
fn program(path: &Path) -> Result<PathBuf> {
    let full = path.canonicalize().with_context(|| format!("--ab {}", path.display()))?;
    let mode = full.metadata().with_context(|| full.display().to_string())?.permissions().mode();
    if !full.is_file() || mode & 0o111 == 0 {
        bail_as!(BadInput, "--ab {}: not an executable program", path.display());
    }
    Ok(full)
}

pub(super) fn remark_on_build() -> Option<String> {
    cfg!(debug_assertions).then(|| {
        "this fslab was built without optimisation, so fslab and its layers are several times \
         slower than usual"
            .to_owned()
    })
}

pub(super) fn seed_from_clock() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    // The seed is short, so that a user can type it.
    (now.as_nanos() % 1_000_000_007) as u64
}

/// Fails if a target could not be measured. The report still contains the other measurements, and
/// the reasons.
pub(super) fn all_done(outcome: &Outcome) -> Result<()> {
    let failed = outcome.notes.iter().filter(|note| note.kind == NoteKind::Failed);
    let mut names: Vec<&str> = failed.filter_map(|note| note.target.as_deref()).collect();
    if names.is_empty() {
        return Ok(());
    }
    names.sort_unstable();
    names.dedup();
    bail!(
        "failed: {}; the report contains the other measurements and the reasons",
        names.join(", ")
    )
}

/// Fails if nothing was measured because this machine lacks a requirement of every workload.
fn anything_measured(outcome: &Outcome, out: &Path) -> Result<()> {
    let records = sample::read(&samples_path(out))?;
    let is_measured = records.iter().any(|record| matches!(record, Record::Sample(_)));
    let left_out = outcome.notes.iter().find(|note| note.kind == NoteKind::LeftOut);
    match left_out {
        Some(note) if !is_measured => bail_as!(Missing, "nothing was measured: {}", note.text),
        _ => Ok(()),
    }
}

fn make_out(out: &Path) -> Result<()> {
    let samples = samples_path(out);
    let has_file = samples.exists();
    if has_file && sample::has_samples(&samples)? {
        bail_as!(
            BadInput,
            "{} contains samples, which are never overwritten; choose another --out, or resume \
             with --resume {}",
            samples.display(),
            quoted(out)
        );
    }
    // The files of a failed run without samples are replaced. Leftovers of a killed run are removed
    // later.
    places::make_out(out, |name| {
        let is_written = has_file && (samples.ends_with(name) || name == PAGE);
        is_written || is_work_directory(Path::new(name))
    })
}

/// Returns the reason why mounting is impossible here, if there is one.
fn obstacle_to_mounting() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("not run as root".to_owned());
    }
    ["/dev/loop-control", "/dev/fuse"]
        .into_iter()
        .find(|path| !Path::new(path).exists())
        .map(|path| format!("{path} is missing"))
}

/// Removes leftovers of killed comparisons, and reports those that it may not remove.
pub(super) fn report_leftovers(work_parent: &Path) -> Result<()> {
    for leftover in remove_leftovers(work_parent)? {
        let directory = leftover.directory.display();
        if leftover.removed {
            eprintln!("removed {directory}, left by a comparison that was killed");
        } else {
            for mount in leftover.mounts {
                eprintln!(
                    "a killed comparison left a mount whose daemon is unknown; unmount it with \
                     `umount {}`",
                    mount.display()
                );
            }
        }
    }
    Ok(())
}

pub(super) fn quoted(path: &Path) -> String {
    fslab_report::quoted(&path.display().to_string())
}
