//! `cargo xtask nightly`: runs the long variants of the checks, which take too long for
//! `cargo xtask test`.
//!
//! Each variant is a command with a time limit. A variant that exceeds its limit is stopped and
//! counted as failed. If a variant can't run here, the output contains the reason. The last lines
//! of the output are a table and the counts.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use crate::steps::{Context, named};
use crate::tally::{Skip, Tally};
use crate::{environment, process, summary};

/// The forms to run.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Run only these forms, in their usual order
    #[arg(long, value_name = "FORM", value_delimiter = ',')]
    only: Vec<String>,
    /// List the forms with their time limits, without running them
    #[arg(long)]
    list: bool,
}

/// A long variant of a check.
struct Form {
    name: &'static str,
    limit_min: u64,
    help: &'static str,
    /// Environment variables, followed by the arguments of `cargo`.
    command: &'static str,
}

const fn form(
    name: &'static str,
    limit_min: u64,
    help: &'static str,
    command: &'static str,
) -> Form {
    Form { name, limit_min, help, command }
}

const FORMS: &[Form] = &[
    form(
        "doc",
        15,
        "the code's documentation builds without a warning",
        "RUSTDOCFLAGS=-Dwarnings doc --locked --workspace --no-deps --all-features \
         --document-private-items",
    ),
    form(
        "examples",
        15,
        "the examples in the documentation of crates compile and run",
        "test --locked --workspace --doc",
    ),
    form(
        "pjdfstest",
        20,
        "pjdfstest over every layer, tiers and the ext2 engine",
        "xtask suite pjdfstest",
    ),
    form(
        "fsx",
        30,
        "fsx over every layer and the ext2 engine, two seeds of 20,000 operations each",
        "xtask suite fsx",
    ),
    form(
        "sca-life",
        60,
        "git, a database, tar and rsync run on a mount of every layer",
        "xtask suite sca-life",
    ),
    // The variables set the number of cases of random tests, or enable all layers in a test.
    form(
        "longer",
        360,
        "every test; random tests run many more cases, and mounted tests use all layers",
        "FSLAB_AGE_CASES=20000 FSLAB_CONVERSION_KILLS=300 FSLAB_CRASH_SCRIPTS=200 \
         FSLAB_DATASET_CASES=20000 \
         FSLAB_EXT2_CUTS=500 FSLAB_EXT2_DAMAGES=100000 FSLAB_EXT2_SCRIPTS=300 \
         FSLAB_EXT2_VERDICTS=3000 FSLAB_FLIPS=10000 FSLAB_INTERRUPTS=1000 FSLAB_KILLS=300 \
         FSLAB_MODEL_CASES=2000 FSLAB_REQUEST_CASES=100000 FSLAB_ROUNDS=1000 \
         FSLAB_STORED_CASES=20000 FSLAB_TIER_DRILL=10000 FSLAB_TIER_FAILURES=1 \
         FSLAB_TIER_FSX=20000 FSLAB_TIER_KILLS=300 FSLAB_TIER_SCRIPTS=200 \
         FSLAB_TIER_SIGNALS=500 FSLAB_EVERY_LAYER=1 NEXTEST_PROFILE=nightly xtask test \
         --no-budget --only build,unit",
    ),
    form(
        "measured",
        60,
        "the measurements that have a limit; needs an otherwise idle machine",
        "test --release --locked --workspace --all-features --no-fail-fast -- --ignored \
         --test-threads=1",
    ),
    form("sql", 90, "the SQL engine is built, linted and tested, also against DuckDB", "xtask sql"),
    form(
        "guide",
        60,
        "all command blocks of README.md and the guide, including the slow ones",
        "xtask guide",
    ),
    form("book", 15, "mdBook builds the guide, and no link of its pages is broken", "xtask book"),
    form(
        "deb",
        15,
        "the Debian package with an optimised program: made, installed, used and removed",
        "xtask deb",
    ),
    form(
        "clean-root",
        30,
        "the package in a minimal Debian: install, tutorial, upgrade, removal",
        "xtask deb --clean-root",
    ),
    form(
        "vm",
        60,
        "kept mounts in a virtual machine that is suspended, rebooted and reset",
        "xtask vm",
    ),
    form("explore", 90, "random tests with new seeds", "xtask explore --minutes 60"),
    form("fuzz", 240, "every fuzz target for ten minutes; needs cargo-fuzz", "xtask fuzz"),
    form(
        "self-test",
        60,
        "the rates of false and of missed differences in comparisons; needs an otherwise idle \
         machine",
        "run --release --locked --package fslab -- compare --self-test",
    ),
    form(
        "reproduce",
        240,
        "every claim of the five papers in full",
        "run --release --locked --package fslab -- reproduce all --full --out \
         target/xtask/papers",
    ),
];

