//! Runs programs as part of a workload, in a directory of the target.
//!
//! Each program has its own process group. When the program has exited, the group is killed,
//! because processes that a shell left running would prevent the unmount of the target. If this
//! process is killed, a guardian process terminates the groups.

mod guardian;

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::Duration;

use fslab_report::command_line;
use fslab_sys::make_file_system::one_line;
use fslab_sys::signals::Interrupt;
use fslab_sys::usage::Instant;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, kill_process, kill_process_group, pidfd_open, test_kill_process_group,
};

use crate::error::{Error, Result};
use crate::runner::Session;

pub(crate) use guardian::start as start_guardian;

/// Maximum time to wait until the killed processes of a group have exited.
const GROUP_END_WAIT_MAX: Duration = Duration::from_secs(1);

/// An error includes this many bytes from the end of a program's standard error.
const TAIL: u64 = 600;

/// The maximum output of a program, in bytes.
const OUTPUT_MOST: u64 = 64 << 20;

/// Interval at which the interrupt is checked while a program runs.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// Returns the target's directory, in which programs can work. Fails if the target has none.
pub(super) fn directory(session: &Session<'_>, what: &'static str) -> Result<PathBuf> {
    session.tree()?.path().map(Path::to_owned).ok_or(Error::NeedsDirectory { what })
}

/// A program to be run.
pub(super) struct Program<'a> {
    words: &'a [String],
    command: Command,
}

impl<'a> Program<'a> {
    /// Creates a command that runs in a directory, without input. Standard output is discarded.
    pub fn new(words: &'a [String], directory: &Path) -> Self {
        let mut command = Command::new(words.first().map(String::as_str).unwrap_or_default());
        command.args(words.iter().skip(1)).current_dir(directory).process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        Self { words, command }
    }

    /// Sets the file for standard input.
    pub fn input(mut self, file: File) -> Self {
        self.command.stdin(file);
        self
    }

    /// Sets the file for standard output.
    pub fn output(mut self, file: File) -> Self {
        self.command.stdout(file);
        self
    }

    /// Sets an environment variable.
    pub fn variable(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// Removes an environment variable.
    pub fn without(mut self, name: &str) -> Self {
        self.command.env_remove(name);
        self
    }

    /// Runs the program until it exits, and returns its standard output.
    pub fn output_of(self, interrupt: &Interrupt) -> Result<Vec<u8>> {
        let directory = std::env::temp_dir();
        let failed = || Error::file(&directory);
        let mut printed = tempfile::tempfile().map_err(failed())?;
        self.output(printed.try_clone().map_err(failed())?).run(interrupt)?;
        let length = printed.seek(SeekFrom::End(0)).map_err(failed())?;
        if length > OUTPUT_MOST {
            return Err(Error::Failed(format!(
                "the command printed {length} bytes; metrics can be read from at most \
                 {OUTPUT_MOST} bytes"
            )));
        }
        printed.rewind().map_err(failed())?;
        let mut bytes = Vec::new();
        printed.read_to_end(&mut bytes).map_err(failed())?;
        Ok(bytes)
    }

    /// Runs the program until it exits. An error includes the end of the program's standard error.
    pub fn run(self, interrupt: &Interrupt) -> Result<()> {
        let mut started = self.start()?;
        let status = started.wait(interrupt)?;
        if status.success() { Ok(()) } else { Err(started.failure(status)) }
    }

    /// Starts the program.
    pub fn start(mut self) -> Result<Started> {
        let messages = tempfile::tempfile().map_err(Error::file(&std::env::temp_dir()))?;
        let errors = messages.try_clone().map_err(Error::file(&std::env::temp_dir()))?;
        let line = command_line(self.words);
        let failed = |source| Error::Start { program: line.clone(), source };
        let child = self.command.stderr(errors).spawn().map_err(failed)?;
        guardian::hold(child.id());
        Ok(Started { child, line, messages })
    }
}

/// A started program. Dropping it kills the program's process group.
pub(super) struct Started {
    child: Child,
    line: String,
    messages: File,
}

impl Started {
    /// Waits until the program exits or the run is interrupted. A pidfd reports the exit
    /// immediately, so the program's time is not rounded up. If no pidfd is available, this polls
    /// with growing pauses.
    pub fn wait(&mut self, interrupt: &Interrupt) -> Result<ExitStatus> {
        let process = self.group().and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        let mut pause = Duration::from_micros(50);
        loop {
            if let Some(status) = self.status()? {
                return Ok(status);
            }
            if interrupt.is_raised() {
                return Err(Error::Interrupted);
            }
            if let Some(process) = &process {
                wait_for_end(process)?;
                continue;
            }
            sleep(pause);
            pause = (pause * 5 / 4).min(Duration::from_millis(5));
        }
    }

