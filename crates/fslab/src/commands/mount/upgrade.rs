//! How the daemon of a kept mount is replaced by another version of the program, for
//! `fslab upgrade`.
//!
//! The daemon is asked by a socket. It has the program that is installed now look at the mount,
//! which that program does as a process of its own, and signals the supervisor. That ends the
//! daemon and becomes the program, with all descriptors; the program goes on as supervisor.

use std::convert::Infallible;
use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result, anyhow, bail};
use fslab_fuse::KeptState;
use fslab_layers::Service;
use fslab_sys::exec::{self, TrustedProgram};
use fslab_sys::supervise::ASKS_FOR_ANOTHER;
use rustix::process::{Pid, Signal, getppid, kill_process};

use crate::exit::one_line;

/// The word under which a daemon is asked to be replaced.
pub const SERVICE: &str = "upgrade";

/// What may be asked.
pub const VERSION: &str = "version";
pub const REPLACE: &str = "replace";

/// Parts of an answer: whether a daemon is the program that is installed.
pub const INSTALLED: &str = "installed";
const OTHER: &str = "other";

/// The answer where the supervisor was signalled.
pub const ASKED: &str = "asked";

/// The hidden option of `fslab mount`: which descriptors the supervisor hands to the program that
/// takes its place.
const RESUMED: &str = "--resumed=";

/// What the program before has left to this one.
#[derive(Clone, Debug)]
pub struct Resumed {
    /// The descriptor of the [`KeptState`].
    pub state: RawFd,
    /// The descriptor of the directory below.
    pub root: RawFd,
    /// The mount point, found when nothing was mounted yet.
    pub place: PathBuf,
}

impl Resumed {
    /// Reads the value of the option.
    ///
    /// # Errors
    /// Where it is none of those that [`Program`] writes.
    pub fn parse(value: &OsString) -> Result<Self> {
        let mut parts = value.as_bytes().splitn(3, |byte| *byte == b',');
        let mut number = || RawFd::from_str(std::str::from_utf8(parts.next()?).ok()?).ok();
        let (state, root) = (number(), number());
        let place = parts.next().map(|place| OsString::from_vec(place.to_vec()).into());
        match (state, root, place) {
            (Some(state), Some(root), Some(place)) => Ok(Self { state, root, place }),
            _ => bail_as!(BadInput, "{RESUMED} is for fslab itself"),
        }
    }

    /// Says whether this program can go on with a mount that is served meanwhile.
    ///
    /// # Errors
    /// Which part of the mount's state this version does not understand.
    pub fn look(&self) -> Result<()> {
        let [state] = exec::take([self.state]).context("can't look at the mount")?;
        KeptState::of_file(state)
            .map(drop)
            .map_err(|error| anyhow!("fslab {} can't serve it: {error}", version()))
    }
}

/// The program that a supervisor is to become, and how it is called.
#[derive(Clone, Debug)]
pub struct Program {
    /// Where it was when the mount was made; another version may be there by now.
    path: PathBuf,
    /// Without those by which it was resumed.
    arguments: Vec<OsString>,
    place: PathBuf,
}

impl Program {
    /// This one, as it was called to mount.
    ///
    /// # Errors
    /// Where it can't be found.
    pub fn of_this(place: &Path) -> Result<Self> {
        let path = std::env::current_exe().context("can't find this program")?;
        let is_own = |argument: &OsString| !argument.as_bytes().starts_with(RESUMED.as_bytes());
        let arguments = std::env::args_os().filter(is_own).collect();
        Ok(Self { path, arguments, place: place.to_owned() })
    }

    fn arguments(&self, [state, root]: [RawFd; 2]) -> Vec<OsString> {
        let mut resumed = OsString::from(format!("{RESUMED}{state},{root},"));
        resumed.push(&self.place);
        let mut arguments = self.arguments.clone();
        // Behind the program and the subcommand: behind `--` there are no options.
        arguments.insert(arguments.len().min(2), resumed);
        arguments
    }

    /// The process, whether it is the program that is installed now, and its version.
    fn told(&self) -> String {
        let (own, installed) = (Path::new("/proc/self/exe").metadata(), self.path.metadata());
        let identity = |metadata: std::fs::Metadata| (metadata.dev(), metadata.ino());
        let is_installed = own.ok().map(identity) == installed.ok().map(identity);
        let is_installed = if is_installed { INSTALLED } else { OTHER };
        format!("{} {is_installed} {}", std::process::id(), version())
    }

    fn open(&self) -> Result<TrustedProgram> {
        let opened = TrustedProgram::open(&self.path);
        opened.with_context(|| format!("can't change to {}", self.path.display()))
    }

    /// Becomes the program, with all that is open.
    ///
    /// # Errors
    /// Why this program goes on.
    pub fn replace_supervisor(&self, held: [RawFd; 2]) -> Result<Infallible> {
        let replaced = self.open()?.replace_this(self.arguments(held));
        replaced.with_context(|| format!("can't change to {}", self.path.display()))
    }

    /// Has the program say whether it can go on with a mount.
    fn look_at(&self, state: &KeptState) -> Result<()> {
        // By its descriptor: what is looked at is what runs.
        let (mut command, _program) = self.open()?.command()?;
        let standard_input: OwnedFd = state.as_fd().try_clone_to_owned()?;
        let asked = command
            .arg("mount")
            .args(self.arguments([0, 0]).into_iter().skip(2))
            .arg("--dry-run")
            .stdin(Stdio::from(standard_input))
            .output();
        let asked = asked.with_context(|| format!("can't run {}", self.path.display()))?;
        if asked.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&asked.stderr);
        bail!("{} refuses: {}", self.path.display(), said.lines().last().unwrap_or("no reason"))
    }
}

/// The version of this program.
pub fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}

/// Replaces the daemon that this process is, where it is asked to.
pub struct Upgrade {
    /// What the next daemon must understand.
    pub state: Arc<KeptState>,
    /// Who started this daemon.
    pub supervisor: Pid,
    /// The program that takes over.
    pub program: Program,
}

impl Upgrade {
    /// Whether another program can serve the mount.
    fn can_be_replaced(&self) -> Result<()> {
        self.program.look_at(&self.state)?;
        if getppid() != Some(self.supervisor) {
            bail!("its supervisor has ended: mount it again");
        }
        Ok(())
    }

    /// Ends this process.
    fn ask_supervisor(&self) -> Result<()> {
        let signal = Signal::from_named_raw(ASKS_FOR_ANOTHER).context("no such signal")?;
        kill_process(self.supervisor, signal).context("can't ask the supervisor")
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
            _ => "not understood".to_owned(),
        };
        // Answered first, because the supervisor kills this process. That the client may have left
        // already changes nothing.
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
    fn what_a_supervisor_holds_is_told_and_read() {
        let program = Program {
            path: "/usr/bin/fslab".into(),
            arguments: ["fslab", "mount", "--daemon", "--", "a", "b,c"].map(Into::into).into(),
            place: OsString::from_vec(b"/mnt/a,b\xff".to_vec()).into(),
        };
        let arguments = program.arguments([5, 7]);
        assert_eq!(arguments.len(), 7);
        let value = arguments[2].as_bytes().strip_prefix(RESUMED.as_bytes()).unwrap();
        let read = Resumed::parse(&OsString::from_vec(value.to_vec())).unwrap();
        assert_eq!((read.state, read.root, read.place), (5, 7, program.place));
        for wrong in ["", "1", "1,2", "a,2,/", "1,,/"] {
            assert!(Resumed::parse(&wrong.into()).is_err(), "{wrong}");
        }
    }
}
