//! `-o keep`: a supervisor starts the daemon, keeps the daemon's files open, and starts the next
//! daemon when one is killed.
//!
//! The supervisor accesses no files in the mount and serves no requests; it only waits. Daemons are
//! forked from it and share its descriptor table ([`fslab_sys::supervise`]). On request it executes
//! the newly installed program, which continues as supervisor (`upgrade`).

use std::collections::{BTreeSet, VecDeque};
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use fslab_ext2::KEPT_LAYOUT;
use fslab_fuse::{DaemonEnd, KeptState};
use fslab_layers::Leaf;
use fslab_sys::dead_mount::DeadMount;
use fslab_sys::exec;
use fslab_sys::mounts;
use fslab_sys::shared_memory::SharedMemory;
use fslab_sys::signals::ENDING;
use fslab_sys::supervise::{End, Inherited, Role, supervise};
use fslab_vfs::{HostFs, HostOptions};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, WaitStatus};

use super::upgrade::{Program, Resumed, Upgrade};
use super::{Plan, messages};
use crate::exit::Code;
use crate::runtime;

/// The period over which deaths of daemons are counted.
const DEATHS_WITHIN: Duration = Duration::from_secs(60);

/// The part of the lower file system that all daemons of a mount share.
enum Lower {
    /// The lower directory. This stays valid even if something is mounted over its path later.
    Directory(OwnedFd),
    /// Changes to an image that are not written to it yet.
    Image(Arc<SharedMemory>),
}

impl Lower {
    /// Opens the lower directory, or makes the memory for the changes of an image. If a dead mount
    /// covers the lower directory, it is opened beneath that mount.
    fn new(leaf: &Leaf, dead: Option<&DeadMount>) -> Result<Self> {
        if let Some(path) = leaf.directory() {
            return Self::of_directory(path, dead.filter(|dead| dead.is_at(path)));
        }
        let Some(words) = leaf.change_words() else {
            bail_as!(
                BadInput,
                "-o keep works only for directories and ext2 images, because a file system in \
                 memory ends with its daemon"
            );
        };
        Ok(Self::Image(Arc::new(SharedMemory::new("fslab-kept-changes", words)?)))
    }

    fn of_directory(path: &Path, dead: Option<&DeadMount>) -> Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = match dead {
            Some(dead) => dead.beneath(),
            None => rustix::fs::open(path, flags, Mode::empty()).map_err(Into::into),
        };
        let root = root.with_context(|| path.display().to_string())?;
        let copy = rustix::io::fcntl_dupfd_cloexec(&root, 0)?;
        if !HostFs::from_descriptor(copy, &HostOptions::default())?.can_be_taken_over() {
            bail_as!(
                Missing,
                "-o keep needs a lower file system that can open files by file handle, such as \
                 ext4, XFS or Btrfs; {} is on one that can't",
                path.display()
            );
        }
        Ok(Self::Directory(root))
    }

    /// Returns the format version of the recorded changes of an image; 0 for a directory, which
    /// needs no such record.
    fn layout(&self) -> u64 {
        match self {
            Self::Directory(_) => 0,
            Self::Image(_) => KEPT_LAYOUT,
        }
    }

    fn number(&self) -> RawFd {
        match self {
            Self::Directory(root) => root.as_raw_fd(),
            Self::Image(changes) => changes.as_fd().as_raw_fd(),
        }
    }
}

/// The data that a daemon receives with `-o keep`.
pub struct Kept {
    /// State that a daemon records for the next daemon. This descriptor is never closed here,
    /// because all daemons share it.
    pub state: ManuallyDrop<Arc<KeptState>>,
    /// The part of the lower file system that all daemons share. It is never closed either.
    lower: ManuallyDrop<Lower>,
    /// The path of the mount point, resolved before anything was mounted there.
    pub place: PathBuf,
    /// Files that an earlier daemon left open; `None` for the first daemon.
    pub inherited: Option<Arc<Inherited>>,
    /// Whether the earlier daemon was replaced by another version of the program.
    pub is_upgraded: bool,
    /// The supervisor that started this daemon.
    supervisor: Pid,
    /// The program that the supervisor executes for an upgrade.
    program: Program,
}

impl Kept {
    /// Returns the lower directory; `None` for an image.
    ///
    /// # Errors
    /// Fails if this process has too many open files.
    pub fn root(&self) -> Result<Option<OwnedFd>> {
        Ok(match &*self.lower {
            Lower::Directory(root) => Some(rustix::io::fcntl_dupfd_cloexec(root, 0)?),
            Lower::Image(_) => None,
        })
    }

    /// Returns the memory for the changes of an image that are not written yet.
    pub fn changes(&self) -> Option<Arc<SharedMemory>> {
        match &*self.lower {
            Lower::Directory(_) => None,
            Lower::Image(changes) => Some(Arc::clone(changes)),
        }
    }

    /// Returns the service that replaces this daemon on request.
    pub fn upgrade(&self) -> Upgrade {
        let (state, program) = (Arc::clone(&self.state), self.program.clone());
        Upgrade { state, supervisor: self.supervisor, program }
    }
}

/// The role of this process after [`begin`] returns.
pub enum Part {
    /// A daemon.
    Daemon(Kept),
    /// The supervisor, after the mount has ended.
    Supervisor(Result<()>),
}

