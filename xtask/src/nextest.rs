//! cargo-nextest: runs each test in a process of its own, and reports results as lines of JSON.

use std::path::Path;
use std::process::{Command, ExitStatus};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::{environment, process};

/// The version that setup installs. Its JSON is an experimental format of this version.
pub const VERSION: &str = "0.9.148";

/// The program's name.
pub const PROGRAM: &str = "cargo-nextest";

/// A nextest that builds into a folder and looks for the workspace here.
pub fn command(target: &Path) -> Result<Command> {
    let mut command = environment::tool(PROGRAM)?;
    command.arg("nextest").current_dir(environment::workspace_root());
    command.env("CARGO_TARGET_DIR", target).env("CARGO_TERM_COLOR", "never");
    Ok(command)
}

/// How a test ended, with its binary and name.
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    /// It passed.
    Passed(String),
    /// It failed, ended in an abnormal way or took too long.
    Failed(String),
    /// It is marked to be left out.
    Ignored(String),
}

/// Runs `nextest run` and hands over each result; failures are also printed with their output.
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

/// The event of a line; `None` for lines about whole programs and about tests that start.
fn event(line: &str) -> Result<Option<Event>> {
    let value: Value =
        serde_json::from_str(line).with_context(|| format!("nextest wrote {line:?}"))?;
    if value["type"] != "test" {
        return Ok(None);
    }
    let name = value["name"].as_str().context("nextest wrote a test without a name")?;
    let name = name.replacen('$', " ", 1);
    Ok(match value["event"].as_str() {
        Some("ok") => Some(Event::Passed(name)),
        Some("failed" | "timeout") => Some(Event::Failed(name)),
        Some("ignored") => Some(Event::Ignored(name)),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_read_from_json() {
        let test = |event: &str| {
            format!(r#"{{"type":"test","event":"{event}","name":"x::it$leaf::reads"}}"#)
        };
        let name = || "x::it leaf::reads".to_owned();
        assert_eq!(event(&test("ok")).unwrap(), Some(Event::Passed(name())));
        assert_eq!(event(&test("failed")).unwrap(), Some(Event::Failed(name())));
        assert_eq!(event(&test("ignored")).unwrap(), Some(Event::Ignored(name())));
        assert_eq!(event(&test("started")).unwrap(), None);
        assert_eq!(event(r#"{"type":"suite","event":"ok","passed":3}"#).unwrap(), None);
        assert!(event("error: no such file").is_err());
    }
}
