//! pjdfstest: some 400 cases of what POSIX says about names, ownership, modes and times.

use std::fs;

use anyhow::{Context, Result, bail, ensure};

use super::{Options, Suite, stacks_and_tiers};
use crate::stage::{Ground, Stage, Target};
use crate::tally::{Skip, Tally};
use crate::{environment, process};

/// The suite.
pub const SUITE: Suite = Suite {
    name: "pjdfstest",
    program: Some("pjdfstest"),
    stacks: stacks_and_tiers,
    quick: Options::NONE,
    run,
};

/// The skips that a mount through FUSE must have, each with its reason.
const ALLOWED_SKIPS: &str = include_str!("../../pjdfstest-skips.txt");

/// What fails on Btrfs itself, and so over it, each with its reason: no promise of a layer.
const BTRFS: &[(&str, &str)] =
    &[("rename::updates_link_parent", "Btrfs counts no subdirectories among a directory's links")];

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

fn run(stage: &Stage, target: &Target, _options: &Options) -> Result<Tally> {
    let configuration = stage.beside("pjdfstest")?.join("configuration.toml");
    fs::write(&configuration, CONFIGURATION)?;
    let mut command = environment::tool("pjdfstest")?;
    command.arg("-c").arg(&configuration).arg("-p").arg(stage.directory());
    // Renames between file systems need another one.
    command.arg("-s").arg(stage.beside("secondary")?).env("RUST_BACKTRACE", "0");
    let output = process::output(&mut command)?;
    let mut report = Report::parse(&output.stdout)
        .with_context(|| format!("pjdfstest wrote: {}", output.stderr.trim()))?;
    println!("{}", report.summary);
    let mut allowed = allowed_skips()?;
    if matches!(target, Target::FslabOn(Ground::Btrfs, _)) {
        report.forgive(BTRFS);
        allowed.extend(BTRFS);
    }
    report.print_failures();
    report.judge(target, &allowed)
}

/// What pjdfstest wrote.
#[derive(Debug, Default)]
struct Report {
    passed: usize,
    failed: Vec<Case>,
    skipped: Vec<Case>,
    summary: String,
}

/// A case that did not pass, and what was written below it.
#[derive(Debug, PartialEq, Eq)]
struct Case {
    name: String,
    details: String,
}

impl Report {
    /// Reads `NAME   RESULT` lines, indented details below them, and the summary, whose numbers
    /// must be those of the lines.
    fn parse(output: &str) -> Result<Self> {
        let mut report = Self::default();
        let mut last = Last::Passed;
        for line in output.lines() {
            if let Some(summary) = line.strip_prefix("Summary: ") {
                report.summary = summary.to_owned();
            } else if let Some((name, result)) = result_line(line) {
                last = report.add(name, result)?;
            } else {
                report.detail(last, line.trim());
            }
        }
        report.agree()?;
        Ok(report)
    }

    fn add(&mut self, name: &str, result: &str) -> Result<Last> {
        let case = Case { name: name.to_owned(), details: String::new() };
        Ok(match result {
            "ok" => {
                self.passed += 1;
                Last::Passed
            }
            "FAILED" => {
                self.failed.push(case);
                Last::Failed
            }
            "skipped" => {
                self.skipped.push(case);
                Last::Skipped
            }
            other => bail!("unknown result {other:?} of {name}"),
        })
    }

    fn detail(&mut self, last: Last, line: &str) {
        let case = match last {
            Last::Passed => None,
            Last::Failed => self.failed.last_mut(),
            Last::Skipped => self.skipped.last_mut(),
        };
        if let Some(case) = case.filter(|_| !line.is_empty()) {
            let separator = if case.details.is_empty() { "" } else { "; " };
            case.details.push_str(separator);
            case.details.push_str(line);
        }
    }

