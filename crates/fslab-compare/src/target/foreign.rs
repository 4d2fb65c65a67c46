//! A file system in user space that a command mounts. It is ready when something is mounted on the
//! mount point.
//!
//! The command may exit and leave a daemon running, or it may keep running itself. The daemon is
//! found as the only process that has the mount point among its arguments.

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use fslab_report::command_line;
use fslab_sys::make_file_system::one_line;
use fslab_sys::mounts::{self, Mount, Unmounted};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};

use crate::error::{Error, Result};

/// Maximum time until a mount command has mounted something.
const PATIENCE: Duration = Duration::from_secs(30);

/// Maximum time for a daemon to exit after its unmount, and again after each signal.
const END_PATIENCE: Duration = Duration::from_secs(10);

/// Grace time after mounting. A command that still runs afterwards is treated as one that keeps
/// running.
const GRACE: Duration = Duration::from_millis(500);

const PAUSE: Duration = Duration::from_millis(2);

/// Maximum time to retry a failing unmount command, because another process may use the mount
/// briefly.
const BUSY_PATIENCE: Duration = Duration::from_secs(3);
const BUSY_PAUSE: Duration = Duration::from_millis(50);

/// Command lines with all placeholders filled in.
#[derive(Clone, Debug)]
pub struct Commands {
    /// The mount command. It may keep running, or exit and leave a daemon running.
    pub mount: Vec<OsString>,
    /// The unmount command; `None` for umount(2).
    pub unmount: Option<Vec<OsString>>,
}

/// A mounted file system in user space; unmounted when dropped.
#[derive(Debug)]
pub struct ForeignMount {
    mount: Option<Mount>,
    unmount: Option<Vec<OsString>>,
    /// The mount command, if it keeps running.
    child: Option<Child>,
    daemons: Vec<u32>,
}

impl ForeignMount {
    /// Runs the command and waits until something is mounted. The file `messages` receives the
    /// standard error of the command. The file can't be a pipe, because a daemon would keep the
    /// pipe open.
    pub fn new(commands: &Commands, mountpoint: &Path, messages: &Path) -> Result<Self> {
        let mut child = Guard {
            child: Some(start(&commands.mount, messages)?),
            mountpoint: mountpoint.to_owned(),
        };
        let end = Instant::now() + PATIENCE;
        let mut since_mounted = None;
        loop {
            let ended = child.try_wait(&commands.mount)?;
            let mounted = is_mounted(mountpoint)?;
            match ended {
                Some(status) if !status.success() => {
                    return Err(refused(&commands.mount, status, messages));
                }
                Some(_) if mounted => break,
                // The command may exit soon after mounting. After the grace time it is treated as
                // one that keeps running.
                None if mounted
                    && since_mounted.get_or_insert_with(Instant::now).elapsed() > GRACE =>
                {
                    break;
                }
                _ if Instant::now() > end => {
                    return Err(Error::Failed(format!(
                        "{}: nothing was mounted on {} within {} s",
                        line(&commands.mount),
                        mountpoint.display(),
                        PATIENCE.as_secs()
                    )));
                }
                _ => sleep(PAUSE),
            }
        }
        let daemons =
            mounts::processes_naming(mountpoint).map_err(Error::file(Path::new("/proc")))?;
        let mount = Some(Mount::adopt(mountpoint));
        Ok(Self { mount, unmount: commands.unmount.clone(), child: child.child.take(), daemons })
    }

    /// Returns the daemon if exactly one was found. A mount command that was slow to exit may have
    /// been found in addition to its daemon. If only one of the processes found still runs, that
    /// one is returned.
    pub fn daemon(&self) -> Option<u32> {
        let is_one = self.daemons.len() == 1;
        let mut left = self.daemons.iter().filter(|daemon| is_one || runs(**daemon));
        left.next().filter(|_| left.next().is_none()).copied()
    }

    /// Unmounts and waits for the daemon to exit. Returns a note if the unmount was lazy or the
    /// daemon did not exit.
    pub fn unmount(mut self, messages: &Path) -> Result<Option<String>> {
        let Some(mount) = self.mount.take() else { return Ok(None) };
        let note = match &self.unmount {
            Some(command) => {
                unmount_by(command, mount.target(), messages)?;
                mount.release();
                None
            }
            None => match mount.unmount()? {
                Unmounted::Cleanly => None,
                Unmounted::Lazily => Some("the mount was busy and was detached lazily".to_owned()),
            },
        };
        Ok(note.or(self.wait_for_end()))
    }

    fn wait_for_end(&mut self) -> Option<String> {
        let end = Instant::now() + END_PATIENCE;
        while Instant::now() < end {
            // `try_wait` also reaps the child, so that it does not remain as a zombie.
            let child_runs =
                self.child.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None)));
            if !child_runs && !self.daemons.iter().any(|daemon| runs(*daemon)) {
                self.child = None;
                self.daemons.clear();
                return None;
            }
            sleep(PAUSE);
        }
        Some(format!("the daemon did not exit within {} s of the unmount", END_PATIENCE.as_secs()))
    }
}

