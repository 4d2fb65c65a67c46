//! `fslab compare`: runs a plan, prints the table and writes the page.

mod host;

use std::fs;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use fslab_measure::plan::Form;
use fslab_measure::report::{self, Report};
use fslab_measure::sample::{self, EndReason, Note};
use fslab_measure::{Observer, Plan, RunOptions, remove_leftovers, samples_path};
use fslab_sys::signals::Interrupt;
use indicatif::{ProgressBar, ProgressStyle};

use crate::exit::{Code, Coded};

const DEFAULT_PLAN: &str = include_str!("../../../../plans/default.toml");
const QUICK_PLAN: &str = include_str!("../../../../plans/quick.toml");
const IN_PROCESS_PLAN: &str = include_str!("../../../../plans/in-process.toml");

/// Arguments of `fslab compare`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The plan; without one, ext4, XFS, Btrfs and ext4 under the null layer are compared
    plan: Option<PathBuf>,
    /// Use the quick form of the plan, which ends within minutes
    #[arg(long)]
    quick: bool,
    /// Directory for the samples and the page; made anew [default: fslab-report-TIME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Seed for everything random [default: the plan's, else drawn from the clock]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Rounds, instead of the plan's
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rounds: Option<u32>,
    /// Print the computed report as JSON instead of tables
    #[arg(long)]
    json: bool,
    /// Where images and mount points are made [default: the output directory]
    #[arg(long, value_name = "DIR")]
    work_dir: Option<PathBuf>,
    /// Run this command in each target instead of the plan's workloads
    #[arg(last = true, value_name = "COMMAND")]
    run: Vec<String>,
}

impl Args {
    /// Runs the comparison.
    pub fn run(self) -> Result<()> {
        let interrupt = Interrupt::on_signals().context("taking over SIGINT and SIGTERM")?;
        let (plan, mut remarks) = self.plan()?;
        if cfg!(debug_assertions) {
            remarks.push(
                "this fslab was built without optimisation: \
                 it and its layers are several times slower than they need be"
                    .to_owned(),
            );
        }
        let seed = self.seed.or(plan.seed).unwrap_or_else(seed_from_clock);
        let rounds = self.rounds.unwrap_or(plan.rounds);
        let out = self.out.clone().unwrap_or_else(default_out);
        make_out(&out)?;
        let work_parent = self.work_dir.clone().unwrap_or_else(|| out.clone());
        report_leftovers(&work_parent)?;
        let command = self.command(seed, rounds);
        let samples = samples_path(&out);
        eprintln!("{}: seed {seed}, {rounds} rounds, samples in {}", plan.name, samples.display());
        let options = RunOptions {
            plan: &plan,
            seed,
            rounds,
            work_parent: &work_parent,
            samples: &samples,
            command: &command,
            host: &host::Binary::new()?,
            interrupt,
            remarks,
        };
        let mut progress = Progress::new();
        let outcome = fslab_measure::run(options, &mut progress)?;
        progress.finish();
        show(&samples, &out.join("report.html"), self.json)?;
        match outcome.end.reason {
            EndReason::Interrupted => Err(Coded {
                code: Code::Failure,
                message: "interrupted; the samples so far are kept and reported".to_owned(),
            }
            .into()),
            EndReason::Finished | EndReason::TimeLimit => Ok(()),
        }
    }

    /// The plan, and what must be said on top of the report about its choice.
    fn plan(&self) -> Result<(Plan, Vec<String>)> {
        let (plan, remarks) = self.plan_alone()?;
        let given = (!self.run.is_empty()).then(|| self.run.clone());
        Ok((given.into_iter().fold(plan, Plan::with_command), remarks))
    }

