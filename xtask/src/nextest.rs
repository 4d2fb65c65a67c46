//! cargo-nextest: runs each test in its own process and reports results as lines of JSON.

use std::path::Path;
use std::process::{Command, ExitStatus};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::{environment, process};

/// The version that setup installs. The JSON format is experimental and may differ in other
/// versions.
pub const VERSION: &str = "0.9.148";

pub const PROGRAM: &str = "cargo-nextest";

/// Makes a nextest command that builds into a folder and uses this workspace.
pub fn command(target: &Path) -> Result<Command> {
    let mut command = environment::tool(PROGRAM)?;
    command.arg("nextest").current_dir(environment::workspace_root());
    command.env("CARGO_TARGET_DIR", target).env("CARGO_TERM_COLOR", "never");
    Ok(command)
}

/// A test that has ended.
#[derive(Debug, PartialEq)]
pub struct Event {
    /// Binary and name of the test.
    pub name: String,
    /// Result of the test.
    pub result: TestResult,
    /// Duration in seconds.
    pub time_s: f64,
}

/// Result of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TestResult {
    /// The test passed.
    Passed,
    /// The test failed, ended abnormally or took too long.
    Failed,
    /// The test is marked as ignored and was not run.
    Ignored,
}

/// Runs `nextest run` and passes each result to `each`. Nextest also prints failures with their
/// output.
pub fn run(command: &mut Command, mut each: impl FnMut(&Event)) -> Result<ExitStatus> {
    command.env("NEXTEST_EXPERIMENTAL_LIBTEST_JSON", "1");
    command.args(["--message-format", "libtest-json-plus", "--color", "never"]);
    command.args(["--status-level", "slow", "--final-status-level", "fail"]);
    let mut wrong = None;
    let status = process::run_lines(command, |line| match event(line) {
        Ok(Some(event)) => each(&event),
        Ok(None) => {}
        Err(error) => wrong = Some(error),
    })?;
    wrong.map_or(Ok(status), Err)
}

/// Parses the event in a line. Returns `None` for lines about whole programs and about tests that
/// start.
fn event(line: &str) -> Result<Option<Event>> {
    let value: Value =
        serde_json::from_str(line).with_context(|| format!("nextest wrote {line:?}"))?;
    if value["type"] != "test" {
        return Ok(None);
    }
    let name = value["name"].as_str().context("nextest wrote a test without a name")?;
    let result = match value["event"].as_str() {
        Some("ok") => TestResult::Passed,
        Some("failed" | "timeout") => TestResult::Failed,
        Some("ignored") => TestResult::Ignored,
        _ => return Ok(None),
    };
    let time_s = value["exec_time"].as_f64().unwrap_or_default();
    Ok(Some(Event { name: name.replacen('$', " ", 1), result, time_s }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_read_from_json() {
        let line = |event: &str| {
            let name = "x::it$leaf::reads";
            format!(r#"{{"type":"test","event":"{event}","name":"{name}","exec_time":1.5}}"#)
        };
        let test =
            |result| Some(Event { name: "x::it leaf::reads".to_owned(), result, time_s: 1.5 });
        assert_eq!(event(&line("ok")).unwrap(), test(TestResult::Passed));
        assert_eq!(event(&line("failed")).unwrap(), test(TestResult::Failed));
        assert_eq!(event(&line("ignored")).unwrap(), test(TestResult::Ignored));
        assert_eq!(event(&line("started")).unwrap(), None);
        assert_eq!(event(r#"{"type":"suite","event":"ok","passed":3}"#).unwrap(), None);
        assert!(event("error: no such file").is_err());
    }
}
