//! Serves one mount, from mounting to unmounting.

use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use fslab_fuse::{Breaker, MountOptions, Session, Unmounter};
use fslab_layers::{LeafOptions, Stack, StackContext};
use fslab_sys::dead_mount::DeadMount;
use fslab_sys::mounts;
use fslab_sys::signals::{ENDING, while_deferred};
use fslab_sys::supervise;
use fslab_vfs::{FileSystem, SynchronousFs};
use signal_hook::consts::SIGXFSZ;
use signal_hook::iterator::Signals;

use super::Plan;
use super::description::Description;
use super::ending::Ending;
use super::supervisor::{self, Kept, Part};
use super::utab::Note;
use super::{messages, reports, services, upgrade, wait};
use crate::runtime::{self, Socket};

/// Functions that are called once a mount works. They receive the file for messages, if there is
/// one.
#[derive(Clone, Copy)]
pub struct Ready {
    /// Called by the daemon that made the mount.
    pub first: fn(Option<File>) -> Result<()>,
    /// Called by a daemon that has taken over the mount.
    pub again: fn(Option<&File>) -> Result<()>,
}

/// Mounts, calls `ready`, and serves requests until the mount ends.
pub fn serve(plan: Plan, ready: Ready) -> Result<()> {
    let reason = plan.options.reason_for_device(&plan.stack);
    if let Some(reason) = reason.filter(|_| plan.options.transport.is_none()) {
        tracing::info!("requests arrive through /dev/fuse: {reason}");
    }
    if !plan.options.mount.keep {
        return serve_mount(plan, None, ready);
    }
    match supervisor::begin(&plan)? {
        Part::Daemon(kept) if kept.inherited.is_none() => {
            let state = Arc::clone(&kept.state);
            let served = serve_mount(plan, Some(kept), ready);
            // A daemon that could not mount, or whose mount ended normally, is not replaced.
            state.end();
            served
        }
        Part::Daemon(kept) => serve_mount(plan, Some(kept), ready),
        Part::Supervisor(ended) => ended,
    }
}

fn serve_mount(plan: Plan, kept: Option<Kept>, ready: Ready) -> Result<()> {
    // Every open file of the mount needs a descriptor in this process too.
    runtime::raise_descriptor_limit();
    // The kernel has checked the file size limit of the writing program, but the daemon's own limit
    // may be lower. A handler for SIGXFSZ makes the daemon's write fail with an error; without a
    // handler, the signal would kill the daemon.
    let handled = signal_hook::flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)));
    handled.context("can't handle SIGXFSZ")?;
    let Plan { stack, options, mount_point, dead, is_quiet, .. } = plan;
    let log = options.log.as_deref().map(open_log).transpose()?;
    // Handlers are installed before mounting, so that a signal can't leave the mount behind.
    let signals = while_deferred(|| Signals::new(ENDING)).flatten();
    let signals = signals.context("can't handle signals")?;
    if kept.is_some() {
        // The supervisor blocks these signals in its daemons until their handlers are installed.
        supervise::unblock(&ENDING).context("can't unblock signals")?;
    }
    let mut mount_options = options.mount;
    let (read_only, access_times) = (mount_options.read_only, mount_options.access_times);
    let inherited = kept.as_ref().and_then(|kept| kept.inherited.clone());
    let changes = kept.as_ref().and_then(Kept::changes);
    let leaf_options = LeafOptions { read_only, access_times, inherited, changes };
    let context = crate::stack_context::of_program().with_leaf_options(leaf_options);
    let build = || build(&stack, kept.as_ref(), dead.as_ref(), &context);
    mount_options.source = stack.leaf.to_string();
    let file_system = wait::while_in_use(&stack.leaf, options.busy_timeout, build)?;
    let file_system = match mount_options.synchronous {
        Some(what) => Arc::new(SynchronousFs::new(file_system, what)),
        None => file_system,
    };
    let has_predecessor = context.leaf_options().inherited.is_some();
    let described = (!has_predecessor).then(|| Description::new(&stack));
    let cautions = described.iter().filter(|_| !is_quiet).flat_map(|one| &one.cautions);
    cautions.for_each(|caution| tracing::warn!("{caution}"));
    // Steps that may fail are done before mounting. With `-o keep`, the mount point must not be
    // accessed here, because no daemon serves it yet.
    let place = match &kept {
        Some(kept) => kept.place.clone(),
        None => mounts::place_of(&mount_point).context("can't find the mount point")?,
    };
    let sockets = if has_predecessor { None } else { place_for_sockets(&context)? };
    let session = begin_session(file_system, &place, &mount_options, kept.as_ref())?;
    // A daemon with a predecessor makes its sockets only after it has taken over. Taking over
    // closes the files and sockets of the killed daemon.
    let sockets = if has_predecessor { place_for_sockets(&context)? } else { sockets };
    let guard = DetachOnPanic(session.unmounter());
    // Only the first daemon of a kept mount replaces the dead mount.
    if let Some(dead) = dead.filter(|_| !has_predecessor) {
        let yielded = dead.yield_to_its_successor();
        yielded.inspect_err(|_| detach_or_say(&session.unmounter())).with_context(|| {
            format!("can't replace the dead mount on {}", dead.place().display())
        })?;
    }
    let description = described.unwrap_or_else(|| Description::new(&stack));
    let description = description.served(&mount_options, session.granted());
    let device = session.device();
    let answered = answer(context, description, &place, device, sockets.as_deref(), kept.as_ref());
    let (ending, names) = answered.inspect_err(|_| detach_or_say(&session.unmounter()))?;
    report_refused_options(&session, &mount_options);
    let breaker = session.breaker();
    let repeats = if kept.is_some() { REPEATS } else { Duration::ZERO };
    detach_on_signals(signals, session.unmounter(), breaker.clone(), repeats)?;
    let told = match has_predecessor {
        true => (ready.again)(log.as_ref()),
        false => (ready.first)(log),
    };
    if let Err(error) = told {
        session.unmounter().detach()?;
        return Err(error);
    }
    if kept.as_ref().is_some_and(|kept| kept.is_upgraded) {
        tracing::warn!("fslab {} now serves {}", upgrade::version(), place.display());
    } else if has_predecessor {
        tracing::warn!("the daemon of {} was killed; a new one continues", place.display());
    }
    let mut ended = session.wait_and_then(move || drop(names)).map_err(anyhow::Error::from);
    drop(guard);
    if ended.is_ok() && breaker.has_cut_off() {
        ended = Err(anyhow::anyhow!("after a second signal, requests to the mount failed"));
    }
    ending.iter().for_each(|ending| ending.tell(&ended));
    ended
}