    fn plan_alone(&self) -> Result<(Plan, Vec<String>)> {
        let form = if self.quick { Form::Quick } else { Form::Full };
        if let Some(path) = &self.plan {
            return Ok((Plan::read(path, form)?, Vec::new()));
        }
        if let Some(obstacle) = obstacle_to_mounting() {
            let remark = format!(
                "{obstacle}: file systems within the process and this directory were measured \
                 instead of mounted ones"
            );
            return Ok((Plan::parse("the built-in plan", IN_PROCESS_PLAN, form)?, vec![remark]));
        }
        let text = if self.quick { QUICK_PLAN } else { DEFAULT_PLAN };
        Ok((Plan::parse("the built-in plan", text, form)?, Vec::new()))
    }

    /// The command that repeats this comparison.
    fn command(&self, seed: u64, rounds: u32) -> String {
        let mut words = vec!["fslab compare".to_owned()];
        words.extend(self.plan.as_ref().map(|plan| quoted(plan)));
        words.extend(self.quick.then(|| "--quick".to_owned()));
        words.push(format!("--seed {seed} --rounds {rounds}"));
        words.extend(self.work_dir.as_ref().map(|path| format!("--work-dir {}", quoted(path))));
        if !self.run.is_empty() {
            words.push("--".to_owned());
            words.extend(self.run.iter().map(|word| quoted(Path::new(word))));
        }
        words.join(" ")
    }
}

/// Computes the report from the samples, writes the page and prints the table.
pub(super) fn show(samples: &Path, page: &Path, json: bool) -> Result<()> {
    let report = Report::new(&sample::read(samples)?);
    fs::write(page, report::html(&report)?).with_context(|| page.display().to_string())?;
    if json {
        println!("{}", report::json(&report)?);
    } else {
        print!("{}", report::terminal(&report)?);
    }
    eprintln!("report: {}", page.display());
    Ok(())
}

fn seed_from_clock() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    // Short enough to be typed again.
    (now.as_nanos() % 1_000_000_007) as u64
}

fn default_out() -> PathBuf {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    PathBuf::from(format!("fslab-report-{}", now.as_secs()))
}

fn make_out(out: &Path) -> Result<()> {
    fs::create_dir_all(out).with_context(|| out.display().to_string())?;
    let samples = samples_path(out);
    if !samples.exists() {
        return Ok(());
    }
    let message = format!(
        "{} exists; samples are never overwritten: choose another --out",
        samples.display()
    );
    Err(Coded { code: Code::BadInput, message }.into())
}

/// What forbids mounting here, if anything does.
fn obstacle_to_mounting() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("not run as root".to_owned());
    }
    ["/dev/loop-control", "/dev/fuse"]
        .into_iter()
        .find(|path| !Path::new(path).exists())
        .map(|path| format!("{path} is missing"))
}

/// Removes what killed comparisons have left, and names what it may not remove.
fn report_leftovers(work_parent: &Path) -> Result<()> {
    for leftover in remove_leftovers(work_parent)? {
        let directory = leftover.directory.display();
        if leftover.removed {
            eprintln!("removed {directory}, left by a comparison that was killed");
        } else {
            for mount in leftover.mounts {
                eprintln!(
                    "left mounted by nobody known: remove it with `umount {}`",
                    mount.display()
                );
            }
        }
    }
    Ok(())
}

fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    if text.chars().all(plain) { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

/// A progress bar with the time left, on a terminal only.
struct Progress {
    bar: ProgressBar,
}

impl Progress {
    fn new() -> Self {
        if !std::io::stderr().is_terminal() {
            return Self { bar: ProgressBar::hidden() };
        }
        let bar = ProgressBar::new(0);
        let template = "{bar:30} {pos}/{len} runs, {eta} left: {msg}";
        bar.set_style(
            ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()),
        );
        Self { bar }
    }

    fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

impl Observer for Progress {
    fn progress(&mut self, done: u64, total: u64, next: &str) {
        self.bar.set_length(total);
        self.bar.set_position(done);
        self.bar.set_message(next.to_owned());
    }

    fn note(&mut self, note: &Note) {
        let about = note.target.as_deref().unwrap_or("note");
        let line = format!("{about}: {}", note.text);
        // A hidden bar prints nothing.
        if self.bar.is_hidden() {
            eprintln!("{line}");
        } else {
            self.bar.println(line);
        }
    }
}
