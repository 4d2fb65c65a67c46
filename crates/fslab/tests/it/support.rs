//! Functions that run the program, and scratch directories whose mounts are removed even if a test
//! fails.

use fslab_vfs_testing::scratch;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use fslab_vfs_testing::skip::{obstacle_to_mounting, skip};
use fslab_vfs_testing::uring_switch::{UringSwitch, obstacle_to_uring};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tempfile::TempDir;

/// Time limit for events that must happen soon. It is long, because the machine may be busy.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Ends a test with a skip message if nothing can be mounted here.
macro_rules! require_mounting {
    () => {
        require_mounting!($crate::support::Transport::Device);
    };
    ($transport:expr) => {
        let test = concat!(module_path!(), ", line ", line!());
        if $crate::support::can_not_mount_over($transport, test) {
            return;
        }
    };
}
pub(crate) use require_mounting;

pub fn can_not_mount(test: &str) -> bool {
    can_not_mount_over(Transport::Device, test)
}

pub fn can_not_mount_over(transport: Transport, test: &str) -> bool {
    let obstacle = match transport {
        Transport::Device => obstacle_to_mounting(),
        Transport::Uring => obstacle_to_uring(),
    };
    if let Some(reason) = obstacle {
        skip(test, reason);
    }
    obstacle.is_some()
}

/// Returns the mount point of control groups of version 2.
pub fn control_groups() -> Option<&'static Path> {
    let usual = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"].map(Path::new);
    usual.into_iter().find(|root| root.join("cgroup.controllers").exists())
}

/// Finds another program, in the directories of `cargo xtask setup` or in PATH.
pub fn program(name: &str) -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = set("FSLAB_CACHE")
        .or_else(|| Some(set("XDG_CACHE_HOME")?.join("fslab")))
        .or_else(|| Some(set("HOME")?.join(".cache/fslab")));
    let own = ["tools/bin", "tools/python/bin"];
    let own = cache.iter().flat_map(|cache| own.map(|folder| cache.join(folder)));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = own.chain(std::env::split_paths(&path));
    folders.map(|folder| folder.join(name)).find(|program| program.is_file())
}

/// Returns a command that runs fslab with these arguments.
pub fn fslab(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fslab"));
    command.args(arguments);
    command
}

/// Runs fslab. Returns its exit code and standard error.
pub fn run(arguments: &[&str]) -> (i32, String) {
    ended(&mut fslab(arguments))
}