/// Mounts, or takes over the mount of an earlier daemon.
fn begin_session(
    file_system: Arc<dyn FileSystem>,
    place: &Path,
    options: &MountOptions,
    kept: Option<&Kept>,
) -> Result<Session> {
    Ok(match kept {
        None => fslab_fuse::mount(file_system, place, options)?,
        Some(Kept { state, inherited: Some(inherited), .. }) => {
            fslab_fuse::take_over(file_system, place, options, state, inherited)?
        }
        Some(Kept { state, .. }) => {
            let state = Some(Arc::clone(state));
            fslab_fuse::mount_kept(file_system, place, options, state)?
        }
    })
}

/// Builds the stack. If the dead mount that is replaced covers the lower directory, that directory
/// is opened beneath the dead mount.
fn build(
    stack: &Stack,
    kept: Option<&Kept>,
    dead: Option<&DeadMount>,
    context: &StackContext,
) -> Result<Arc<dyn FileSystem>> {
    if let Some(kept) = kept {
        let Some(root) = kept.root()? else { return Ok(stack.build_in(context)?) };
        let leaf = stack.leaf.open_directory(root, context.leaf_options())?;
        if kept.inherited.is_some() {
            // Dropping the leaf would release the lock of the tree. The next daemon needs this lock
            // if this daemon fails. The lock is released once all these processes have exited.
            std::mem::forget(Arc::clone(&leaf));
        }
        return Ok(stack.build_over(leaf, context)?);
    }
    let is_over = |dead: &&DeadMount| stack.leaf.directory().is_some_and(|path| dead.is_at(path));
    let Some(dead) = dead.filter(is_over) else { return Ok(stack.build_in(context)?) };
    let cant =
        || format!("can't use the directory under the dead mount on {}", dead.place().display());
    let beneath = dead.beneath().with_context(cant)?;
    let leaf = stack.leaf.open_directory(beneath, context.leaf_options()).with_context(cant)?;
    Ok(stack.build_over(leaf, context)?)
}

/// The sockets of a mount, and its line in utab. They are removed when dropped.
type Names = (Vec<Socket>, Option<Note>);

/// Returns the directory for the sockets of a mount. Returns `None` if it can't be made and no
/// layer needs it.
fn place_for_sockets(context: &StackContext) -> Result<Option<PathBuf>> {
    let is_needed = context.has_reporters() || !context.services().is_empty();
    match runtime::prepare() {
        Err(error) if !is_needed => {
            tracing::info!("`fslab umount` can't report the result of this daemon: {error:#}");
            Ok(None)
        }
        directory => directory.map(Some),
    }
}

