//! `fslab umount`: unmounts, and waits until the daemon has written back all data and exited.

mod daemon;

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use fslab_sys::mounts::{self, MountEntry};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use super::candidates;
use crate::exit::Code;
pub(super) use daemon::Daemon;

/// The time during which an unmount is retried while the mount is in use. Some uses are short: by a
/// program that only inspects mounts (df, lsof), or by a child process, which inherits open files
/// until its execve(2).
const BUSY_WAIT_MAX: Duration = Duration::from_millis(200);
const BUSY_PAUSE: Duration = Duration::from_millis(5);

/// Arguments of `fslab umount`.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    /// Detach the mount at once; open files stay usable until they are closed
    #[arg(long, short = 'z', short_alias = 'l')]
    lazy: bool,
    /// Abort in-flight requests first, as `umount -f` does
    #[arg(long, short)]
    force: bool,
    /// The mount point
    #[arg(add = candidates::mount_points())]
    mount_point: PathBuf,
}

const HELP: &str = "\
Waits up to 30 s for the daemon to write back all data and exit. Does not wait with --lazy, or if
the file system has another mount point too. If the daemon fails, umount fails and prints why.";

impl Args {
    /// Unmounts, and waits for the daemon.
    pub fn run(self) -> Result<()> {
        let (path, mount) = mount_of_ours(&self.mount_point)?;
        let others = other_places(&mount)?;
        let daemon = if self.lazy { None } else { Daemon::of(&mount) };
        self.unmount(&path, &mount)?;
        if let Some(place) = first_still_mounted(&others)? {
            eprintln!(
                "note: the file system is also mounted on {} and is still served there",
                place.display()
            );
            return Ok(());
        }
        daemon.map_or(Ok(()), |daemon| daemon.wait_for_end(&path))
    }

    fn unmount(&self, path: &Path, mount: &MountEntry) -> Result<()> {
        let mut flags = UnmountFlags::empty();
        flags.set(UnmountFlags::DETACH, self.lazy);
        flags.set(UnmountFlags::FORCE, self.force);
        let attempt = || mounts::unmount_entry(mount, flags);
        let Err(error) = while_busy(BUSY_WAIT_MAX, attempt) else { return Ok(()) };
        match Errno::from_io_error(&error) {
            Some(Errno::BUSY) => Err(in_use(path)),
            Some(Errno::PERM) => {
                refuse_if_of_another_user(path, mount)?;
                unmount_by_helper(path, self.lazy)
            }
            _ => Err(error).with_context(|| format!("can't unmount {}", path.display())),
        }
    }
}

/// Repeats an attempt while a mount is in use, for at most `patience`.
fn while_busy(patience: Duration, mut attempt: impl FnMut() -> io::Result<()>) -> io::Result<()> {
    let start = Instant::now();
    loop {
        match attempt() {
            Err(error)
                if Errno::from_io_error(&error) == Some(Errno::BUSY)
                    && start.elapsed() < patience => {}
            done => return done,
        }
        std::thread::sleep(BUSY_PAUSE);
    }
}

/// Returns the fslab mount at a mount point, with the absolute path of the mount point.
pub(super) fn mount_of_ours(path: &Path) -> Result<(PathBuf, MountEntry)> {
    let cant = || format!("can't find {}", path.display());
    // O_PATH does not access the mounted file system, whose daemon may be dead.
    let seen = match rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) {
        Err(Errno::NOENT) => bail_as!(BadInput, "{} does not exist", path.display()),
        seen => seen.with_context(cant)?,
    };
    let mount = mounts::mount_of(&seen).context("can't read the list of mounts")?;
    let place = mounts::place_of(path).with_context(cant)?;
    match mount.filter(|mount| mount.file_system == "fuse.fslab" && mount.target == place) {
        Some(mount) => Ok((place, mount)),
        None => bail_as!(
            BadInput,
            "{} is not a mount of fslab; `fslab status` lists the mounts",
            place.display()
        ),
    }
}

/// A mount, and an identity by which to recognise it later. On kernels with unique mount IDs, the
/// identity is never reused.
type Known = (u64, MountEntry);

/// Returns the other mounts of the same file system, which the daemon continues to serve.
fn other_places(mount: &MountEntry) -> Result<Vec<Known>> {
    let places = mounts::of_device(mount.device).context("can't read the list of mounts")?;
    let others = places.into_iter().filter(|other| other.id != mount.id);
    Ok(others.filter_map(|mount| Some((identity_of(&mount)?, mount))).collect())
}

/// Returns the identity of a mount. Returns `None` if the mount no longer exists, or if another
/// mount hides it.
fn identity_of(mount: &MountEntry) -> Option<u64> {
    mounts::identity_of(mount.open().ok()??).ok()
}

fn first_still_mounted(places: &[Known]) -> Result<Option<&Path>> {
    let mounts = mounts::list().context("can't read the list of mounts")?;
    let is_still = |(identity, mount): &&Known| {
        mounts.contains(mount) && identity_of(mount) == Some(*identity)
    };
    Ok(places.iter().find(is_still).map(|(_, mount)| mount.target.as_path()))
}

fn in_use(path: &Path) -> anyhow::Error {
    let shown = path.display();
    Code::BadInput.error(format!("{shown} is in use; stop the programs that use it, or use --lazy"))
}

fn refuse_if_of_another_user(path: &Path, mount: &MountEntry) -> Result<()> {
    let own = rustix::process::geteuid().as_raw().to_string();
    match mount.option("user_id").filter(|owner| *owner != own) {
        None => Ok(()),
        Some(owner) => bail_as!(
            BadInput,
            "{} was mounted by user {owner}; only that user and root may unmount it",
            path.display()
        ),
    }
}

/// Unmounts as an ordinary user, with fusermount3, the set-user-ID helper that made the mount.
fn unmount_by_helper(path: &Path, lazy: bool) -> Result<()> {
    let mut helper = std::process::Command::new("fusermount3");
    helper.arg("-u").args(lazy.then_some("-z")).arg("--").arg(path);
    match helper.output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => {
            let reason = String::from_utf8_lossy(&output.stderr);
            if reason.contains("Device or resource busy") {
                return Err(in_use(path));
            }
            bail_as!(BadInput, "can't unmount {}: {}", path.display(), reason.trim())
        }
        Err(error) => {
            bail_as!(Missing, "unmounting as an ordinary user needs fusermount3 (fuse3): {error}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answers(errors: &'static [Errno]) -> impl FnMut() -> io::Result<()> {
        let mut left = errors.iter();
        move || left.next().map_or(Ok(()), |errno| Err((*errno).into()))
    }

    #[test]
    fn umount_retries_only_while_the_mount_is_busy() {
        let long = Duration::from_secs(60);
        while_busy(long, answers(&[Errno::BUSY, Errno::BUSY])).unwrap();
        let refused = while_busy(long, answers(&[Errno::BUSY, Errno::PERM])).unwrap_err();
        assert_eq!(Errno::from_io_error(&refused), Some(Errno::PERM));
        while_busy(Duration::ZERO, answers(&[Errno::BUSY])).unwrap_err();
    }
}
