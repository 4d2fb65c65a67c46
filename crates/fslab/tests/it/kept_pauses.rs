//! Tests kept mounts whose processes are frozen, or end together with their environment.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fslab_vfs_testing::skip::skip;
use rustix::process::{Pid, Signal, kill_process};

use crate::kept::{
    EXT2, append_lines, arguments_for, change_names, kill_daemon, place_for, processes,
    umount_whole, write_and_read,
};
use crate::support::{
    DETACH_OTHER_MOUNTS, Place, control_groups, daemons_naming, require_mounting, soon,
    umount_unused,
};

/// Longer than a supervisor needs to detect a daemon that can't exit.
const PAUSE: Duration = Duration::from_millis(1500);

/// Frozen processes, which continue when this is dropped.
enum Frozen {
    Stopped(Vec<Pid>),
    Group { group: PathBuf, pids: Vec<Pid>, home: PathBuf },
}

impl Frozen {
    /// Stops processes by a signal.
    fn by_signal(pids: Vec<Pid>) -> Self {
        pids.iter().for_each(|pid| kill_process(*pid, Signal::STOP).unwrap());
        Self::Stopped(pids)
    }

    /// Freezes processes in a new control group, as a container runtime does.
    fn in_group(root: &Path, pids: Vec<Pid>) -> Self {
        let home = home_of(root, pids[0]);
        let group = root.join(format!("fslab-test-{}", std::process::id()));
        fs::create_dir(&group).unwrap();
        let frozen = Self::Group { group: group.clone(), pids, home };
        if let Self::Group { pids, .. } = &frozen {
            move_to(&group, pids);
        }
        fs::write(group.join("cgroup.freeze"), "1").unwrap();
        soon("the group is frozen", || {
            fs::read_to_string(group.join("cgroup.events")).unwrap().contains("frozen 1")
        });
        frozen
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        match self {
            Self::Stopped(pids) => {
                // A process that has ended can't be continued.
                for pid in pids {
                    let _continued = kill_process(*pid, Signal::CONT);
                }
            }
            Self::Group { group, pids, home } => {
                fs::write(group.join("cgroup.freeze"), "0").unwrap();
                move_to(home, pids);
                soon("the control group is empty", || fs::remove_dir(&*group).is_ok());
            }
        }
    }
}

fn move_to(group: &Path, pids: &[Pid]) {
    let procs = group.join("cgroup.procs");
    pids.iter().for_each(|pid| fs::write(&procs, pid.as_raw_pid().to_string()).unwrap());
}

/// Returns the control group of a process.
fn home_of(root: &Path, pid: Pid) -> PathBuf {
    let groups = fs::read_to_string(format!("/proc/{}/cgroup", pid.as_raw_pid())).unwrap();
    let own = groups.lines().find_map(|line| line.strip_prefix("0::/")).unwrap();
    root.join(own)
}

/// Ends the work, even if the test fails. Otherwise the test would wait for it forever.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Suspend freezes all processes, and a container runtime those of a container. If this counted as
/// a death, these mounts would be given up, because they allow one.
#[test]
fn work_goes_on_after_a_kept_mount_was_frozen() {
    require_mounting!();
    let test = "kept_pauses::work_goes_on_after_a_kept_mount_was_frozen";
    let Some(root) = control_groups() else { return skip(test, "no control groups of version 2") };
    for layer in ["null:passthrough=off", "zstd", EXT2] {
        let place = place_for((layer, ""));
        place.mount(&[&["-o", "keep=2"], &arguments_for(layer)[..]].concat());
        let (supervisor, daemon) = processes(&place);
        let daemon = daemon.unwrap();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let ends = SetOnDrop(&is_over);
            let workers = [
                scope.spawn(|| append_lines(&place.point, &is_over)),
                scope.spawn(|| change_names(&place.point, &is_over)),
                scope.spawn(|| write_and_read(&place.point, &is_over)),
            ];
            let ways: [&dyn Fn() -> Frozen; 3] = [
                &|| Frozen::by_signal(vec![daemon]),
                &|| Frozen::by_signal(vec![supervisor, daemon]),
                &|| Frozen::in_group(root, vec![supervisor, daemon]),
            ];
            for freeze in ways {
                std::thread::sleep(Duration::from_millis(100));
                let frozen = freeze();
                std::thread::sleep(PAUSE);
                drop(frozen);
                rustix::fs::statvfs(&place.point).unwrap();
            }
            drop(ends);
            let done = workers.map(|worker| worker.join().unwrap());
            assert!(done.iter().all(|count| *count > 0), "{layer}: {done:?}");
        });
        assert_eq!(daemons_naming(&place.point).len(), 2, "{layer}");
        assert_eq!(processes(&place), (supervisor, Some(daemon)), "{layer}");
        // If the supervisor had counted a death, this one would be the last.
        kill_daemon(&place);
        umount_whole(&place);
    }
}

