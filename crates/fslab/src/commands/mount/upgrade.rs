//! Replaces the daemon of a mount with `-o keep` by another version of fslab, for `fslab upgrade`.
//!
//! The daemon receives the request on a socket. It runs the installed program as a separate
//! process, which checks whether it could serve the mount. Then the daemon signals the supervisor.
//! The supervisor ends the daemon and executes the installed program, which inherits all
//! descriptors and continues as supervisor.

use std::convert::Infallible;
use std::ffi::OsString;
use std::fmt::Display;
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result, anyhow, bail};
use fslab_ext2::KEPT_LAYOUT;
use fslab_fuse::KeptState;
use fslab_layers::Service;
use fslab_sys::exec::{self, TrustedProgram};
use fslab_sys::supervise::ASKS_FOR_ANOTHER;
use rustix::process::{Pid, Signal, getppid, kill_process};

use crate::exit::one_line;

/// The name of the service that replaces the daemon.
pub const SERVICE: &str = "upgrade";

/// The requests to this service.
pub const VERSION: &str = "version";
pub const REPLACE: &str = "replace";

/// Part of the reply to [`VERSION`]: whether the daemon runs the installed program.
pub const INSTALLED: &str = "installed";
const OTHER: &str = "other";

/// The reply to [`REPLACE`] if the upgrade is possible. Afterwards the supervisor is signalled.
pub const ASKED: &str = "asked";

/// The hidden option of `fslab mount` with which the supervisor passes descriptors to the next
/// program.
const RESUMED: &str = "--resumed=";

/// The data that the previous program passed to this one.
#[derive(Clone, Debug)]
pub struct Resumed {
    /// The number of the descriptor of the [`KeptState`].
    pub state: RawFd,
    /// The number of the descriptor of the lower directory, or of the changes of an image.
    pub lower: RawFd,
    /// The path of the mount point, resolved before anything was mounted there.
    pub place: PathBuf,
}

impl Resumed {
    /// Parses the value of the option.
    ///
    /// # Errors
    /// Fails if the value was not written by [`Program`].
    pub fn parse(value: &OsString) -> Result<Self> {
        let mut parts = value.as_bytes().splitn(3, |byte| *byte == b',');
        let mut number = || RawFd::from_str(std::str::from_utf8(parts.next()?).ok()?).ok();
        let (state, lower) = (number(), number());
        let place = parts.next().map(|place| OsString::from_vec(place.to_vec()).into());
        match (state, lower, place) {
            (Some(state), Some(lower), Some(place)) => Ok(Self { state, lower, place }),
            _ => bail_as!(BadInput, "{RESUMED} is reserved for fslab itself"),
        }
    }

    /// Checks whether this program could take over a mount that another daemon serves.
    ///
    /// # Errors
    /// Fails if this version can't read a part of the mount's state.
    pub fn look(&self) -> Result<()> {
        let [state] = exec::take([self.state]).context("can't inspect the mount")?;
        let refused =
            |why: &dyn Display| anyhow!("fslab {} can't serve the mount: {why}", version());
        let state = KeptState::of_file(state).map_err(|error| refused(&error))?;
        if ![0, KEPT_LAYOUT].contains(&state.lower_layout()) {
            return Err(refused(&"its changes of an image are recorded in another format"));
        }
        Ok(())
    }
}

/// The program that a supervisor will execute, and its arguments.
#[derive(Clone, Debug)]
pub struct Program {
    /// The path of the program when the mount was made. By now, the file may be another version.
    path: PathBuf,
    /// The arguments, without the option for inherited descriptors.
    arguments: Vec<OsString>,
    place: PathBuf,
}

impl Program {
    /// Returns this program, and the arguments with which it was started.
    ///
    /// # Errors
    /// Fails if this program can't be found.
    pub fn of_this(place: &Path) -> Result<Self> {
        let path = std::env::current_exe().context("can't find this program")?;
        let is_own = |argument: &OsString| !argument.as_bytes().starts_with(RESUMED.as_bytes());
        let arguments = std::env::args_os().filter(is_own).collect();
        Ok(Self { path, arguments, place: place.to_owned() })
    }

    fn arguments(&self, [state, lower]: [RawFd; 2]) -> Vec<OsString> {
        let mut resumed = OsString::from(format!("{RESUMED}{state},{lower},"));
        resumed.push(&self.place);
        let mut arguments = self.arguments.clone();
        // The option comes right after the subcommand. After `--`, it would not be parsed as an
        // option.
        arguments.insert(arguments.len().min(2), resumed);
        arguments
    }

