//! `cargo xtask test`: runs every check of the project, in named steps. CI runs only this command.
//!
//! A failed step does not stop the others. Independent steps run in parallel; each has its own log,
//! which is printed if the step fails. The last line of the output contains only the counts:
//! `N passed, N failed, N skipped`.

mod budget;
mod history;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};

use crate::scratch::Scratch;
use crate::step::{self, Outcome};
use crate::steps::{self, Context, PHASES, Step};
use crate::summary::{self, Done};
use crate::tally::Tally;
use crate::{environment, process};

use self::budget::Budget;

/// The steps to run.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Run only these steps, in their usual order
    #[arg(long, value_name = "STEP", value_delimiter = ',')]
    only: Vec<String>,
    /// Do not limit the processor time of steps, for runs with more test cases than usual
    #[arg(long)]
    no_budget: bool,
    /// List the steps, without running them
    #[arg(long)]
    list: bool,
}

impl Args {
    /// Runs the steps and prints the summary; succeeds if nothing failed.
    pub fn run(&self) -> Result<bool> {
        for name in &self.only {
            steps::find(name)?;
        }
        if self.list {
            steps::all().for_each(|step| println!("{:<12} {}", step.name, step.help));
            return Ok(true);
        }
        let start = Instant::now();
        let budget = Budget::read()?;
        let context = Context::new()?;
        let logs = environment::workspace_root().join("target/xtask");
        fs::create_dir_all(&logs).with_context(|| logs.display().to_string())?;
        let mut run = Run { context, logs, only: &self.only, scratch: None };
        let mut done = run.phases();
        drop(run);
        let elapsed = start.elapsed();
        for step in done.iter_mut().filter(|_| !self.no_budget) {
            budget.judge(step);
        }
        print!("{}", summary::render(&done, elapsed));
        println!("{}", budget.of_elapsed(elapsed, done.len() == steps::all().count()));
        history::keep(&done, elapsed)?;
        println!("{}", summary::total(&done).counts());
        Ok(done.iter().all(|step| step.tally.is_good()) && !process::interrupted())
    }
}

/// State that all steps of a run share.
struct Run<'a> {
    context: Context,
    logs: PathBuf,
    only: &'a [String],
    /// The file system for tests. It is made after the step `setup`, which installs mkfs.ext4.
    scratch: Option<Scratch>,
}

impl Run<'_> {
    fn phases(&mut self) -> Vec<Done> {
        let mut done = Vec::new();
        for (number, lanes) in PHASES.iter().enumerate() {
            if number == 1 {
                self.scratch = Scratch::new().unwrap_or_else(|error| {
                    println!(
                        "temporary files of tests are in {} ({error:#})",
                        std::env::temp_dir().display()
                    );
                    None
                });
            }
            let run = &*self;
            let ended: Vec<Vec<Done>> = thread::scope(|scope| {
                let started: Vec<_> =
                    lanes.iter().map(|lane| scope.spawn(move || run.lane(lane))).collect();
                started.into_iter().map(|lane| lane.join().unwrap_or_else(panicked)).collect()
            });
            done.extend(ended.into_iter().flatten());
        }
        done
    }

    fn lane(&self, lane: &'static [Step]) -> Vec<Done> {
        let wanted =
            |step: &&Step| self.only.is_empty() || self.only.iter().any(|n| n == step.name);
        let steps = lane.iter().filter(wanted).take_while(|_| !process::interrupted());
        steps.map(|step| self.step(step)).collect()
    }

    fn step(&self, step: &'static Step) -> Done {
        println!("== {}: {}", step.name, step.help);
        let (log, start) = (self.logs.join(format!("{}.log", step.name)), Instant::now());
        let Outcome { tally, cpu_s } = self.outcome(step, &log).unwrap_or_else(|error| Outcome {
            tally: Tally::fail(format!("{}: {error:#}", step.name)),
            cpu_s: 0.0,
        });
        let time = start.elapsed();
        if !tally.is_good() {
            print_log(step.name, &log);
        }
        let seconds = time.as_secs_f64();
        println!("== {}: {} in {seconds:.1} s; log: {}", step.name, tally.counts(), log.display());
        Done { name: step.name, time, cpu_s, tally }
    }

    fn outcome(&self, step: &Step, log: &Path) -> Result<Outcome> {
        let output = File::create(log).with_context(|| log.display().to_string())?;
        let result = tempfile::NamedTempFile::new().context("cannot make a file for the result")?;
        let mut command = step::command(step, result.path());
        command.env("CARGO_TARGET_DIR", self.context.target_directory());
        command.envs(self.scratch.iter().flat_map(Scratch::variables));
        command.stdout(output.try_clone().context("cannot duplicate a descriptor")?).stderr(output);
        let status = process::run_that_passes_signals_on(&mut command)?;
        ensure!(status.success(), "the step ended with {status}");
        Outcome::read(result.path())
    }
}

fn panicked(_: Box<dyn std::any::Any + Send>) -> Vec<Done> {
    let tally = Tally::fail("xtask itself panicked; see above");
    vec![Done { name: "xtask", time: std::time::Duration::ZERO, cpu_s: 0.0, tally }]
}

/// Prints the end of a log, where a step reports its failures.
fn print_log(step: &str, log: &Path) {
    const LINES: usize = 1500;
    match fs::read(log) {
        Ok(text) => {
            let text = String::from_utf8_lossy(&text);
            let lines: Vec<_> = text.lines().collect();
            let left_out = lines.len().saturating_sub(LINES);
            println!("-- end of the log of {step}, after {left_out} omitted lines:");
            lines[left_out..].iter().for_each(|line| println!("{line}"));
        }
        Err(error) => println!("-- the log of {step} can't be read: {error}"),
    }
}
