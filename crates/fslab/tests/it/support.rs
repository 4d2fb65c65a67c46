//! Scratch directories, the program, and mounts that are taken away on every path out of a test.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use fslab_vfs::testing::skip::{obstacle_to_mounting, skip};
use tempfile::TempDir;

/// Ends a test aloud where nothing can be mounted.
macro_rules! require_mounting {
    () => {
        if $crate::support::can_not_mount(concat!(module_path!(), ", line ", line!())) {
            return;
        }
    };
}
pub(crate) use require_mounting;

pub fn can_not_mount(test: &str) -> bool {
    let obstacle = obstacle_to_mounting();
    if let Some(reason) = obstacle {
        skip(test, reason);
    }
    obstacle.is_some()
}

/// The program with arguments.
pub fn fslab(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fslab"));
    command.args(arguments);
    command
}

/// Runs the program and answers its exit code and what it said on standard error.
pub fn run(arguments: &[&str]) -> (i32, String) {
    ended(&mut fslab(arguments))
}

fn ended(command: &mut Command) -> (i32, String) {
    let output: Output = command.output().unwrap();
    let code = output.status.code().unwrap_or(-1);
    (code, String::from_utf8_lossy(&output.stderr).into_owned())
}

/// A lower directory and a mount point, both new, where ordinary users can reach them; whatever
/// is mounted goes when this goes.
pub struct Place {
    _scratch: TempDir,
    pub lower: PathBuf,
    pub point: PathBuf,
}

impl Place {
    pub fn new() -> Self {
        Self::within(TempDir::new().unwrap())
    }

    /// Where builds are: on a disk, whose pages can be dropped from memory.
    pub fn on_disk() -> Self {
        Self::within(TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap())
    }

    fn within(scratch: TempDir) -> Self {
        let (lower, point) = (scratch.path().join("lower"), scratch.path().join("point"));
        std::fs::create_dir(&lower).unwrap();
        std::fs::create_dir(&point).unwrap();
        Self { _scratch: scratch, lower, point }
    }

    /// Mounts the lower directory with arguments.
    #[track_caller]
    pub fn mounted(arguments: &[&str]) -> Self {
        let place = Self::new();
        place.mount(arguments);
        place
    }

    #[track_caller]
    pub fn mount(&self, arguments: &[&str]) {
        let (code, message) = self.try_mount(arguments);
        // Layers that are experimental say so; there is nothing else to be said.
        let mut beyond = message.lines().filter(|line| !line.contains("experimental"));
        assert_eq!((code, beyond.next()), (0, None), "{message}");
    }

    pub fn try_mount(&self, arguments: &[&str]) -> (i32, String) {
        ended(&mut self.mount_command(arguments))
    }

    /// What mounts the lower directory with arguments.
    pub fn mount_command(&self, arguments: &[&str]) -> Command {
        let paths = [self.lower.to_str().unwrap(), self.point.to_str().unwrap()];
        fslab(&[&["mount"], arguments, &paths].concat())
    }

    #[track_caller]
    pub fn umount(&self) {
        let (code, message) = run(&["umount", self.point.to_str().unwrap()]);
        assert_eq!((code, message.as_str()), (0, ""));
        assert!(!is_mounted(&self.point));
    }

    /// The daemon that serves this place.
    pub fn daemon(&self) -> u32 {
        daemons_naming(&self.point).into_iter().next().unwrap()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        while is_mounted(&self.point) {
            if rustix::mount::unmount(&self.point, rustix::mount::UnmountFlags::DETACH).is_err() {
                return;
            }
        }
    }
}

pub fn is_mounted(path: &Path) -> bool {
    fslab_sys::mounts::mounted_on(path).unwrap().is_some()
}

/// Processes of this program that have a path among their arguments.
pub fn daemons_naming(path: &Path) -> Vec<u32> {
    let mut pids = fslab_sys::mounts::processes_naming(path).unwrap();
    pids.retain(|pid| {
        std::fs::read_link(format!("/proc/{pid}/exe"))
            .is_ok_and(|program| program == Path::new(env!("CARGO_BIN_EXE_fslab")))
    });
    pids
}

/// Waits for something that must come soon.
#[track_caller]
pub fn soon(what: &str, holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(20), "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