    /// Returns the process number, whether this process runs the installed program, and its
    /// version.
    fn told(&self) -> String {
        let (own, installed) = (Path::new("/proc/self/exe").metadata(), self.path.metadata());
        let identity = |metadata: std::fs::Metadata| (metadata.dev(), metadata.ino());
        let is_installed = own.ok().map(identity) == installed.ok().map(identity);
        let is_installed = if is_installed { INSTALLED } else { OTHER };
        format!("{} {is_installed} {}", std::process::id(), version())
    }

    fn open(&self) -> Result<TrustedProgram> {
        let opened = TrustedProgram::open(&self.path);
        opened.with_context(|| format!("can't run {}", self.path.display()))
    }

    /// Executes the program, which inherits all descriptors.
    ///
    /// # Errors
    /// Fails if the program can't be executed. The current program then continues as supervisor.
    pub fn replace_supervisor(&self, held: [RawFd; 2]) -> Result<Infallible> {
        let replaced = self.open()?.replace_this(self.arguments(held));
        replaced.with_context(|| format!("can't execute {}", self.path.display()))
    }

    /// Runs the program to check whether it could take over the mount.
    fn look_at(&self, state: &KeptState) -> Result<()> {
        // The program is run by its descriptor, so the file that was checked is the file that runs.
        let (mut command, _program) = self.open()?.command()?;
        let standard_input: OwnedFd = state.as_fd().try_clone_to_owned()?;
        let asked = command
            .args(["mount", "--dry-run"])
            .args(self.arguments([0, 0]).into_iter().skip(2))
            .stdin(Stdio::from(standard_input))
            .output();
        let asked = asked.with_context(|| format!("can't run {}", self.path.display()))?;
        if asked.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&asked.stderr);
        bail!("{} refused: {}", self.path.display(), said.lines().last().unwrap_or("no reason"))
    }
}

/// Returns the version of this program.
pub fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}

/// A service that replaces the daemon in this process on request.
pub struct Upgrade {
    /// The state that the next daemon must be able to read.
    pub state: Arc<KeptState>,
    /// The supervisor that started this daemon.
    pub supervisor: Pid,
    /// The program that takes over.
    pub program: Program,
}

impl Upgrade {
    fn can_be_replaced(&self) -> Result<()> {
        self.program.look_at(&self.state)?;
        if getppid() != Some(self.supervisor) {
            bail!("the supervisor of the mount has exited; unmount, and mount again");
        }
        Ok(())
    }

    /// Signals the supervisor, which then ends this process.
    fn ask_supervisor(&self) -> Result<()> {
        let signal = Signal::from_named_raw(ASKS_FOR_ANOTHER).context("no such signal")?;
        kill_process(self.supervisor, signal).context("can't signal the supervisor of the mount")
    }
}

impl Service for Upgrade {
    fn name(&self) -> &'static str {
        SERVICE
    }

    fn serve(
        &self,
        question: &str,
        _is_gone: &Arc<AtomicBool>,
        tell: &mut dyn FnMut(&str) -> bool,
    ) {
        let answer = match question.trim_end() {
            VERSION => self.program.told(),
            REPLACE => {
                self.can_be_replaced().map_or_else(|error| one_line(&error), |()| ASKED.to_owned())
            }
            _ => "unknown request".to_owned(),
        };
        // The answer is sent first, because the supervisor ends this process. An error of sending
        // is ignored, because the client may have disconnected.
        tell(&answer);
        if answer == ASKED
            && let Err(error) = self.ask_supervisor()
        {
            tracing::error!("{error:#}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn supervisor_state_round_trips_through_arguments() {
        let program = Program {
            path: "/usr/bin/fslab".into(),
            arguments: ["fslab", "mount", "--daemon", "--", "a", "b,c"].map(Into::into).into(),
            place: OsString::from_vec(b"/mnt/a,b\xff".to_vec()).into(),
        };
        let arguments = program.arguments([5, 7]);
        assert_eq!(arguments.len(), 7);
        let value = arguments[2].as_bytes().strip_prefix(RESUMED.as_bytes()).unwrap();
        let read = Resumed::parse(&OsString::from_vec(value.to_vec())).unwrap();
        assert_eq!((read.state, read.lower, read.place), (5, 7, program.place));
        for wrong in ["", "1", "1,2", "a,2,/", "1,,/"] {
            assert!(Resumed::parse(&wrong.into()).is_err(), "{wrong}");
        }
    }
}
