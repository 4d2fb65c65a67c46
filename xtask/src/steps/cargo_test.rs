//! Step `unit`: `cargo test` over the workspace, with its results counted.
//!
//! A test that can't run here appends a line `SKIP <test>: <reason>` to the file that
//! `FSLAB_SKIP_LOG` names (see docs/guide/src/testing.md). libtest knows no skipped tests and
//! counts it as passed; this module puts that right.

use std::fs;

use anyhow::{Context as _, Result};

use super::{Context, Step};
use crate::process;
use crate::tally::{Skip, Tally};

/// The step.
pub const STEP: Step =
    Step { name: "unit", help: "cargo test: unit, model, conformance, crash, formats", run };

fn run(context: &Context) -> Result<Tally> {
    let log = tempfile::NamedTempFile::new().context("cannot make the log of skips")?;
    let mut command = context.cargo();
    command.args(["test", "--locked", "--workspace", "--all-features", "--no-fail-fast"]);
    // The lines are read: no colours.
    command.env("FSLAB_SKIP_LOG", log.path()).env("CARGO_TERM_COLOR", "never");
    let mut lines = Vec::new();
    let status = process::run_lines(&mut command, |line| lines.push(line.to_owned()))?;
    let skips = fs::read_to_string(log.path()).context("cannot read the log of skips")?;
    let mut tally = with_skips(count(&lines), &skips);
    if !status.success() && tally.is_good() {
        tally += Tally::fail("cargo test failed before or outside its tests; see above");
    }
    Ok(tally)
}

/// Counts the lines `test NAME ... RESULT` and checks them against the lines `test result:`.
fn count(lines: &[String]) -> Tally {
    let mut tally = Tally::default();
    let mut announced = Announced::default();
    for line in lines {
        if let Some(result) = line.strip_prefix("test result: ") {
            announced.add(result);
        } else if let Some((name, result)) = test_line(line) {
            tally += result_of(name, result);
        }
    }
    // A test that prints while libtest writes its line can tear the line; the sums know better.
    tally.passed = announced.passed;
    for _ in tally.failed.len()..announced.failed {
        tally += Tally::fail("a test whose name was not readable in the output");
    }
    tally
}

fn test_line(line: &str) -> Option<(&str, &str)> {
    line.strip_prefix("test ")?.split_once(" ... ")
}

fn result_of(name: &str, result: &str) -> Tally {
    match result.split_once(',').map_or(result, |(word, _)| word).trim() {
        "FAILED" => Tally::fail(name),
        "ignored" => {
            let reason = result.split_once(", ").map_or("ignored without a reason", |(_, why)| why);
            let mut tally = Tally::skip(name, reason);
            tally.skipped.iter_mut().for_each(|skip| skip.allowed = is_measurement(&skip.reason));
            tally
        }
        _ => Tally::default(),
    }
}

/// Measurements lie beside the tests that they share their means with. CI must not judge by times,
/// and never runs them.
fn is_measurement(reason: &str) -> bool {
    reason.starts_with("a measurement")
}

#[derive(Default)]
struct Announced {
    passed: usize,
    failed: usize,
}

impl Announced {
    /// Adds up a line such as `ok. 3 passed; 0 failed; 1 ignored; 0 measured; ...`.
    fn add(&mut self, result: &str) {
        self.passed += number_before(result, " passed");
        self.failed += number_before(result, " failed");
    }
}

fn number_before(text: &str, word: &str) -> usize {
    let before = text.split_once(word).map_or("", |(before, _)| before);
    before.rsplit(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// Takes the skips of the log out of the passed tests. A skip of one case of a test, written
/// `test[case]`, is added, because the test's other cases did run. A test that also failed (it
/// does where all tests are required) stays a failure.
fn with_skips(mut tally: Tally, log: &str) -> Tally {
    let mut seen = Vec::new();
    for (test, reason) in log.lines().filter_map(skip_line) {
        let failed = tally.failed.iter().any(|name| name.starts_with(base(test)));
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

fn skip_line(line: &str) -> Option<(&str, &str)> {
    line.strip_prefix("SKIP ")?.split_once(": ")
}

fn base(test: &str) -> &str {
    test.split_once('[').map_or(test, |(test, _)| test)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(output: &str, log: &str) -> Tally {
        let lines: Vec<_> = output.lines().map(str::to_owned).collect();
        with_skips(count(&lines), log)
    }

    const OUTPUT: &str = "\
running 4 tests
test leaf::reads ... ok
test leaf::mounted ... ok
test leaf::writes ... FAILED
test leaf::huge ... ignored, takes an hour
test result: FAILED. 2 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s
running 1 test
test crates/x/src/lib.rs - f (line 3) ... ok
test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s
";

    #[test]
    fn results_of_all_binaries_are_summed() {
        let tally = counted(OUTPUT, "");
        assert_eq!(tally.counts(), "3 passed, 1 failed, 1 skipped");
        assert_eq!(tally.failed, ["leaf::writes"]);
        assert_eq!(tally.skipped[0].reason, "takes an hour");
        assert!(!tally.skipped[0].allowed);
    }

    #[test]
    fn measurements_are_no_tests_that_could_fail() {
        let tally = counted("test speed::fast ... ignored, a measurement: wants quiet\n", "");
        assert!(tally.skipped[0].allowed);
    }

    #[test]
    fn a_logged_skip_is_not_a_pass() {
        let log = "SKIP leaf::mounted: no /dev/fuse: none\nSKIP leaf::mounted: again\n";
        let tally = counted(OUTPUT, log);
        assert_eq!(tally.counts(), "2 passed, 1 failed, 2 skipped");
        assert_eq!(tally.skipped[1].reason, "no /dev/fuse: none");
    }

    #[test]
    fn a_skipped_case_leaves_its_test_passed() {
        let tally = counted(OUTPUT, "SKIP leaf::reads[xfs]: no mkfs.xfs\n");
        assert_eq!(tally.counts(), "3 passed, 1 failed, 2 skipped");
    }

    #[test]
    fn a_skip_that_failed_is_a_failure_only() {
        let tally = counted(OUTPUT, "SKIP leaf::writes: no root\n");
        assert_eq!(tally.counts(), "3 passed, 1 failed, 1 skipped");
    }

    #[test]
    fn a_failure_with_a_torn_line_is_still_counted() {
        let output = "test leaf::wriSKIP\ntest result: FAILED. 0 passed; 1 failed; 0 ignored;";
        assert_eq!(counted(output, "").counts(), "0 passed, 1 failed, 0 skipped");
    }
}
