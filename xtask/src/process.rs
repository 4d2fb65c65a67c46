//! Runs other programs so that a signal ends them and xtask can still clean up.
//!
//! Every program gets its own process group. xtask passes SIGINT and SIGTERM on to the running
//! groups as SIGTERM; a second signal kills them. The waiting call then fails, and drop guards
//! unmount and detach. Clean-up commands run through [`clean_up`], which a signal can't stop.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// State shared by the signal thread and the running calls.
struct Running {
    signals: usize,
    /// Process groups of running programs. The flag is set for a program that itself passes signals
    /// on to its processes. A second signal does not kill it, so that it can pass the signals on.
    groups: Vec<(Pid, bool)>,
}

static RUNNING: Mutex<Running> = Mutex::new(Running { signals: 0, groups: Vec::new() });

fn running() -> MutexGuard<'static, Running> {
    // The data is valid after each statement, so a panic elsewhere does not corrupt it.
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts to pass on signals. Must be called once, before any program is started.
pub fn forward_signals() -> Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("cannot handle signals")?;
    thread::spawn(move || signals.forever().for_each(|_| pass_on()));
    Ok(())
}

fn pass_on() {
    let mut running = running();
    running.signals += 1;
    for (group, passes_on) in &running.groups {
        let is_gentle = running.signals == 1 || *passes_on;
        signal_group(*group, if is_gentle { Signal::TERM } else { Signal::KILL });
    }
}

fn signal_group(group: Pid, signal: Signal) {
    if let Err(errno) = kill_process_group(group, signal) {
        eprintln!("xtask: cannot signal process group {group:?}: {errno}");
    }
}

/// Returns whether a signal has asked xtask to end.
pub fn interrupted() -> bool {
    running().signals > 0
}

/// Runs a program whose output goes to xtask's own output.
pub fn run(command: &mut Command) -> Result<ExitStatus> {
    Started::new(command.stdin(Stdio::null()))?.wait()
}

/// Runs a program like [`run`]; the program itself passes signals on to its processes.
pub fn run_that_passes_signals_on(command: &mut Command) -> Result<ExitStatus> {
    Started::that_passes_on(command.stdin(Stdio::null()), true)?.wait()
}

/// Runs a program like [`run`]. After `limit`, stops the program and returns `None`. The program
/// gets half a minute to clean up.
pub fn run_at_most(command: &mut Command, limit: Duration) -> Result<Option<ExitStatus>> {
    const GRACE: Duration = Duration::from_secs(30);
    let started = Started::that_passes_on(command.stdin(Stdio::null()), true)?;
    let group = started.group;
    let (ended, was_ended) = mpsc::channel::<()>();
    let killer = thread::spawn(move || {
        let runs = |most| was_ended.recv_timeout(most) == Err(RecvTimeoutError::Timeout);
        if !runs(limit) {
            return false;
        }
        signal_group(group, Signal::TERM);
        if runs(GRACE) {
            signal_group(group, Signal::KILL);
        }
        true
    });
    let status = started.wait();
    drop(ended);
    let was_late = killer.join().unwrap_or(true);
    status.map(|status| (!was_late).then_some(status))
}

/// Runs a program like [`run`], and fails if the program fails.
pub fn run_ok(command: &mut Command) -> Result<()> {
    let status = run(command)?;
    if status.success() { Ok(()) } else { bail!("{} ended with {status}", line_of(command)) }
}

/// Runs a program and passes each line of its standard output to `line`.
pub fn run_lines(command: &mut Command, mut line: impl FnMut(&str)) -> Result<ExitStatus> {
    let mut started = Started::new(command.stdin(Stdio::null()).stdout(Stdio::piped()))?;
    let stdout = started.child.stdout.take().context("the program's output is not a pipe")?;
    for bytes in BufReader::new(stdout).split(b'\n') {
        let bytes = bytes.with_context(|| format!("cannot read from {}", line_of(command)))?;
        line(&String::from_utf8_lossy(&bytes));
    }
    started.wait()
}

/// The output and the exit status of a program.
pub struct Output {
    /// Exit status.
    pub status: ExitStatus,
    /// Standard output; bytes that are not UTF-8 are replaced.
    pub stdout: String,
    /// Standard error; bytes that are not UTF-8 are replaced.
    pub stderr: String,
}

