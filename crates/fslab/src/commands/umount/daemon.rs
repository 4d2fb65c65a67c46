//! Finds the daemon of a mount before the unmount, and waits for the daemon to exit.
//!
//! The daemon is found by the socket on which it reports its result (see `mount/ending.rs`).
//! Without a socket, it is found by its descriptor of /dev/fuse: /proc shows the number of the
//! descriptor's FUSE connection. A new mount may get the same number while the earlier daemon still
//! writes back data. So the code also checks whether the descriptor is still connected, if the
//! kernel allows that.

use std::io::{ErrorKind, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use fslab_sys::fuse_device::is_connected;
use fslab_sys::mounts::MountEntry;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use crate::commands::mount::ending::DONE;
use crate::runtime;

/// The time in which a daemon must write back data and report its result or exit.
const END_WAIT_MAX: Duration = Duration::from_secs(30);

/// The time in which a daemon must exit after it has reported its result.
const LINGER_MAX: Duration = Duration::from_secs(2);

/// Maximum length of a daemon's report in bytes.
const REPORT_BYTES_MAX: u64 = 64 << 10;

/// A process that serves a mount.
pub struct Daemon {
    pid: i32,
    process: OwnedFd,
    /// The stream on which the daemon reports its result.
    report: Option<UnixStream>,
}

impl Daemon {
    /// Returns the daemon of a mount; `None` if it is dead, or not visible from here.
    pub fn of(mount: &MountEntry) -> Option<Self> {
        Self::by_socket(mount).or_else(|| Self::by_descriptor(mount.device.1))
    }

    /// Returns whether a live daemon has made all its sockets. A daemon makes the socket for its
    /// result last, so this socket is tested. The socket of a killed daemon may still exist for a
    /// moment, while the next daemon closes the inherited descriptors.
    pub fn has_made_its_sockets(mount: &MountEntry) -> bool {
        Self::by_socket(mount).is_some()
    }

    fn by_socket(mount: &MountEntry) -> Option<Self> {
        let socket = runtime::find_socket(mount, "", runtime::ENDING).ok()??;
        let stream = runtime::connect(&socket).ok()?;
        let pid = rustix::net::sockopt::socket_peercred(&stream).ok()?.pid;
        Some(Self {
            pid: pid.as_raw_nonzero().get(),
            process: pidfd_open(pid, PidfdFlags::empty()).ok()?,
            report: Some(stream),
        })
    }

    /// Returns the process with a descriptor of a live connection with this number. If the kernel
    /// does not show whether a connection is live, returns the process that started last.
    fn by_descriptor(connection: u32) -> Option<Self> {
        let wanted = format!("fuse_connection:\t{connection}");
        let processes = std::fs::read_dir("/proc").ok()?.flatten();
        let pids =
            processes.filter_map(|process| process.file_name().to_str()?.parse::<i32>().ok());
        let found = pids.filter_map(|pid| candidate(pid, &wanted));
        let found = found.filter(|(is_connected, ..)| *is_connected != Some(false));
        Some(found.max_by_key(|(is_connected, started, _)| (*is_connected, *started))?.2)
    }

    /// Waits until the daemon of an unmounted mount point has reported its result or exited.
    ///
    /// # Errors
    /// Fails if the daemon takes too long, was killed, or could not write back its data.
    pub fn wait_for_end(mut self, place: &Path) -> Result<()> {
        // The code also waits for the report, because the process may exit much later. It exits
        // only when all its system calls have returned, including calls to a server that hangs.
        let report = self.report.as_ref().map(AsFd::as_fd);
        let watched: Vec<_> = [Some(self.process.as_fd()), report].into_iter().flatten().collect();
        let tells = is_one_ready_within(&watched, END_WAIT_MAX)?;
        let patience = if tells { LINGER_MAX } else { Duration::ZERO };
        let has_ended = has_ended_within(&self.process, patience)?;
        let (told, pid, place) = (self.told()?, self.pid, place.display());
        let note = |text: std::fmt::Arguments<'_>| {
            eprintln!("note: {text}");
            Ok(())
        };
        match told.as_deref().map(str::trim_end) {
            Some(DONE) if has_ended => Ok(()),
            Some(DONE) => note(format_args!(
                "{place} is unmounted and its data is written back, but its daemon (process {pid}) \
                 still waits for an unresponsive server; see the daemon's log"
            )),
            _ if !has_ended => {
                bail!("unmounted, but the daemon (process {pid}) is still writing back")
            }
            None => note(format_args!("{place} is unmounted; the result of its daemon is unknown")),
            Some("") => bail!(
                "{place} is unmounted, but its daemon (process {pid}) was killed before it had \
                 written everything back"
            ),
            Some(error) => bail!("{place} is unmounted, but its daemon failed: {error}"),
        }
    }

    /// Returns the daemon's report; `None` if there is no connection to the daemon.
    fn told(&mut self) -> Result<Option<String>> {
        let Some(stream) = self.report.as_mut() else { return Ok(None) };
        let mut report = String::new();
        // The daemon sends its report in one piece, so all of it has arrived.
        stream.set_nonblocking(true)?;
        match stream.take(REPORT_BYTES_MAX).read_to_string(&mut report) {
            Ok(_) => {}
            // The daemon exited without a report. A program that it started may still have the
            // socket open.
            Err(error)
                if [ErrorKind::WouldBlock, ErrorKind::ConnectionReset].contains(&error.kind()) => {}
            Err(error) => return Err(error).context("can't read the result of the daemon"),
        }
        Ok(Some(report))
    }
}

