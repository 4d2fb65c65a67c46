//! Runs pjdfstest: about 400 test cases for the POSIX rules on names, ownership, modes and times.

use std::fs;

use anyhow::{Context, Result, ensure};

use super::{Options, Over, Suite};
use crate::stage::{Stage, Target};
use crate::tally::{Skip, Tally};
use crate::{environment, process};

/// The suite `pjdfstest`.
pub const SUITE: Suite = Suite {
    name: "pjdfstest",
    program: Some("pjdfstest"),
    over: Over::StacksAndTiers,
    quick: Options::NONE,
    run,
};

/// The test cases that can't run on a FUSE mount, each with its reason.
const ALLOWED_SKIPS: &str = include_str!("../../pjdfstest-skips.txt");

/// Test cases that fail on Btrfs itself, and therefore on layers over it, each with the reason.
/// Layers do not promise the behaviour that these cases test.
const BTRFS: &[(&str, &str)] = &[(
    "rename::updates_link_parent",
    "Btrfs does not count subdirectories in a directory's link count",
)];

const CONFIGURATION: &str = r#"
[features]
posix_fallocate = {}
utime_now = {}
utimensat = {}
rename_ctime = {}

[settings]
naptime = 0.01
allow_remount = false

[dummy_auth]
entries = [["nobody", "nogroup"], ["daemon", "daemon"]]
"#;

fn run(stage: &mut Stage, target: &Target, _options: &Options) -> Result<Tally> {
    let configuration = stage.beside("pjdfstest")?.join("configuration.toml");
    fs::write(&configuration, CONFIGURATION)?;
    let mut command = environment::tool("pjdfstest")?;
    command.arg("-c").arg(&configuration).arg("-p").arg(stage.directory());
    // Tests of renames between file systems need a second file system.
    command.arg("-s").arg(stage.beside("secondary")?).env("RUST_BACKTRACE", "0");
    let output = process::output(&mut command)?;
    let mut report = Report::parse(&output.stdout)
        .with_context(|| format!("pjdfstest wrote: {}", output.stderr.trim()))?;
    println!("{}", report.summary);
    let mut allowed = allowed_skips()?;
    if target.is_on_btrfs() {
        report.forgive(BTRFS);
        allowed.extend(BTRFS);
    }
    for case in report.of("FAILED") {
        println!("FAILED {}: {}", case.name, case.details);
    }
    Ok(report.judge(target, &allowed))
}

/// The output of pjdfstest.
#[derive(Debug, Default)]
struct Report {
    cases: Vec<Case>,
    summary: String,
}

/// A case, its result, and the details below it.
#[derive(Debug, PartialEq, Eq)]
struct Case {
    name: String,
    result: String,
    details: String,
}

impl Report {
    /// Parses `NAME   RESULT` lines, indented details below them, and the summary. The counts in
    /// the summary must match the parsed lines.
    fn parse(output: &str) -> Result<Self> {
        let mut report = Self::default();
        for line in output.lines() {
            if let Some(summary) = line.strip_prefix("Summary: ") {
                report.summary = summary.to_owned();
            } else if let Some((name, result)) = result_line(line) {
                let is_known = ["ok", "FAILED", "skipped"].contains(&result);
                ensure!(is_known, "unknown result {result:?} of {name}");
                let (name, result, details) = (name.into(), result.into(), String::new());
                report.cases.push(Case { name, result, details });
            } else if let Some(case) = report.cases.last_mut().filter(|_| !line.trim().is_empty()) {
                case.details += if case.details.is_empty() { "" } else { "; " };
                case.details += line.trim();
            }
        }
        let [failed, skipped, passed] =
            ["FAILED", "skipped", "ok"].map(|result| report.of(result).count());
        let (counted, summary) =
            (format!("{failed} failed, {skipped} skipped, {passed} passed"), &report.summary);
        ensure!(passed > 0, "no test case passed");
        ensure!(
            summary.starts_with(&counted),
            "the result lines give {counted:?}, but the summary gives {summary:?}"
        );
        Ok(report)
    }

    fn of(&self, result: &str) -> impl Iterator<Item = &Case> {
        self.cases.iter().filter(move |case| case.result == result)
    }