pub fn ended(command: &mut Command) -> (i32, String) {
    let output: Output = command.output().unwrap();
    let code = output.status.code().unwrap_or(-1);
    (code, String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Unmounts a mount point that this test no longer uses. Returns the same values as [`run`]. The
/// unmount is retried: child processes of other tests inherit this test's open files, and keep them
/// until execve(2).
pub fn umount_unused(point: &Path) -> (i32, String) {
    let start = Instant::now();
    loop {
        let (code, message) = run(&["umount", point.to_str().unwrap()]);
        if code != 0 && message.contains("still writing back") {
            // Writing back may take long, because other tests keep the disk busy.
            soon("the daemon has exited", || daemons_naming(point).is_empty());
            return (0, String::new());
        }
        let is_in_use = code != 0 && message.contains("is in use");
        if !is_in_use || start.elapsed() > PATIENCE {
            return (code, message);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Copies a program that will be run, in a separate process. If this process had the copy open for
/// writing, child processes of other tests could inherit it. The kernel does not run a program that
/// is open for writing.
#[track_caller]
pub fn copy_program(program: &Path, to: &Path) {
    assert!(Command::new("cp").arg(program).arg(to).status().unwrap().success());
}

/// A shell command for a new mount namespace. It detaches the namespace's copies of the mounts of
/// other tests. Otherwise these would stay mounted for as long as the namespace exists, and one
/// that does not answer would stop `umount -a`.
pub const DETACH_OTHER_MOUNTS: &str = r#"
findmnt -nlt fuse.fslab -o TARGET | while read -r point; do
    # Detaching a mount also detaches the mounts inside it.
    umount -ilc "$point" 2> /dev/null || :
done
"#;

/// Returns whether this process has a separate /run. Such a process finds only the sockets of its
/// own mounts, and no other process removes them. If it has none, runs the test again in a process
/// with a separate /run.
#[track_caller]
pub fn has_own_run(test: &str) -> bool {
    const VARIABLE: &str = "FSLAB_TEST_OWN_RUN";
    const IN_OWN_RUN: &str = "mount -t tmpfs -o mode=755 none /run; exec \"$@\"";
    if std::env::var_os(VARIABLE).is_some() {
        return true;
    }
    let script = format!("{DETACH_OTHER_MOUNTS}{IN_OWN_RUN}");
    let output = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "sh", "-ec", &script, "sh"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture", test])
        .env(VARIABLE, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{said}{errors}");
    false
}

/// Returns a directory in memory if possible, or else in the directory for temporary files.
pub fn scratch_in_memory() -> TempDir {
    TempDir::new_in("/dev/shm").or_else(|_| TempDir::new()).unwrap()
}

/// How a daemon receives requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    Device,
    Uring,
}

/// A new lower directory and a new mount point, which ordinary users can access. Everything mounted
/// there is unmounted on drop.
pub struct Place {
    _scratch: TempDir,
    pub lower: PathBuf,
    pub point: PathBuf,
    pub transport: Transport,
}

impl Place {
    pub fn new() -> Self {
        Self::within(TempDir::new().unwrap())
    }

    /// Makes a place in the build directory. It is on a disk, so its pages can be dropped from
    /// memory.
    pub fn on_disk() -> Self {
        Self::within(TempDir::new_in(scratch::folder(env!("CARGO_TARGET_TMPDIR"))).unwrap())
    }

    /// Makes a place in memory if possible, for tests that sync often.
    pub fn in_memory() -> Self {
        Self::within(scratch_in_memory())
    }

    fn within(scratch: TempDir) -> Self {
        let (lower, point) = (scratch.path().join("lower"), scratch.path().join("point"));
        std::fs::create_dir(&lower).unwrap();
        std::fs::create_dir(&point).unwrap();
        Self { _scratch: scratch, lower, point, transport: Transport::Device }
    }

    /// Mounts a new lower directory with arguments.
    #[track_caller]
    pub fn mounted(arguments: &[&str]) -> Self {
        Self::mounted_over(Transport::Device, arguments)
    }

    /// Mounts a new lower directory, whose daemon receives requests through this transport.
    #[track_caller]
    pub fn mounted_over(transport: Transport, arguments: &[&str]) -> Self {
        let mut place = Self::new();
        place.transport = transport;
        place.mount(arguments);
        place
    }

    #[track_caller]
    pub fn mount(&self, arguments: &[&str]) {
        let (code, message) = self.try_mount(arguments);
        // Only the caution about experimental layers is allowed.
        let mut beyond = message.lines().filter(|line| !line.contains("experimental"));
        assert_eq!((code, beyond.next()), (0, None), "{message}");
        assert!(self.transport == Transport::Device || self.uses_io_uring());
    }

    pub fn try_mount(&self, arguments: &[&str]) -> (i32, String) {
        let _switch = (self.transport == Transport::Uring).then(|| UringSwitch::set(true));
        ended(&mut self.mount_command(arguments))
    }

    /// Returns the command that mounts the lower directory with arguments.
    pub fn mount_command(&self, arguments: &[&str]) -> Command {
        let paths = [self.lower.to_str().unwrap(), self.point.to_str().unwrap()];
        // Another test may switch io_uring on for the whole machine. A later `transport=` wins.
        let transport = match self.transport {
            Transport::Device => "transport=device",
            Transport::Uring => "transport=uring",
        };
        fslab(&[&["mount", "-o", transport], arguments, &paths].concat())
    }

    /// Returns whether the daemon of this mount point has threads that receive requests through
    /// io_uring.
    pub fn uses_io_uring(&self) -> bool {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.daemon())).unwrap();
        let names =
            threads.filter_map(|thread| std::fs::read(thread.ok()?.path().join("comm")).ok());
        names.into_iter().any(|name| name == b"fslab-uring\n")
    }

    #[track_caller]
    pub fn umount(&self) {
        let (code, message) = umount_unused(&self.point);
        assert_eq!((code, message.as_str()), (0, ""));
        assert!(!is_mounted(&self.point));
    }

    /// Kills all daemons of this mount point, even if they are stopped.
    fn kill_daemons(&self) {
        // A supervisor may start another daemon before it is killed.
        for pid in std::iter::repeat_with(|| daemons_naming(&self.point)).take(10).flatten() {
            let pid = Pid::from_raw(pid.cast_signed()).unwrap();
            // This fails if the process has ended.
            let _killed = rustix::process::kill_process(pid, Signal::KILL);
        }
    }

    /// Returns the process ID of the daemon that serves this mount point.
    pub fn daemon(&self) -> u32 {
        daemons_naming(&self.point).into_iter().next().unwrap()
    }

    /// Kills the daemon that serves this mount point, and waits until it has closed its files.
    /// Afterwards, requests of programs fail.
    #[track_caller]
    pub fn kill_daemon(&self) {
        kill(&open_process(self.daemon()));
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut flags = UnmountFlags::DETACH;
        if std::thread::panicking() {
            self.kill_daemons();
            // Requests without an answer fail, so that their threads can end.
            flags |= UnmountFlags::FORCE;
        }
        while is_mounted(&self.point) {
            if unmount(&self.point, flags).is_err() {
                return;
            }
        }
    }
}

pub fn is_mounted(path: &Path) -> bool {
    fslab_sys::mounts::mounted_on(path).unwrap().is_some()
}

pub fn open_process(pid: u32) -> OwnedFd {
    let pid = Pid::from_raw(pid.cast_signed()).unwrap();
    pidfd_open(pid, PidfdFlags::empty()).unwrap()
}

/// Kills a process, and waits until all its threads have ended and its files are closed. An entry
/// in /proc has no arguments and no program as soon as the process begins to exit.
#[track_caller]
pub fn kill(process: &OwnedFd) {
    pidfd_send_signal(process, Signal::KILL).unwrap();
    let limit = PATIENCE.try_into().unwrap();
    let ended = poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&limit)).unwrap();
    assert_eq!(ended, 1, "threads of the killed process remain");
}

/// Returns the processes that run this program, or a copy of it, with a path among their arguments.
pub fn daemons_naming(path: &Path) -> Vec<u32> {
    let mut pids = fslab_sys::mounts::processes_naming(path).unwrap();
    pids.retain(|pid| {
        let program = std::fs::read_link(format!("/proc/{pid}/exe"));
        program.is_ok_and(|path| {
            path.file_name().is_some_and(|name| name == "fslab" || name == "fslab (deleted)")
        })
    });
    pids
}

/// Waits for an event, up to the time limit.
#[track_caller]
pub fn soon(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "did not happen in time: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Parses a stack, which may contain codec layers.
pub fn sca_stack(text: &str) -> fslab_layers::Stack {
    let foreign =
        fslab_layers::Foreign { layers: fslab_sca::LAYERS, ..fslab_layers::Foreign::default() };
    fslab_layers::Stack::parse(text, foreign).unwrap()
}