/// Returns a process if it has a descriptor with the wanted connection number. The `bool` is
/// whether the connection is live; it is `None` if the kernel does not allow this check. The number
/// is the start time of the process, in clock ticks since boot.
fn candidate(pid: i32, wanted: &str) -> Option<(Option<bool>, u64, Daemon)> {
    let process = pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?;
    let descriptors = std::fs::read_dir(format!("/proc/{pid}/fdinfo")).ok()?.flatten();
    let mut found = descriptors.filter(|descriptor| {
        std::fs::read_to_string(descriptor.path())
            .is_ok_and(|text| text.lines().any(|line| line == wanted))
    });
    let number = found.next()?.file_name().to_str()?.parse().ok()?;
    let descriptor = pidfd_getfd(&process, number, PidfdGetfdFlags::empty());
    let is_connected = descriptor.ok().map(is_connected);
    Some((is_connected, started(pid)?, Daemon { pid, process, report: None }))
}

/// Returns the start time, field 22 of /proc/PID/stat. The second field is a name in parentheses,
/// which may contain any character.
fn started(pid: i32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.split(' ').nth(19)?.parse().ok()
}

/// Waits until a process exits with all its threads. Returns `false` at the time limit.
fn has_ended_within(process: impl AsFd, patience: Duration) -> Result<bool> {
    is_one_ready_within(&[process.as_fd()], patience)
}

fn is_one_ready_within(watched: &[BorrowedFd<'_>], patience: Duration) -> Result<bool> {
    let end = Instant::now() + patience;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let left = Timespec { tv_sec: left.as_secs() as _, tv_nsec: left.subsec_nanos().into() };
        let mut polled: Vec<_> =
            watched.iter().map(|one| PollFd::from_borrowed_fd(*one, PollFlags::IN)).collect();
        match poll(&mut polled, Some(&left)) {
            Err(rustix::io::Errno::INTR) => {}
            polled => return Ok(polled.context("can't wait for the daemon")? > 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn start_time_is_read_for_existing_processes_only() {
        let own = started(std::process::id() as i32).unwrap();
        assert!(own >= started(1).unwrap() && own > 0);
        assert_eq!(started(-1), None);
    }

    #[test]
    fn waiting_for_a_process_ends_at_the_time_limit() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = Pid::from_raw(child.id() as i32).unwrap();
        let process = pidfd_open(pid, PidfdFlags::empty()).unwrap();
        assert!(!has_ended_within(&process, Duration::ZERO).unwrap());
        child.kill().unwrap();
        assert!(has_ended_within(&process, Duration::from_secs(60)).unwrap());
        child.wait().unwrap();
    }
}