fn answer(
    context: StackContext,
    description: Description,
    mount_point: &Path,
    device: (u32, u32),
    directory: Option<&Path>,
    kept: Option<&Kept>,
) -> Result<(Option<Ending>, Names)> {
    let places = mounts::of_device(device).context("can't read the mounts")?;
    let note = places.first().and_then(Note::of);
    let Some(directory) = directory else { return Ok((None, (Vec::new(), note))) };
    let mut sockets = services::serve_layers(&context, device, directory)?;
    sockets.push(services::serve(Arc::new(description), device, directory)?);
    if let Some(kept) = kept {
        sockets.push(services::serve(Arc::new(kept.upgrade()), device, directory)?);
    }
    if context.has_reporters() {
        sockets.push(reports::serve(context, mount_point, device, directory)?);
    }
    let (ending, socket) = Ending::offer(device, directory)?;
    sockets.push(socket);
    Ok((Some(ending), (sockets, note)))
}

fn open_log(path: &Path) -> Result<File> {
    let opened = OpenOptions::new().create(true).append(true).open(path);
    opened.with_context(|| format!("can't write messages to {}", path.display()))
}

/// Redirects the messages of a mount in the foreground to the file, if there is one. Called once
/// the mount works.
pub fn send_messages_to(log: Option<File>) -> Result<()> {
    let Some(log) = log else { return Ok(()) };
    rustix::stdio::dup2_stderr(&log).context("can't send messages to the file")?;
    messages::go_to_a_file();
    Ok(())
}

fn report_refused_options(session: &Session, options: &MountOptions) {
    let granted = session.granted();
    if options.writeback && !granted.writeback() {
        tracing::warn!("the kernel refused the writeback cache; every write goes to the daemon");
    }
    if (options.set_id || options.devices) && !rustix::process::geteuid().is_root() {
        tracing::warn!(
            "only mounts made by root can have suid and dev; this mount is nosuid and nodev"
        );
    }
    if options.id_maps && !granted.id_maps() {
        tracing::warn!(
            "the kernel does not allow id-mapped FUSE mounts here; they need root and Linux 6.12"
        );
    }
}

/// Detaches the mount if the main thread panics, because no process would serve it any longer.
struct DetachOnPanic(Unmounter);

impl Drop for DetachOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            detach_or_say(&self.0);
        }
    }
}

fn detach_or_say(unmounter: &Unmounter) {
    if let Err(error) = unmounter.detach() {
        tracing::error!(%error, "can't detach the mount; unmount it with `fslab umount`");
    }
}

/// The time after the first signal during which other signals are treated as repeats. With
/// `-o keep`, a signal to a whole process group reaches the daemon twice: directly, and because the
/// supervisor passes on its own signal.
const REPEATS: Duration = Duration::from_millis(200);

/// Handles signals. At the first signal, the mount is unmounted; if programs use it, it is detached
/// until they have closed their files. At the second signal, requests of these programs fail. Data
/// of closed files is always written back; only SIGKILL loses it.
fn detach_on_signals(
    mut signals: Signals,
    unmounter: Unmounter,
    breaker: Breaker,
    repeats: Duration,
) -> Result<()> {
    let handle = move || {
        let mut received = signals.forever();
        let first = received.next().map(|_signal| Instant::now());
        if first.is_some() {
            unmount_or_detach(&unmounter);
        }
        for _ in received {
            if first.is_some_and(|first| first.elapsed() < repeats) {
                continue;
            }
            if unmounter.is_mounted() && !breaker.has_cut_off() {
                tracing::warn!("second signal: requests of programs that still use the mount fail");
                breaker.cut_off();
            } else {
                tracing::warn!("still writing back; SIGKILL would lose the unwritten data");
            }
        }
    };
    let thread = std::thread::Builder::new().name("fslab-signals".to_owned());
    thread.spawn(handle).map(drop).context("can't start a thread")
}

fn unmount_or_detach(unmounter: &Unmounter) {
    let unmounted = unmounter.unmount_if_unused().and_then(|unmounted| {
        if unmounted {
            return Ok(());
        }
        tracing::warn!(
            "the mount is in use, so it is only detached; its open files work until they are closed"
        );
        unmounter.detach()
    });
    if let Err(error) = unmounted {
        tracing::error!(%error, "can't unmount on a signal");
    }
}
