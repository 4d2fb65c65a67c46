//! Serving one mount, from its start to its end.

use std::path::Path;

use anyhow::{Context, Result};
use fslab_fuse::{Session, Unmounter};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::Plan;

/// Mounts, calls `ready` with the place for messages, and serves until unmounted.
pub fn serve(plan: Plan, ready: impl FnOnce(Option<&Path>) -> Result<()>) -> Result<()> {
    start_messages();
    raise_descriptor_limit();
    let Plan { stack, options, mount_point } = plan;
    let mut mount_options = options.mount;
    mount_options.source = stack.leaf.to_string();
    let file_system = stack.build()?;
    let session = fslab_fuse::mount(file_system, &mount_point, &mount_options)?;
    let guard = DetachOnPanic(session.unmounter());
    say_what_was_asked_and_refused(&session, mount_options.writeback);
    detach_on_signals(session.unmounter())?;
    if let Err(error) = ready(options.log.as_deref()) {
        session.unmounter().detach()?;
        return Err(error);
    }
    let ended = session.wait();
    drop(guard);
    Ok(ended?)
}

fn start_messages() {
    let filter = tracing_subscriber::EnvFilter::try_from_env("FSLAB_LOG")
        .unwrap_or_else(|_unset| tracing_subscriber::EnvFilter::new("warn"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
}

fn say_what_was_asked_and_refused(session: &Session, writeback: bool) {
    let granted = session.granted();
    if writeback && !granted.writeback {
        tracing::warn!("the kernel refused the writeback cache; every write goes to the daemon");
    }
}

/// Every open file takes a descriptor here too.
fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%error, "the number of descriptors stays at its soft limit");
    }
}

/// A panic of the main thread must not leave a mount behind that nobody serves.
struct DetachOnPanic(Unmounter);

impl Drop for DetachOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking()
            && let Err(error) = self.0.detach()
        {
            tracing::error!(%error, "a mount is left behind");
        }
    }
}

/// The first signal unmounts and lets users finish; the second cuts them off.
fn detach_on_signals(unmounter: Unmounter) -> Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).context("can't handle signals")?;
    let handle = move || {
        let mut received = signals.forever();
        if received.next().is_some() {
            unmount_or_detach(&unmounter);
        }
        if received.next().is_some() {
            tracing::warn!("cut off by a second signal");
            std::process::exit(1);
        }
    };
    std::thread::Builder::new()
        .name("fslab-signals".to_owned())
        .spawn(handle)
        .context("can't start a thread")?;
    Ok(())
}

fn unmount_or_detach(unmounter: &Unmounter) {
    let unmounted = unmounter.unmount_if_unused().and_then(|unmounted| {
        if unmounted {
            return Ok(());
        }
        tracing::warn!("in use: taken out of the tree, and served until the last user is done");
        unmounter.detach()
    });
    if let Err(error) = unmounted {
        tracing::error!(%error, "can't unmount on a signal");
    }
}
