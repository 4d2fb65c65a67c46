//! Programmes run as part of a workload, in a directory of the target.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::Duration;

use fslab_sys::make_file_system::one_line;
use fslab_sys::signals::Interrupt;

use crate::error::{Error, Result};
use crate::runner::Session;

/// So much of the end of what a programme said is told when it fails.
const TAIL: u64 = 600;

/// So much of what a programme prints is looked at.
const OUTPUT_MOST: u64 = 64 << 20;

/// The directory of a target that programmes can work in.
pub(super) fn directory(session: &Session<'_>, what: &'static str) -> Result<PathBuf> {
    session.tree()?.path().map(Path::to_owned).ok_or(Error::NeedsDirectory { what })
}

/// A programme that is to be run.
pub(super) struct Program<'a> {
    words: &'a [String],
    command: Command,
}

impl<'a> Program<'a> {
    /// A command, to be run in a directory; without input, and its output goes nowhere.
    pub fn new(words: &'a [String], directory: &Path) -> Self {
        let mut command = Command::new(words.first().map(String::as_str).unwrap_or_default());
        command.args(words.iter().skip(1)).current_dir(directory);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        Self { words, command }
    }

    /// Reads from a file.
    pub fn input(mut self, file: File) -> Self {
        self.command.stdin(file);
        self
    }

    /// Writes to a file.
    pub fn output(mut self, file: File) -> Self {
        self.command.stdout(file);
        self
    }

    /// With a variable of the environment.
    pub fn variable(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// Runs it to its end and returns its standard output.
    pub fn output_of(self, interrupt: &Interrupt) -> Result<Vec<u8>> {
        let directory = std::env::temp_dir();
        let failed = || Error::file(&directory);
        let mut printed = tempfile::tempfile().map_err(failed())?;
        self.output(printed.try_clone().map_err(failed())?).run(interrupt)?;
        let length = printed.seek(SeekFrom::End(0)).map_err(failed())?;
        if length > OUTPUT_MOST {
            return Err(Error::Failed(format!(
                "the command printed {length} bytes, of which metrics are looked for in at most \
                 {OUTPUT_MOST}"
            )));
        }
        printed.rewind().map_err(failed())?;
        let mut bytes = Vec::new();
        printed.read_to_end(&mut bytes).map_err(failed())?;
        Ok(bytes)
    }

    /// Runs it to its end. Errors of the programme are told with the end of what it said.
    pub fn run(mut self, interrupt: &Interrupt) -> Result<()> {
        let mut messages = tempfile::tempfile().map_err(Error::file(&std::env::temp_dir()))?;
        let errors = messages.try_clone().map_err(Error::file(&std::env::temp_dir()))?;
        let line = self.words.join(" ");
        let started = |source| Error::Start { program: line.clone(), source };
        let mut child = Running(self.command.stderr(errors).spawn().map_err(started)?);
        let status = child.wait(interrupt)?;
        if status.success() {
            return Ok(());
        }
        let message = tail(&mut messages).map_err(Error::file(&std::env::temp_dir()))?;
        Err(Error::Command { command: line, status, message })
    }
}

fn tail(messages: &mut File) -> std::io::Result<String> {
    let length = messages.seek(SeekFrom::End(0))?;
    messages.seek(SeekFrom::Start(length.saturating_sub(TAIL)))?;
    let mut text = Vec::new();
    messages.read_to_end(&mut text)?;
    Ok(one_line(&text))
}

/// A child that does not outlive its owner.
struct Running(Child);

impl Running {
    /// Waits for the end, or for the wish to stop. The pause grows, so that neither a short
    /// programme is measured with the pause nor a long one slowed by being asked.
    fn wait(&mut self, interrupt: &Interrupt) -> Result<ExitStatus> {
        let failed = |source| Error::Start { program: "waiting for a programme".into(), source };
        let mut pause = Duration::from_micros(50);
        loop {
            if let Some(status) = self.0.try_wait().map_err(failed)? {
                return Ok(status);
            }
            if interrupt.is_raised() {
                return Err(Error::Interrupted);
            }
            sleep(pause);
            pause = (pause * 5 / 4).min(Duration::from_millis(5));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if matches!(self.0.try_wait(), Ok(Some(_))) {
            return;
        }
        if let Err(error) = self.0.kill().and_then(|()| self.0.wait().map(|_| ())) {
            tracing::warn!("ending a programme: {error}");
        }
    }
}