    /// Turns failures that are expected on the lower file system into skips.
    fn forgive(&mut self, known: &[(&str, &str)]) {
        for case in self.cases.iter_mut().filter(|case| case.result != "ok") {
            if let Some((_, why)) = known.iter().find(|(name, _)| *name == case.name) {
                (case.result, case.details) = ("skipped".to_owned(), (*why).to_owned());
            }
        }
    }

    fn judge(&self, target: &Target, allowed: &[(&str, &str)]) -> Tally {
        for (name, _) in allowed {
            if !self.of("skipped").any(|case| case.name == *name) {
                println!("note: {name} ran, although it is in the list of allowed skips");
            }
        }
        let full = |case: &Case| format!("pjdfstest on {target}: {}", case.name);
        let skip = |case: &Case| Skip {
            test: full(case),
            reason: case.details.clone(),
            allowed: allowed.iter().any(|(name, _)| *name == case.name),
        };
        Tally {
            passed: self.of("ok").count(),
            failed: self.of("FAILED").map(full).collect(),
            skipped: self.of("skipped").map(skip).collect(),
        }
    }
}

fn result_line(line: &str) -> Option<(&str, &str)> {
    let is_name = line.starts_with(|first: char| first.is_ascii_lowercase());
    let (name, result) = line.split_once("  ").filter(|_| is_name)?;
    let result = result.trim();
    (name.contains("::") && !result.contains(' ')).then_some((name, result))
}

/// Parses lines `NAME: REASON`; empty lines and lines that start with `#` are ignored.
fn parse_skips(text: &str) -> Result<Vec<(&str, &str)>> {
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let pair = |line| -> Result<_> {
        str::split_once(line, ": ")
            .with_context(|| format!("not of the form `NAME: REASON`: {line:?}"))
    };
    lines.map(pair).collect()
}

fn allowed_skips() -> Result<Vec<(&'static str, &'static str)>> {
    parse_skips(ALLOWED_SKIPS).context("xtask/pjdfstest-skips.txt")
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "\
utimensat::order                                 ok
rename::preserve_metadata::fifo                  FAILED
\tassertion failed
  left: 1

link::erofs_named                                skipped
\tRemounts are not allowed

Summary: 1 failed, 1 skipped, 1 passed, 0 expected failures, 3 total
";

    fn ext4() -> Target {
        "ext4".parse().unwrap()
    }

    #[test]
    fn a_report_is_read_with_its_details() {
        let report = Report::parse(OUTPUT).unwrap();
        let details = |result| report.of(result).next().map(|case| case.details.as_str());
        assert_eq!(details("FAILED"), Some("assertion failed; left: 1"));
        assert_eq!(details("skipped"), Some("Remounts are not allowed"));
        let allowed = [("link::erofs_named", "no remount")];
        let tally = report.judge(&ext4(), &allowed).requiring_all();
        assert_eq!(tally.counts(), "1 passed, 1 failed, 1 skipped");
        assert_eq!(tally.failed, ["pjdfstest on ext4: rename::preserve_metadata::fifo"]);
    }

    #[test]
    fn a_skip_outside_the_list_is_not_allowed() {
        let tally = Report::parse(OUTPUT).unwrap().judge(&ext4(), &[]);
        assert_eq!(tally.requiring_all().counts(), "1 passed, 2 failed, 0 skipped");
    }

    #[test]
    fn known_failures_of_the_lower_file_system_are_skipped() {
        let mut report = Report::parse(OUTPUT).unwrap();
        report.forgive(BTRFS);
        assert_eq!(report.of("FAILED").count(), 1, "another one");
        let known = [("rename::preserve_metadata::fifo", "nothing does that here")];
        report.forgive(&known);
        let allowed = [known[0], ("link::erofs_named", "no remount")];
        let tally = report.judge(&ext4(), &allowed).requiring_all();
        assert_eq!(tally.counts(), "1 passed, 0 failed, 2 skipped");
    }

    #[test]
    fn output_that_was_cut_or_is_empty_is_refused() {
        let cut = OUTPUT.replace("utimensat::order                                 ok\n", "");
        assert!(Report::parse(&cut).is_err());
        assert!(Report::parse("").is_err());
    }

    #[test]
    fn every_allowed_skip_has_a_reason() {
        let skips = allowed_skips().unwrap();
        assert!(!skips.is_empty());
        assert!(skips.iter().all(|(name, reason)| name.contains("::") && reason.len() > 10));
        assert!(parse_skips("link::erofs_named").is_err());
    }
}