/// A mount namespace, perhaps with processes of its own, in which `script` runs. Dropping it kills
/// the processes of such a namespace.
struct Container(Child);

impl Container {
    fn new(unshared: &[&str], script: &str, place: &Place, arguments: &str) -> Self {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private"]).args(unshared);
        command.args(["sh", "-ec", &format!("{DETACH_OTHER_MOUNTS}{script}")]);
        command.env("PROGRAM", env!("CARGO_BIN_EXE_fslab")).env("ARGUMENTS", arguments);
        command.env("LOWER", &place.lower).env("POINT", &place.point);
        Self(command.stdin(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        // This fails if it has already ended.
        drop(self.0.kill());
        self.0.wait().unwrap();
    }
}

/// Mounts, and reports it by a file beside the mount point.
const MOUNT: &str = r#"
mount -t tmpfs none /run
"$PROGRAM" mount -o keep,noexec,noatime $ARGUMENTS "$LOWER" "$POINT"
echo synced > "$POINT/synced"
sync "$POINT/synced"
echo closed > "$POINT/closed"
"#;

/// `umount -a` runs at the end of a shutdown. The options select this mount among those of other
/// tests.
#[test]
fn umount_of_everything_ends_a_kept_mount() {
    require_mounting!();
    for layer in ["null", "zstd", EXT2] {
        let place = place_for((layer, ""));
        let script = format!(
            "{MOUNT}\numount -a -t fuse.fslab -O noexec,noatime
             ! grep -F \"$POINT\" /proc/self/mountinfo"
        );
        let mut container = Container::new(&[], &script, &place, &arguments_for(layer).join(" "));
        assert!(container.0.wait().unwrap().success(), "{layer}");
        soon("daemon and supervisor have exited", || daemons_naming(&place.point).is_empty());
        place.mount(&arguments_for(layer));
        for name in ["synced", "closed"] {
            let bytes = fs::read_to_string(place.point.join(name)).unwrap();
            assert_eq!(bytes.trim_end(), name, "{layer}");
        }
        umount_whole(&place);
    }
}

/// When the first process of a container dies, the kernel kills all others, and the mount ends.
#[test]
fn kept_mount_ends_with_its_container() {
    require_mounting!();
    for layer in ["null", "zstd", EXT2] {
        let place = place_for((layer, ""));
        let script = format!("{MOUNT}\n: > \"$POINT/../ready\"\nexec sleep 1000");
        let unshared = ["--pid", "--fork", "--kill-child", "--mount-proc"];
        let container = Container::new(&unshared, &script, &place, &arguments_for(layer).join(" "));
        let ready = place.point.with_file_name("ready");
        soon("the container has mounted", || ready.exists());
        assert_eq!(daemons_naming(&place.point).len(), 2, "{layer}");
        drop(container);
        soon("daemon and supervisor have exited", || daemons_naming(&place.point).is_empty());
        // A warning says that the image was not unmounted.
        let (code, said) = place.try_mount(&arguments_for(layer));
        assert_eq!(code, 0, "{layer}: {said}");
        let bytes = fs::read_to_string(place.point.join("synced")).unwrap();
        assert_eq!(bytes.trim_end(), "synced", "{layer}");
        assert_eq!(umount_unused(&place.point).0, 0, "{layer}");
    }
}