    fn agree(&self) -> Result<()> {
        let (failed, skipped) = (self.failed.len(), self.skipped.len());
        let counted = format!("{failed} failed, {skipped} skipped, {} passed", self.passed);
        ensure!(self.passed > 0, "no case passed or ran");
        ensure!(
            self.summary.starts_with(&counted),
            "the lines say {counted:?} and the summary {:?}",
            self.summary
        );
        Ok(())
    }

    /// Takes cases that must fail on what lies below for such that were not run there.
    fn forgive(&mut self, known: &[(&str, &str)]) {
        let is_known = |case: &Case| known.iter().any(|(name, _)| *name == case.name);
        let (forgiven, failed) = std::mem::take(&mut self.failed).into_iter().partition(is_known);
        self.failed = failed;
        self.skipped.extend::<Vec<Case>>(forgiven);
        for case in &mut self.skipped {
            if let Some((_, why)) = known.iter().find(|(name, _)| *name == case.name) {
                case.details = (*why).to_owned();
            }
        }
    }

    fn print_failures(&self) {
        for case in &self.failed {
            println!("FAILED {}: {}", case.name, case.details);
        }
    }

    fn judge(self, target: &Target, allowed: &[(&str, &str)]) -> Result<Tally> {
        for (name, _) in allowed {
            if !self.skipped.iter().any(|case| case.name == *name) {
                println!("note: {name} ran; the list of allowed skips names it");
            }
        }
        let full = |name: &str| format!("pjdfstest on {target}: {name}");
        let skip = |case: Case| Skip {
            test: full(&case.name),
            reason: case.details,
            allowed: allowed.iter().any(|(name, _)| *name == case.name),
        };
        Ok(Tally {
            passed: self.passed,
            failed: self.failed.iter().map(|case| full(&case.name)).collect(),
            skipped: self.skipped.into_iter().map(skip).collect(),
        })
    }
}

/// To which list the details below belong.
#[derive(Clone, Copy)]
enum Last {
    Passed,
    Failed,
    Skipped,
}

fn result_line(line: &str) -> Option<(&str, &str)> {
    let is_name = line.starts_with(|first: char| first.is_ascii_lowercase());
    let (name, result) = line.split_once("  ").filter(|_| is_name)?;
    let result = result.trim();
    (name.contains("::") && !result.contains(' ')).then_some((name, result))
}

/// Reads lines `NAME: REASON`; empty lines and lines that start with `#` are for readers.
fn parse_skips(text: &str) -> Result<Vec<(&str, &str)>> {
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let pair = |line| -> Result<_> {
        str::split_once(line, ": ").with_context(|| format!("no `NAME: REASON`: {line:?}"))
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

    #[test]
    fn a_report_is_read_with_its_details() {
        let report = Report::parse(OUTPUT).unwrap();
        assert_eq!(report.failed[0].details, "assertion failed; left: 1");
        assert_eq!(report.skipped[0].details, "Remounts are not allowed");
        let allowed = [("link::erofs_named", "no remount")];
        let tally = report.judge(&Target::Ext4, &allowed).unwrap().requiring_all();
        assert_eq!(tally.counts(), "1 passed, 1 failed, 1 skipped");
        assert_eq!(tally.failed, ["pjdfstest on ext4: rename::preserve_metadata::fifo"]);
    }

    #[test]
    fn a_skip_outside_the_list_is_not_allowed() {
        let tally = Report::parse(OUTPUT).unwrap().judge(&Target::Ext4, &[]).unwrap();
        assert_eq!(tally.requiring_all().counts(), "1 passed, 2 failed, 0 skipped");
    }

    #[test]
    fn what_fails_below_is_no_failure_of_what_lies_over_it() {
        let mut report = Report::parse(OUTPUT).unwrap();
        report.forgive(BTRFS);
        assert_eq!(report.failed.len(), 1, "another one");
        let known = [("rename::preserve_metadata::fifo", "nothing does that here")];
        report.forgive(&known);
        let allowed = [known[0], ("link::erofs_named", "no remount")];
        let tally = report.judge(&Target::Ext4, &allowed).unwrap().requiring_all();
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