impl Drop for ForeignMount {
    fn drop(&mut self) {
        // After the unmount, the daemon has time to exit by itself. If the mount was removed in an
        // earlier call, that time has already passed.
        if self.mount.take().map(drop).is_some() && self.wait_for_end().is_none() {
            return;
        }
        for signal in [Signal::TERM, Signal::KILL] {
            send(signal, &self.daemons);
            if self.wait_for_end().is_none() {
                return;
            }
        }
    }
}

/// Runs an unmount command, and retries it for a limited time while it fails and the mount remains.
fn unmount_by(command: &[OsString], mountpoint: &Path, messages: &Path) -> Result<()> {
    let end = Instant::now() + BUSY_PATIENCE;
    loop {
        let status = start(command, messages)?.wait().map_err(Error::file(messages))?;
        if status.success() {
            return Ok(());
        }
        if Instant::now() > end || !is_mounted(mountpoint)? {
            return Err(refused(command, status, messages));
        }
        sleep(BUSY_PAUSE);
    }
}

/// A running mount command. If it still owns the child when it is dropped, the command and its
/// daemons are ended, and the mount is removed.
struct Guard {
    child: Option<Child>,
    mountpoint: PathBuf,
}

impl Guard {
    /// Returns the exit status of the command if it has exited.
    fn try_wait(&mut self, command: &[OsString]) -> Result<Option<std::process::ExitStatus>> {
        let Some(child) = self.child.as_mut() else { return Ok(None) };
        child.try_wait().map_err(|source| Error::Start { program: line(command), source })
    }

    /// Kills the command, terminates daemons that it may have left, and unmounts. Otherwise a
    /// daemon that is still starting could mount at any later time.
    fn undo(&mut self) -> std::io::Result<()> {
        let Some(mut child) = self.child.take() else { return Ok(()) };
        child.kill()?;
        child.wait()?;
        let daemons = mounts::processes_naming(&self.mountpoint)?;
        send(Signal::TERM, &daemons);
        let until = Instant::now() + Duration::from_secs(2);
        while daemons.iter().any(|daemon| runs(*daemon)) && Instant::now() < until {
            sleep(PAUSE);
        }
        if mounts::mounted_on(&self.mountpoint)?.is_some() {
            drop(Mount::adopt(&self.mountpoint));
        }
        Ok(())
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Err(error) = self.undo() {
            tracing::warn!("can't stop a mount command: {error}");
        }
    }
}

/// Sends a signal to daemons, and resumes stopped ones so that they receive it.
fn send(signal: Signal, daemons: &[u32]) {
    for daemon in daemons.iter().filter_map(|pid| Pid::from_raw(pid.cast_signed())) {
        let sent = kill_process(daemon, signal).and_then(|()| kill_process(daemon, Signal::CONT));
        match sent {
            Ok(()) | Err(rustix::io::Errno::SRCH) => {}
            Err(error) => tracing::warn!("can't stop the daemon {daemon}: {error}"),
        }
    }
}

fn runs(pid: u32) -> bool {
    // A zombie has exited and holds no files.
    let state = fs::read_to_string(format!("/proc/{pid}/stat"));
    let zombie = state
        .is_ok_and(|text| text.rsplit(')').next().is_some_and(|s| s.trim_start().starts_with('Z')));
    let pid = Pid::from_raw(pid.cast_signed());
    !zombie && pid.is_some_and(|pid| test_kill_process(pid).is_ok())
}

fn is_mounted(mountpoint: &Path) -> Result<bool> {
    let mounted = mounts::mounted_on(mountpoint);
    Ok(mounted.map_err(Error::file(Path::new("/proc/self/mountinfo")))?.is_some())
}

fn start(command: &[OsString], messages: &Path) -> Result<Child> {
    let (program, arguments) = command.split_first().ok_or_else(|| Error::Start {
        program: String::new(),
        source: std::io::ErrorKind::InvalidInput.into(),
    })?;
    let errors = File::create(messages).map_err(Error::file(messages))?;
    Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(errors)
        .spawn()
        .map_err(|source| Error::Start { program: program.to_string_lossy().into_owned(), source })
}

fn refused(command: &[OsString], status: std::process::ExitStatus, messages: &Path) -> Error {
    let message = fs::read(messages).unwrap_or_else(|error| error.to_string().into_bytes());
    Error::Command { command: line(command), status, message: one_line(&message) }
}

/// Returns a command line as one string, for messages.
pub(super) fn line(command: &[OsString]) -> String {
    command_line(&command.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>())
}
