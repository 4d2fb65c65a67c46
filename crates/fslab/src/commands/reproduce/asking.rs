//! Runs commands of this program as a user would. Each runs in a separate process, because some
//! commands limit their own memory.

use std::path::Path;
use std::process::{Command as Process, Stdio};

use fslab_reproduce::Command;
use serde_json::Value;

/// Returns the JSON output of a command, or the reason for its failure. The command makes its
/// images in `work_dir`, or in the directory for temporary files if that is `None`.
pub(super) fn ask(command: &Command, work_dir: Option<&Path>) -> Result<Value, String> {
    let temporary = work_dir.map(|directory| ("TMPDIR", directory));
    let written = run(&command.run, |process| process.envs(temporary))?;
    serde_json::from_slice(&written).map_err(|error| {
        format!("`fslab {}` did not print valid JSON: {error}", command.run.join(" "))
    })
}

/// Runs a command that makes files in a folder. If it fails, returns the reason.
pub(super) fn make(arguments: &[String], folder: &Path) -> Result<(), String> {
    run(arguments, |process| process.current_dir(folder)).map(drop)
}

fn run(
    arguments: &[String],
    set_up: impl FnOnce(&mut Process) -> &mut Process,
) -> Result<Vec<u8>, String> {
    let line = format!("fslab {}", arguments.join(" "));
    eprintln!("command: {line}");
    let program = std::env::current_exe().map_err(|error| format!("can't find fslab: {error}"))?;
    let mut process = Process::new(program);
    let output = set_up(process.args(arguments).stdin(Stdio::null())).output();
    let output = output.map_err(|error| format!("can't start `{line}`: {error}"))?;
    if output.status.success() { Ok(output.stdout) } else { Err(reason(&line, &output.stderr)) }
}

/// Returns the last line that a command wrote to standard error. It contains the reason for the
/// failure.
fn reason(line: &str, messages: &[u8]) -> String {
    let messages = String::from_utf8_lossy(messages);
    let last = messages.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it failed");
    format!("`{line}`: {}", last.trim_start_matches("fslab: "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failure_reason_is_the_last_message_line() {
        let messages = b"warning: slow\nfslab: needs root\n\n";
        assert_eq!(reason("fslab x", messages), "`fslab x`: needs root");
        assert_eq!(reason("fslab x", b""), "`fslab x`: it failed");
    }
}