    /// Returns the program's standard error, from the beginning.
    pub fn messages(&mut self) -> std::io::Result<&File> {
        self.messages.rewind()?;
        Ok(&self.messages)
    }

    /// Returns the process ID.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns the exit status, or `None` while the program runs.
    pub fn status(&mut self) -> Result<Option<ExitStatus>> {
        let failed = |source| Error::Start { program: "can't wait for a program".into(), source };
        self.child.try_wait().map_err(failed)
    }

    /// Returns the error for an exit status, with the end of the program's standard error.
    pub fn failure(&mut self, status: ExitStatus) -> Error {
        match tail(&mut self.messages) {
            Ok(message) => Error::Command { command: self.line.clone(), status, message },
            Err(source) => Error::File { path: std::env::temp_dir(), source },
        }
    }

    /// Sends a signal that asks the program to exit, and waits at most `patience` for the exit.
    /// Then the process group is killed in any case.
    pub fn end(mut self, signal: Signal, patience: Duration) -> Result<ExitStatus> {
        let failed = |line: &str, errno: Errno| Error::Start {
            program: format!("can't stop {line}"),
            source: errno.into(),
        };
        if let Some(leader) = self.group() {
            kill_process(leader, signal).map_err(|errno| failed(&self.line, errno))?;
        }
        let asked = Instant::now();
        while asked.elapsed() < patience {
            if let Some(status) = self.status()? {
                return Ok(status);
            }
            sleep(Duration::from_millis(2));
        }
        Err(Error::Failed(format!("{} does not exit", self.line)))
    }

    fn group(&self) -> Option<Pid> {
        Pid::from_raw(i32::try_from(self.child.id()).ok()?)
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // The group includes processes that the program left running.
        if let Some(group) = self.group()
            && let Err(error) = kill_process_group(group, Signal::KILL)
            && error != Errno::SRCH
        {
            tracing::warn!("can't kill {}: {error}", self.line);
        }
        if let Err(error) = self.child.wait() {
            tracing::warn!("can't wait for {}: {error}", self.line);
        }
        if let Some(group) = self.group() {
            wait_for_group(group);
        }
        guardian::release(self.child.id());
    }
}

/// Waits until the killed processes of a group have exited, because they may still have files open
/// in the target. Processes that another process does not reap stay in their group, so the wait
/// is limited.
fn wait_for_group(group: Pid) {
    let asked = Instant::now();
    while test_kill_process_group(group).is_ok() && asked.elapsed() < GROUP_END_WAIT_MAX {
        sleep(Duration::from_millis(1));
    }
}

/// Waits until a process has exited, for at most one interval of the interrupt check.
fn wait_for_end(process: &OwnedFd) -> Result<()> {
    match poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&LOOK)) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(errno) => {
            Err(Error::Start { program: "can't wait for a program".into(), source: errno.into() })
        }
    }
}

fn tail(messages: &mut File) -> std::io::Result<String> {
    let length = messages.seek(SeekFrom::End(0))?;
    messages.seek(SeekFrom::Start(length.saturating_sub(TAIL)))?;
    let mut text = Vec::new();
    messages.read_to_end(&mut text)?;
    Ok(one_line(&text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_for_a_program_ends_on_exit_or_interrupt() {
        let run = |script: &str, interrupt: &Interrupt| {
            let words = ["sh", "-c", script].map(str::to_owned);
            Program::new(&words, Path::new("/")).start().unwrap().wait(interrupt)
        };
        let interrupt = Interrupt::default();
        assert_eq!(run("sleep 0.3; exit 3", &interrupt).unwrap().code(), Some(3));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| run("sleep 1000", &interrupt));
            interrupt.raise();
            assert!(matches!(waiting.join().unwrap(), Err(Error::Interrupted)));
        });
    }
}