/// Makes this process the supervisor of a mount. Like fork(2), this function returns several times:
/// once in each daemon, and once in the supervisor. In the supervisor, it returns after the mount
/// has ended or when no daemon can serve it.
///
/// # Errors
/// Fails if the mount can't be made with `-o keep`, or can't be taken over.
pub fn begin(plan: &Plan) -> Result<Part> {
    let Held { state, lower, place, left } = match &plan.resumed {
        Some(resumed) => Held::of(plan, resumed)?,
        None => Held::new(plan)?,
    };
    // A daemon that fails must not close these either.
    let (state, lower) = (ManuallyDrop::new(state), ManuallyDrop::new(lower));
    let program = Program::of_this(&place)?;
    let (watched, mut deaths) = (Arc::clone(&state), VecDeque::new());
    let numbers = [state.as_fd().as_raw_fd(), lower.number()];
    // Raise the limit before a daemon starts. A daemon lists the files that earlier daemons left
    // open, and there may be more of them than the soft limit allows.
    runtime::raise_descriptor_limit();
    let next = |end| match end {
        // If the mount has ended or was never made, another daemon would mount again.
        _ if !watched.is_served() => false,
        End::Own | End::Killed => {
            let is_killed = matches!(end, End::Killed);
            watched.note_end(if is_killed { DaemonEnd::Killed } else { DaemonEnd::Crashed });
            may_be_replaced(&mut deaths, plan.options.deaths_max)
        }
        End::ForAnother => {
            watched.note_end(DaemonEnd::Replaced);
            let Err(error) = program.replace_supervisor(numbers);
            tracing::error!(
                "can't replace the supervisor of the mount on {}: {error:#}",
                place.display()
            );
            true
        }
    };
    let role = supervise(&ENDING, &left, || watched.is_served(), next);
    let role = role.context("can't start a daemon")?;
    Ok(match role {
        Role::Worker(supervisor, inherited) => {
            let inherited = state.is_served().then(|| Arc::new(inherited));
            // The inherited files are never dropped: the next daemon needs them if this one can't
            // take over.
            std::mem::forget(inherited.clone());
            let is_upgraded = state.last_end() == DaemonEnd::Replaced;
            Part::Daemon(Kept { state, lower, place, inherited, is_upgraded, supervisor, program })
        }
        Role::Supervisor(status) => Part::Supervisor(end(plan, &state, status)),
    })
}

/// The data shared by the supervisor and all daemons of a mount.
struct Held {
    state: Arc<KeptState>,
    lower: Lower,
    place: PathBuf,
    /// Descriptors that were open when the supervisor's previous program executed this one.
    left: BTreeSet<RawFd>,
}

impl Held {
    fn new(plan: &Plan) -> Result<Self> {
        let place = mounts::place_of(&plan.mount_point).context("can't find the mount point")?;
        let lower = Lower::new(&plan.stack.leaf, plan.dead.as_ref())
            .context("can't prepare a mount with -o keep")?;
        let state = KeptState::new(lower.layout()).context("can't prepare a mount with -o keep")?;
        Ok(Self { state: Arc::new(state), lower, place, left: BTreeSet::new() })
    }

    /// Takes over the data from the supervisor's previous program.
    fn of(plan: &Plan, resumed: &Resumed) -> Result<Self> {
        let numbers = [resumed.state, resumed.lower];
        if numbers.iter().any(|number| *number <= 2) {
            bail_as!(BadInput, "only fslab itself may pass descriptors to keep a mount");
        }
        let cant = || format!("can't take over the mount on {}", resumed.place.display());
        let left = exec::open_besides(&numbers).with_context(cant)?;
        let [state, lower] = exec::take(numbers).with_context(cant)?;
        let state = Arc::new(KeptState::of_file(state).with_context(cant)?);
        let lower = match plan.stack.leaf.change_words() {
            Some(words) => Lower::Image(SharedMemory::of(lower, words).with_context(cant)?.into()),
            None => Lower::Directory(lower),
        };
        Ok(Self { state, lower, place: resumed.place.clone(), left })
    }
}

fn may_be_replaced(deaths: &mut VecDeque<Instant>, deaths_max: usize) -> bool {
    let now = Instant::now();
    deaths.push_back(now);
    deaths.retain(|death| now - *death < DEATHS_WITHIN);
    deaths.len() < deaths_max
}

/// Returns the result of the last daemon. If this daemon exited with an error, this process exits
/// with the same code.
fn end(plan: &Plan, state: &KeptState, status: WaitStatus) -> Result<()> {
    if state.is_served() {
        // No daemon is left, so the supervisor itself reports the error.
        if plan.options.log.is_none() {
            messages::go_to_the_system_log();
        }
        let deaths_max = plan.options.deaths_max;
        tracing::error!(
            "{deaths_max} daemons died within {} s, so no other daemon is started for the mount on \
             {}; unmount it with `fslab umount`",
            DEATHS_WITHIN.as_secs(),
            plan.mount_point.display()
        );
        bail!("the daemon died {deaths_max} times");
    }
    match (status.exit_status(), status.terminating_signal()) {
        (Some(0), _) => Ok(()),
        // The daemon has reported the reason.
        (Some(code), _) => std::process::exit(code),
        (None, signal) => {
            let signal = signal.unwrap_or(0);
            Err(Code::Failure.error(format!("the daemon was killed by signal {signal}")))
        }
    }
}
