//! `fslab umount`: takes a mount away and waits until its daemon has let go of the lower files.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use fslab_sys::mounts::{self, MountEntry};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};

use crate::exit::{Code, Coded};

/// How long a daemon may take to write back and end.
const END_WAIT_MAX: Duration = Duration::from_secs(30);

/// Arguments of `fslab umount`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Take the mount out of the tree at once; who still uses it is served until done
    #[arg(long, short = 'z')]
    lazy: bool,
    /// Where it is mounted
    mount_point: PathBuf,
}

impl Args {
    /// Unmounts.
    pub fn run(self) -> Result<()> {
        let (path, mount) = mount_of_ours(&self.mount_point)?;
        let daemon = daemon_of(mount.device.1);
        let flags = if self.lazy { UnmountFlags::DETACH } else { UnmountFlags::empty() };
        match unmount(&path, flags | UnmountFlags::NOFOLLOW) {
            Ok(()) => {}
            Err(Errno::BUSY) => {
                return Err(bad(format!(
                    "{} is in use; end what uses it, or use --lazy",
                    path.display()
                )));
            }
            Err(Errno::PERM) => unmount_by_helper(&path, self.lazy)?,
            Err(error) => {
                return Err(error).with_context(|| format!("can't unmount {}", path.display()));
            }
        }
        if let Some(place) = still_mounted(mount.device)? {
            eprintln!("note: it is also mounted on {}, and served there", place.display());
            return Ok(());
        }
        match daemon {
            Some(pid) if !self.lazy => wait_for_end(pid),
            _ => Ok(()),
        }
    }
}

/// The mount of fslab on a path, and its absolute path.
pub(super) fn mount_of_ours(path: &Path) -> Result<(PathBuf, MountEntry)> {
    let path = absolute(path)?;
    let mount = mounts::mounted_on(&path)
        .context("can't read the list of mounts")?
        .filter(|mount| mount.file_system == "fuse.fslab")
        .ok_or_else(|| bad(format!("{} is no mount of fslab", path.display())))?;
    Ok((path, mount))
}

/// Another place where the same file system is mounted: its daemon goes on for that.
fn still_mounted(device: (u32, u32)) -> Result<Option<PathBuf>> {
    let mounts = mounts::list().context("can't read the list of mounts")?;
    Ok(mounts.into_iter().find(|mount| mount.device == device).map(|mount| mount.target))
}

fn bad(message: String) -> anyhow::Error {
    Coded { code: Code::BadInput, message }.into()
}

fn absolute(path: &Path) -> Result<PathBuf> {
    match mounts::place_of(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Err(bad(format!("{} does not exist", path.display())))
        }
        place => place.with_context(|| format!("can't find {}", path.display())),
    }
}

/// The process that serves a FUSE connection: its descriptor of /dev/fuse names the connection.
pub(super) fn daemon_of(connection: u32) -> Option<u32> {
    let wanted = format!("fuse_connection:\t{connection}");
    let processes = std::fs::read_dir("/proc").ok()?.flatten();
    let pids = processes.filter_map(|process| process.file_name().to_str()?.parse::<u32>().ok());
    pids.into_iter().find(|pid| serves(*pid, &wanted))
}

fn serves(pid: u32, wanted: &str) -> bool {
    let Ok(descriptors) = std::fs::read_dir(format!("/proc/{pid}/fdinfo")) else { return false };
    descriptors.flatten().any(|descriptor| {
        std::fs::read_to_string(descriptor.path())
            .is_ok_and(|text| text.lines().any(|line| line == wanted))
    })
}

fn wait_for_end(pid: u32) -> Result<()> {
    let process = PathBuf::from(format!("/proc/{pid}"));
    let start = Instant::now();
    while process.exists() && !has_ended(&process) {
        if start.elapsed() > END_WAIT_MAX {
            anyhow::bail!("unmounted, but the daemon (process {pid}) is still writing back");
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// Ended, and only not yet waited for by its parent. The first thread may have ended while others
/// still have everything open.
fn has_ended(process: &Path) -> bool {
    let stat = std::fs::read_to_string(process.join("stat"));
    let is_zombie =
        stat.is_ok_and(|stat| stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('Z')));
    let threads = std::fs::read_dir(process.join("task")).map_or(0, Iterator::count);
    is_zombie && threads <= 1
}

/// Ordinary users unmount through the setuid helper that mounted for them.
fn unmount_by_helper(path: &Path, lazy: bool) -> Result<()> {
    let mut helper = std::process::Command::new("fusermount3");
    helper.arg("-u").args(lazy.then_some("-z")).arg("--").arg(path);
    let output = helper.output().map_err(|error| Coded {
        code: Code::Missing,
        message: format!("unmounting as an ordinary user needs fusermount3 (fuse3): {error}"),
    })?;
    if output.status.success() {
        return Ok(());
    }
    let reason = String::from_utf8_lossy(&output.stderr);
    Err(bad(format!("can't unmount {}: {}", path.display(), reason.trim())))
}
