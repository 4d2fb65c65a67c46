//! Step `unit`: runs every test of the workspace, each in its own process, and counts the results.
//!
//! A test that can't run here appends a line `SKIP <test>: <reason>` to the file in the variable
//! `FSLAB_SKIP_LOG` (see docs/guide/src/how-to/test-fslab.md). Rust's test harness can't report
//! skipped tests and counts such a test as passed; this module corrects the count. A random test
//! appends its name to the file in the variable `FSLAB_SEED_LOG`. `xtask/random-tests.txt` must
//! list exactly these names.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

use super::{Context, Step, build};
use crate::nextest::{self, Event, TestResult};
use crate::tally::{Skip, Tally};

/// The step `unit`.
pub const STEP: Step = Step {
    name: "unit",
    help: "every test: unit, model, conformance, crash, formats, mounted",
    run,
};

/// The tests that draw a seed, one per line: binary and name.
const RANDOM_TESTS: &str = include_str!("../../random-tests.txt");

/// Number of tests that run at the same time, per processor. It is above one, because most tests
/// wait for devices and daemons.
const TESTS_A_PROCESSOR: usize = 2;

fn run(context: &Context) -> Result<Tally> {
    let skips = tempfile::NamedTempFile::new().context("cannot create the log of skipped tests")?;
    let seeds = tempfile::NamedTempFile::new().context("cannot create the log of random seeds")?;
    let mut command = nextest::command(context.target_directory())?;
    command.arg("run").arg("--binaries-metadata").arg(build::binaries(context));
    command.arg("--cargo-metadata").arg(build::metadata_of_cargo(context));
    command.args(["--no-fail-fast", "--test-threads", &threads().to_string()]);
    command.env("FSLAB_SKIP_LOG", skips.path()).env("FSLAB_SEED_LOG", seeds.path());
    let (mut tally, mut slow) = (Tally::default(), Vec::new());
    let status = nextest::run(&mut command, |event| {
        tally += of_event(event);
        slow.push((event.time_s, event.name.clone()));
    })?;
    print_slowest(slow);
    if !status.success() && tally.is_good() {
        tally += Tally::fail("nextest failed before or outside the tests; see above");
    }
    let tally = with_skips(tally, &read(skips.path())?);
    Ok(with_random_tests(tally, RANDOM_TESTS, &read(seeds.path())?))
}

fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from) * TESTS_A_PROCESSOR
}

fn read(log: &Path) -> Result<String> {
    fs::read_to_string(log).with_context(|| format!("cannot read {}", log.display()))
}

/// Prints the tests that took longest. If the step takes too long, look at these first.
fn print_slowest(mut tests: Vec<(f64, String)>) {
    const SHOWN: usize = 60;
    tests.sort_by(|one, other| other.0.total_cmp(&one.0));
    println!("slowest tests:");
    tests.iter().take(SHOWN).for_each(|(time_s, name)| println!("{time_s:>8.1} s  {name}"));
}

fn of_event(event: &Event) -> Tally {
    match event.result {
        TestResult::Passed => Tally::pass(),
        TestResult::Failed => Tally::fail(&event.name),
        // Only measurements are marked as ignored. CI never runs them, because it must not judge by
        // times.
        TestResult::Ignored => {
            let (test, reason) = (event.name.clone(), "a measurement".to_owned());
            let skip = Skip { test, reason, allowed: true };
            Tally { skipped: vec![skip], ..Tally::default() }
        }
    }
}

/// Moves the skips in the log from the passed to the skipped tests. A skip of a single case,
/// written `test[case]`, is only added, because the test's other cases did run. If a test was
/// skipped and also failed, only the failure counts.
fn with_skips(mut tally: Tally, log: &str) -> Tally {
    let mut seen = Vec::new();
    let skips = log.lines().filter_map(|line| line.strip_prefix("SKIP ")?.split_once(": "));
    for (test, reason) in skips {
        let failed = tally.failed.iter().any(|name| is_same_test(name, base(test)));
        if failed || seen.contains(&test) {
            continue;
        }
        seen.push(test);
        if base(test) == test {
            tally.passed = tally.passed.saturating_sub(1);
        }
        let skip = Skip { test: test.into(), reason: reason.into(), allowed: false };
        tally.skipped.push(skip);
    }
    tally
}

