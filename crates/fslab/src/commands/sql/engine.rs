//! Starts the program with the SQL engine.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStderr, Command, ExitStatus, Stdio};

use anyhow::{Context, Result};
use fslab_dataset::Query;

use crate::exit::Code;

/// The name of the program.
const PROGRAM: &str = "fslab-sql";

/// The directory of the program in packages.
const PACKAGED: &str = "/usr/lib/fslab";

/// Maximum length of the error message of the engine in bytes.
const MESSAGE_MAX: u64 = 64 << 10;

/// Runs a query; the engine writes the answer to standard output.
pub fn answer(query: &Query) -> Result<()> {
    let program = find()?;
    let started = Command::new(&program)
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| program.display().to_string());
    let mut engine = started?;
    let text = serde_json::to_vec(query)?;
    if let Some(mut input) = engine.stdin.take() {
        match input.write_all(&text) {
            // The engine exited before it read the query. Its error message contains the reason.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
            written => written.with_context(|| program.display().to_string())?,
        }
    }
    let message = engine.stderr.take().map_or(Ok(String::new()), message);
    let message = message.with_context(|| program.display().to_string())?;
    let status = engine.wait().with_context(|| program.display().to_string())?;
    outcome(status, &message)
}

/// Returns the path of the engine. Neither `PATH` nor the current directory is searched, because
/// the engine must match this program.
fn find() -> Result<PathBuf> {
    let own = std::env::current_exe().context("can't find this program")?;
    let folder = own.parent().unwrap_or(Path::new("/"));
    let places = [folder, Path::new(PACKAGED)].map(|folder| folder.join(PROGRAM));
    match places.iter().find(|place| place.is_file()) {
        Some(place) => Ok(place.clone()),
        None => bail_as!(
            Missing,
            "the SQL engine fslab-sql is neither in {} nor in {PACKAGED}; build it with `cargo \
             build --release` in crates/fslab-sql and copy it there",
            folder.display()
        ),
    }
}

/// Reads the error message until the engine exits.
fn message(mut stderr: ChildStderr) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    (&mut stderr).take(MESSAGE_MAX).read_to_end(&mut bytes)?;
    // Read and discard the rest, so that the engine never blocks on a full pipe.
    std::io::copy(&mut stderr, &mut std::io::sink())?;
    Ok(String::from_utf8_lossy(&bytes).trim().to_owned())
}

fn outcome(status: ExitStatus, message: &str) -> Result<()> {
    if status.success() {
        return Ok(());
    }
    let Some(code) = status.code().and_then(|code| u8::try_from(code).ok()) else {
        let signal = status.signal().unwrap_or_default();
        bail_as!(
            Failure,
            "the SQL engine was ended by signal {signal}{}; raise --memory, and check the data \
             sets with `fslab dataset check`",
            if message.contains("memory allocation") { ", because memory ran out" } else { "" }
        );
    };
    let message = if message.is_empty() { "the SQL engine failed" } else { message };
    Err(Code::numbered(code).error(message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_code_and_message_are_those_of_the_engine() {
        let error = outcome(ExitStatus::from_raw(3 << 8), "a: no such table").unwrap_err();
        assert_eq!(
            (Code::of(&error), error.to_string().as_str()),
            (Code::BadInput, "a: no such table")
        );
        let error = outcome(ExitStatus::from_raw(1 << 8), "").unwrap_err();
        assert_eq!(error.to_string(), "the SQL engine failed");
        assert!(outcome(ExitStatus::from_raw(0), "a warning").is_ok());
    }

    #[test]
    fn engine_that_was_killed_is_reported_with_its_signal() {
        let error = outcome(ExitStatus::from_raw(6), "memory allocation of 9 bytes failed");
        let error = error.unwrap_err().to_string();
        assert!(error.contains("signal 6, because memory ran out;"), "{error}");
        let error = outcome(ExitStatus::from_raw(9), "").unwrap_err().to_string();
        assert!(error.contains("signal 9;"), "{error}");
    }
}
