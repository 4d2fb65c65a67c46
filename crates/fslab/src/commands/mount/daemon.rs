//! Starts the daemon, and reports to the starting process whether the mount works.
//!
//! The daemon is a second process of this program. Its standard output is a pipe to the starting
//! process. The daemon writes one line when the mount works, and then detaches from the terminal
//! and the pipe. If it fails earlier, it prints the error to the standard error that both processes
//! share. Its exit code becomes that of the starting process.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use super::messages;

const READY: &str = "ready";

/// Starts the daemon with the arguments of this process. Returns when the mount works.
pub fn start() -> Result<()> {
    let program = std::env::current_exe().context("can't find this program")?;
    let arguments = super::super::fstab::translate(std::env::args_os().collect());
    // The first two arguments are the program and the subcommand. `--daemon` comes right after
    // them, because after `--` it would be a file name.
    let mut daemon = Command::new(program)
        .args(["mount", "--daemon"])
        .args(arguments.into_iter().skip(2))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("can't start the daemon")?;
    let mut line = String::new();
    if let Some(output) = daemon.stdout.take() {
        BufReader::new(output).read_line(&mut line).context("can't read from the daemon")?;
    }
    if line.trim_end() == READY {
        return Ok(());
    }
    let status = daemon.wait().context("can't wait for the daemon")?;
    match status.code() {
        // The daemon has reported the reason.
        Some(code) => std::process::exit(code),
        None => bail!("the daemon exited before the mount worked: {status}"),
    }
}

/// Reports to the starting process that the mount works, and detaches this daemon from the
/// terminal. Later messages go to `log`, or to the system log if `log` is `None`.
pub fn report_ready(log: Option<File>) -> Result<()> {
    rustix::process::setsid().context("can't leave the terminal's session")?;
    std::env::set_current_dir("/").context("can't change to the directory /")?;
    let nowhere = File::options().write(true).open("/dev/null").context("can't open /dev/null")?;
    let mut output = std::io::stdout();
    writeln!(output, "{READY}")
        .and_then(|()| output.flush())
        .context("can't report that the mount works")?;
    rustix::stdio::dup2_stdout(&nowhere).context("can't redirect the standard output")?;
    match log {
        None => messages::go_to_the_system_log(),
        Some(_) => messages::go_to_a_file(),
    }
    let errors = log.unwrap_or(nowhere);
    rustix::stdio::dup2_stderr(errors).context("can't redirect standard error")?;
    Ok(())
}

/// Leaves the terminal's session, because a supervisor must not receive the signals of the
/// terminal.
pub fn leave_session() -> Result<()> {
    rustix::process::setsid().map(drop).context("can't leave the terminal's session")
}

/// Performs the remaining steps of [`report_ready`] in a daemon that has taken over a mount. An
/// earlier daemon of the mount has already left the terminal.
pub fn leave_again(log: Option<&File>) -> Result<()> {
    std::env::set_current_dir("/").context("can't change to the directory /")?;
    match log {
        None => messages::go_to_the_system_log(),
        Some(_) => messages::go_to_a_file(),
    }
    Ok(())
}