/// Returns whether `name`, a test name with its full path, refers to `test`, whose path may be
/// shorter.
fn is_same_test(name: &str, test: &str) -> bool {
    let path = name.strip_suffix(test);
    path.is_some_and(|path| path.is_empty() || path.ends_with([':', '$', ' ']))
}

fn base(test: &str) -> &str {
    test.split_once('[').map_or(test, |(test, _)| test)
}

/// Adds a failure for each test that drew a seed but is not listed. If all tests ran and passed,
/// also adds a failure for each listed test that drew no seed.
fn with_random_tests(mut tally: Tally, listed: &str, drawn: &str) -> Tally {
    let listed: BTreeSet<_> = listed.lines().filter(|line| !line.starts_with('#')).collect();
    let drawn: BTreeSet<_> = drawn.lines().collect();
    let all_ran = tally.is_good() && tally.skipped.iter().all(|skip| skip.allowed);
    for name in drawn.difference(&listed) {
        tally += Tally::fail(format!("random tests: xtask/random-tests.txt lacks {name}"));
    }
    for name in listed.difference(&drawn).filter(|_| all_ran) {
        tally += Tally::fail(format!(
            "random tests: xtask/random-tests.txt lists {name}, but that test drew no seed"
        ));
    }
    tally
}

/// Returns the tests that draw a seed, as binary and name.
pub fn random_tests() -> impl Iterator<Item = (&'static str, &'static str)> {
    RANDOM_TESTS.lines().filter(|line| !line.starts_with('#')).filter_map(|l| l.split_once(' '))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted() -> Tally {
        let event =
            |name: &str, result| Event { name: format!("x::it {name}"), result, time_s: 1.0 };
        let events = [
            event("leaf::reads", TestResult::Passed),
            event("leaf::mounted", TestResult::Passed),
            event("every_layer", TestResult::Passed),
            event("leaf::writes", TestResult::Failed),
            event("leaf::huge", TestResult::Ignored),
        ];
        let mut tally = Tally::default();
        events.iter().for_each(|event| tally += of_event(event));
        tally
    }

    #[test]
    fn ignored_measurements_count_as_allowed_skips() {
        let tally = counted();
        assert_eq!(tally.counts(), "3 passed, 1 failed, 1 skipped");
        assert!(tally.skipped[0].allowed);
    }

    #[test]
    fn a_logged_skip_is_not_a_pass() {
        let log = "SKIP leaf::mounted: no /dev/fuse: none\nSKIP leaf::mounted: again\n";
        let tally = with_skips(counted(), log);
        assert_eq!(tally.counts(), "2 passed, 1 failed, 2 skipped");
        assert_eq!(tally.skipped[1].reason, "no /dev/fuse: none");
        assert_eq!(tally.requiring_all().counts(), "2 passed, 2 failed, 1 skipped");
    }

    #[test]
    fn skipped_case_keeps_its_test_counted_and_hides_no_failure() {
        let log = "SKIP every_layer[null:labels]: no labels\nSKIP leaf::writes: nothing to try\n";
        let tally = with_skips(counted(), log);
        assert_eq!(tally.counts(), "3 passed, 1 failed, 2 skipped");
        assert_eq!(tally.skipped[1].test, "every_layer[null:labels]");
    }

    #[test]
    fn skip_is_counted_although_a_longer_name_failed() {
        let tally = with_skips(counted(), "SKIP rites: no /dev/fuse\n");
        assert_eq!(tally.counts(), "2 passed, 1 failed, 2 skipped");
    }

    #[test]
    fn list_of_random_tests_must_match_the_drawn_tests() {
        let tally = || Tally { passed: 2, ..Tally::default() };
        let check = |listed, drawn| with_random_tests(tally(), listed, drawn).failed;
        assert!(check("# words\na x\nb y\n", "b y\na x\nb y\n").is_empty());
        assert!(check("a x\n", "a x\nb y\n")[0].contains("lacks b y"));
        assert!(check("a x\nb y\n", "a x\n")[0].contains("lists b y, but"));
        let mut failed = Tally::fail("b y");
        failed = with_random_tests(failed, "a x\nb y\n", "a x\n");
        assert_eq!(failed.failed.len(), 1, "it failed before it drew its seed");
    }
}