/// Runs a program quietly and returns its whole output, whether it succeeded or not.
///
/// The program writes to files, not pipes, so a daemon that it leaves behind can't block the
/// caller.
pub fn output(command: &mut Command) -> Result<Output> {
    let (mut stdout, mut stderr) = quiet(command)?;
    let status = Started::new(command)?.wait()?;
    Ok(Output { status, stdout: read_back(&mut stdout)?, stderr: read_back(&mut stderr)? })
}

/// Runs a program quietly and returns its standard output. On failure, the error contains the
/// program's standard error.
pub fn capture(command: &mut Command) -> Result<String> {
    let output = output(command)?;
    succeeded(command, output.status, &output.stderr)?;
    Ok(output.stdout)
}

/// Runs a program like [`capture`], but even after a signal. It is for clean-up such as unmounting.
pub fn clean_up(command: &mut Command) -> Result<()> {
    let (_stdout, mut stderr) = quiet(command)?;
    let status = command
        .process_group(0)
        .status()
        .with_context(|| format!("cannot start {}", line_of(command)))?;
    succeeded(command, status, &read_back(&mut stderr)?)
}

/// A program that runs until this value is dropped.
pub struct Background(Started);

impl Background {
    /// Returns the id of its process.
    pub fn pid(&self) -> Pid {
        self.0.group
    }

    /// Returns whether the program has ended.
    pub fn has_ended(&mut self) -> Result<bool> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        let status = waitid(WaitId::Pid(self.0.group), options);
        Ok(status.context("cannot get the state of a program")?.is_some())
    }
}

/// Starts a program whose output goes to a file.
pub fn background(command: &mut Command, log: &File) -> Result<Background> {
    let duplicate = || log.try_clone().context("cannot duplicate a descriptor");
    command.stdin(Stdio::null()).stdout(duplicate()?).stderr(duplicate()?);
    Started::new(command).map(Background)
}

/// Makes a command that runs bash in separate mount and process namespaces. Its mounts and
/// processes end with it.
pub fn bash_in_namespaces() -> Command {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "--pid", "--fork", "--kill-child"]);
    command.args(["--mount-proc", "bash"]);
    command
}

/// Returns the command as a person would type it.
pub fn line_of(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

fn quiet(command: &mut Command) -> Result<(File, File)> {
    let files = (scratch()?, scratch()?);
    let duplicate = |file: &File| file.try_clone().context("cannot duplicate a descriptor");
    command.stdin(Stdio::null()).stdout(duplicate(&files.0)?).stderr(duplicate(&files.1)?);
    Ok(files)
}

fn scratch() -> Result<File> {
    tempfile::tempfile().context("cannot make a temporary file")
}

fn read_back(file: &mut File) -> Result<String> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut bytes).context("cannot read a temporary file back")?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn succeeded(command: &Command, status: ExitStatus, said: &str) -> Result<()> {
    if status.success() {
        return Ok(());
    }
    bail!("{} ended with {status}: {}", line_of(command), said.trim())
}

/// A running program. [`RUNNING`] contains its process group only while the group's ID belongs to
/// the program.
struct Started {
    child: Child,
    group: Pid,
    ended: bool,
}

impl Started {
    fn new(command: &mut Command) -> Result<Self> {
        Self::that_passes_on(command, false)
    }

    fn that_passes_on(command: &mut Command, passes_on: bool) -> Result<Self> {
        // Hold the lock, so that no signal arrives between the check and the registration.
        let mut running = running();
        if running.signals > 0 {
            bail!("interrupted before {}", line_of(command));
        }
        let child = command
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start {}", line_of(command)))?;
        let group = Pid::from_child(&child);
        running.groups.push((group, passes_on));
        Ok(Self { child, group, ended: false })
    }

    fn wait(mut self) -> Result<ExitStatus> {
        let status = self.end()?;
        if interrupted() { bail!("interrupted") } else { Ok(status) }
    }

    /// Waits for the program. Its ID is removed from [`RUNNING`] while the program is a zombie,
    /// because the kernel may reuse the ID once the program is reaped.
    fn end(&mut self) -> Result<ExitStatus> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        while let Err(errno) = waitid(WaitId::Pid(self.group), options) {
            if errno != rustix::io::Errno::INTR {
                return Err(errno).context("cannot wait for a program");
            }
        }
        running().groups.retain(|(listed, _)| *listed != self.group);
        self.ended = true;
        self.child.wait().context("cannot wait for a program")
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        signal_group(self.group, Signal::KILL);
        if let Err(error) = self.end() {
            eprintln!("xtask: {error:#}");
        }
    }
}