impl Args {
    /// Runs the chosen variants and prints the table; succeeds if nothing failed.
    pub fn run(&self) -> Result<bool> {
        let forms = chosen(&self.only)?;
        if self.list {
            for form in &forms {
                println!("{:<10} {:>4} min  {}", form.name, form.limit_min, form.help);
            }
            let limit: u64 = forms.iter().map(|form| form.limit_min).sum();
            println!("all of them together take at most {limit} minutes");
            return Ok(true);
        }
        let logs = environment::workspace_root().join("target/xtask");
        fs::create_dir_all(&logs).with_context(|| logs.display().to_string())?;
        let (context, mut tally, mut table) = (Context::new()?, Tally::default(), String::new());
        for form in forms {
            let (log, start) = (logs.join(format!("nightly-{}.log", form.name)), Instant::now());
            println!("== {}: {}; log: {}", form.name, form.help, log.display());
            let one = form.run(&context, &log).unwrap_or_else(|error| {
                Tally::fail(format!("{}: {error:#}; see {}", form.name, log.display()))
            });
            let minutes = start.elapsed().as_secs_f64() / 60.0;
            table += &format!("{:<10} {minutes:>6.1} min  {}\n", form.name, one.counts());
            tally += one;
            if process::interrupted() {
                break;
            }
        }
        print!("\n{table}");
        Ok(summary::close(&tally))
    }
}

fn chosen(names: &[String]) -> Result<Vec<&'static Form>> {
    for name in names {
        named("form", name, FORMS.iter().map(|form| (form.name, form)))?;
    }
    let is_wanted = |form: &&Form| names.is_empty() || names.iter().any(|name| name == form.name);
    Ok(FORMS.iter().filter(is_wanted).collect())
}

impl Form {
    fn run(&self, context: &Context, log: &Path) -> Result<Tally> {
        let output = File::create(log).with_context(|| log.display().to_string())?;
        let mut command: Command = context.cargo();
        let words: Vec<&str> = self.command.split_whitespace().collect();
        let variables: Vec<_> = words.iter().map_while(|word| word.split_once('=')).collect();
        command.args(&words[variables.len()..]).envs(variables);
        command.env_remove("FSLAB_CACHE_TARGET");
        command.stdout(output.try_clone().context("cannot duplicate a descriptor")?).stderr(output);
        let limit = Duration::from_secs(60 * self.limit_min);
        let Some(status) = process::run_at_most(&mut command, limit)? else {
            bail!("did not finish within {} minutes", self.limit_min);
        };
        let text = fs::read_to_string(log).with_context(|| log.display().to_string())?;
        let mut tally = counted(&text);
        if !status.success() && tally.is_good() {
            bail!("ended with {status}");
        }
        for failure in &mut tally.failed {
            *failure = format!("{}: {failure}", self.name);
        }
        Ok(tally)
    }
}

/// Returns the counts in the last line of the output. Output without such a line counts as one
/// passed test.
fn counted(text: &str) -> Tally {
    let last = text.lines().last().unwrap_or_default();
    let number = |part: &str| {
        let (number, word) = part.split_once(' ')?;
        let number = number.parse().ok()?;
        ["passed", "failed", "skipped"].contains(&word).then_some(number)
    };
    let counts: Vec<usize> = last.split(", ").filter_map(number).collect();
    let [passed, failed, skipped] = counts[..] else { return Tally::pass() };
    let failure = |_| "see its log".to_owned();
    let skip = |_| Skip { test: "see its log".into(), reason: String::new(), allowed: false };
    Tally {
        passed,
        failed: (0..failed).map(failure).collect(),
        skipped: (0..skipped).map(skip).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_taken_from_the_last_line() {
        let tally = counted("words\n7 passed, 2 failed, 1 skipped\n");
        assert_eq!(tally.counts(), "7 passed, 2 failed, 1 skipped");
        assert_eq!(counted("compiled\n").counts(), "1 passed, 0 failed, 0 skipped");
    }

    #[test]
    fn unknown_forms_are_named() {
        let error = chosen(&["fuz".into()]).err().unwrap().to_string();
        assert!(error.contains("fuz") && error.contains("sca-life"), "{error}");
        assert_eq!(chosen(&[]).unwrap().len(), FORMS.len());
    }
}
