//! `cargo xtask explore`: runs the random tests with new seeds for a given time.
//!
//! `cargo xtask test` always uses the same seed. This command draws new seeds, gives every random
//! test about the same time, and prints each seed that made a test fail. A failing seed should
//! become a regression test, together with the fix.

use std::fs::{self, File};
use std::io::Read;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::steps::{self, Context, build, unit};
use crate::tally::Tally;
use crate::{process, summary};

/// The duration and the tests.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Start no new tests after this many minutes, and finish the running ones
    #[arg(long, default_value_t = 30)]
    minutes: u64,
    /// Run only tests whose binary and name contain this text
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Number of tests that run at the same time [default: one per processor]
    #[arg(long)]
    jobs: Option<usize>,
    /// List the random tests, without running them
    #[arg(long)]
    list: bool,
}

impl Args {
    /// Runs the tests and prints a table; succeeds if no seed failed.
    pub fn run(&self) -> Result<bool> {
        let is_wanted = |(binary, name): &(&str, &str)| {
            self.only.as_ref().is_none_or(|text| format!("{binary} {name}").contains(text))
        };
        let tests: Vec<_> = unit::random_tests().filter(is_wanted).collect();
        if self.list {
            tests.iter().for_each(|(binary, name)| println!("{binary} {name}"));
            return Ok(true);
        }
        ensure!(!tests.is_empty(), "no random test contains {:?}", self.only);
        let context = Context::new()?;
        (steps::find("build")?.run)(&context)?;
        let programs = programs(&context)?;
        let subjects = tests.iter().map(|(binary, name)| subject(&programs, binary, name));
        let subjects = Mutex::new(subjects.collect::<Result<Vec<_>>>()?);
        let deadline = Instant::now() + Duration::from_secs(60 * self.minutes);
        let jobs =
            self.jobs.unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from));
        thread::scope(|scope| {
            for _ in 0..jobs {
                scope.spawn(|| explore(&subjects, deadline));
            }
        });
        let subjects = subjects.into_inner().unwrap_or_else(PoisonError::into_inner);
        println!("\n{:>6} {:>9} {:>7}  test", "seeds", "minutes", "failed");
        let mut tally = Tally::default();
        for Subject { name, spent, seeds, failed, .. } in &subjects {
            let minutes = spent.as_secs_f64() / 60.0;
            println!("{seeds:>6} {minutes:>9.1} {:>7}  {name}", failed.len());
            tally.passed += seeds - failed.len();
            tally.failed.extend(failed.iter().map(|how| format!("{name}: {how}")));
        }
        Ok(summary::close(&tally))
    }
}

/// A random test and its results.
#[derive(Debug, Default)]
struct Subject {
    /// Binary and name of the test.
    name: String,
    /// Command that runs the test; `None` while it runs.
    command: Option<Command>,
    spent: Duration,
    seeds: usize,
    failed: Vec<String>,
}

/// Until the deadline, repeatedly runs the test with the shortest total run time so far.
fn explore(subjects: &Mutex<Vec<Subject>>, deadline: Instant) {
    while Instant::now() < deadline && !process::interrupted() {
        let lock = || subjects.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((index, mut command)) = next(&mut lock()) else {
            thread::sleep(Duration::from_millis(50));
            continue;
        };
        let start = Instant::now();
        let outcome = one(&mut command);
        let mut subjects = lock();
        let Some(subject) = subjects.get_mut(index) else { return };
        subject.command = Some(command);
        subject.spent += start.elapsed();
        subject.seeds += 1;
        match outcome {
            Ok(None) => {}
            Ok(Some((seed, output))) => {
                println!("FAILED: {} with FSLAB_SEED={seed}\n{output}", subject.name);
                subject.failed.push(format!("FSLAB_SEED={seed}"));
            }
            Err(error) => subject.failed.push(format!("{error:#}")),
        }
    }
}

/// Takes the idle test with the shortest total run time so far.
fn next(subjects: &mut [Subject]) -> Option<(usize, Command)> {
    let idle = subjects.iter_mut().enumerate().filter(|(_, subject)| subject.command.is_some());
    let (index, subject) = idle.min_by_key(|(_, subject)| subject.spent)?;
    Some((index, subject.command.take()?))
}

/// Runs a test once with a new seed. If it failed, returns the seed and the output.
fn one(command: &mut Command) -> Result<Option<(u64, String)>> {
    let seed = seed()?;
    let output = process::output(command.env("FSLAB_SEED", seed.to_string()))?;
    if !output.status.success() {
        return Ok(Some((seed, format!("{}{}", output.stdout, output.stderr))));
    }
    let has_run = output.stdout.contains("1 passed");
    ensure!(has_run, "the test did not run; `cargo xtask test` checks the list of random tests");
    Ok(None)
}

/// Draws a seed of 48 bits, so that a test can add to it without overflow.
fn seed() -> Result<u64> {
    let mut bytes = [0; 8];
    let mut source = File::open("/dev/urandom").context("/dev/urandom")?;
    source.read_exact(&mut bytes[..6]).context("/dev/urandom")?;
    Ok(u64::from_le_bytes(bytes))
}

/// Reads the list of test programs that the step `build` wrote.
fn programs(context: &Context) -> Result<Value> {
    let file = build::binaries(context);
    let text = fs::read(&file).with_context(|| file.display().to_string())?;
    let mut list: Value = serde_json::from_slice(&text).context("the list of test programs")?;
    Ok(list["rust-binaries"].take())
}

fn subject(programs: &Value, binary: &str, name: &str) -> Result<Subject> {
    let text = |key: &str| programs[binary][key].as_str();
    let program = text("binary-path").with_context(|| format!("no test program {binary}"))?;
    let folder = folder_of(text("package-id").context("a test program has no package")?)?;
    let mut command = Command::new(program);
    command.args(["--exact", name, "--nocapture"]).current_dir(&folder);
    command.env("CARGO_MANIFEST_DIR", &folder);
    let name = format!("{binary} {name}");
    Ok(Subject { name, command: Some(command), ..Subject::default() })
}

/// Returns the folder in a package id such as `path+file:///clone/crates/fslab#0.1.0`.
fn folder_of(package: &str) -> Result<PathBuf> {
    let path = package.strip_prefix("path+file://").and_then(|rest| rest.rsplit_once('#'));
    let (path, _) =
        path.with_context(|| format!("{package} is not a package of this workspace"))?;
    Ok(PathBuf::from(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_packages_are_found() {
        let folder = folder_of("path+file:///clone/crates/fslab#0.1.0").unwrap();
        assert_eq!(folder, PathBuf::from("/clone/crates/fslab"));
        assert!(folder_of("registry+https://somewhere#serde@1.0.0").is_err());
    }

    #[test]
    fn the_test_with_the_least_time_is_next() {
        let subject = |spent: u64, is_running: bool| Subject {
            command: (!is_running).then(|| Command::new("x")),
            spent: Duration::from_secs(spent),
            ..Subject::default()
        };
        let mut subjects = [subject(9, false), subject(1, true), subject(5, false)];
        assert_eq!(next(&mut subjects).unwrap().0, 2);
        assert_eq!(next(&mut subjects).unwrap().0, 0);
        assert!(next(&mut subjects).is_none());
    }
}
