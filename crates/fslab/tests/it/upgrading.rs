//! Tests `fslab upgrade`, which replaces the daemon of a mount with `-o keep` while the mount is in
//! use.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use fslab_vfs_testing::environment::number;
use fslab_vfs_testing::skip::skip;
use rustix::process::{Pid, Signal, kill_process};

use crate::kept::{
    EXT2, append_lines, arguments_for, change_names, place_for, processes, umount_whole,
    write_and_read,
};
use crate::support::{Place, copy_program, is_mounted, require_mounting, run, soon};

/// Number of upgrades of a mount under load; `FSLAB_UPGRADES` replaces it.
const UPGRADES: u64 = 2;

/// A place that is mounted by a separate copy of the program, so that the copy can be replaced.
struct Installed {
    place: Place,
    path: PathBuf,
}

impl Installed {
    fn mounted(layer: &str) -> Self {
        let place = place_for((layer, ""));
        let path = place.point.with_file_name("bin").join("fslab");
        fs::create_dir(path.parent().unwrap()).unwrap();
        let installed = Self { place, path };
        installed.install();
        let mounted = Command::new(&installed.path)
            // An upgrade must insert the supervisor's own option before `--`.
            .args(["mount", "-o", "keep=200"])
            .args(arguments_for(layer))
            .arg("--")
            .args([&installed.place.lower, &installed.place.point])
            .status();
        assert!(mounted.unwrap().success());
        installed
    }

    /// Replaces the program with a new file, as a package upgrade does.
    fn install(&self) {
        let beside = self.path.with_extension("new");
        copy_program(Path::new(env!("CARGO_BIN_EXE_fslab")), &beside);
        fs::rename(&beside, &self.path).unwrap();
    }

    fn install_script(&self, script: &str, mode: u32) {
        let beside = self.path.with_extension("new");
        fs::write(&beside, script).unwrap();
        fs::set_permissions(&beside, fs::Permissions::from_mode(mode)).unwrap();
        fs::rename(&beside, &self.path).unwrap();
    }

    fn upgrade(&self) -> (i32, String) {
        run(&["upgrade", self.place.point.to_str().unwrap()])
    }
}

/// Returns whether a process runs the file at a path.
fn is_running(process: Pid, path: &Path) -> bool {
    let running = fs::metadata(format!("/proc/{}/exe", process.as_raw_nonzero()));
    running.is_ok_and(|running| running.ino() == path.metadata().unwrap().ino())
}

#[test]
fn upgraded_mount_is_served_by_the_installed_version() {
    require_mounting!();
    let upgrades = number("FSLAB_UPGRADES").unwrap_or(UPGRADES);
    for layer in ["null", "null:passthrough=off", "zstd", EXT2] {
        let installed = Installed::mounted(layer);
        let (place, is_over) = (&installed.place, AtomicBool::new(false));
        let unlinked = File::create_new(place.point.join("unlinked")).unwrap();
        fs::remove_file(place.point.join("unlinked")).unwrap();
        let supervisor = processes(place).0;
        std::thread::scope(|scope| {
            let workers = [
                scope.spawn(|| append_lines(&place.point, &is_over)),
                scope.spawn(|| change_names(&place.point, &is_over)),
                scope.spawn(|| write_and_read(&place.point, &is_over)),
            ];
            for round in 0..upgrades {
                installed.install();
                assert!(!is_running(supervisor, &installed.path), "{layer}");
                let (code, said) = installed.upgrade();
                assert_eq!((code, said.as_str()), (0, ""), "{layer}, {round}");
                let (still, daemon) = processes(place);
                assert_eq!(still, supervisor, "{layer}");
                let both = [supervisor, daemon.unwrap()];
                assert!(both.iter().all(|process| is_running(*process, &installed.path)));
            }
            is_over.store(true, Ordering::Relaxed);
            let done = workers.map(|worker| worker.join().unwrap());
            assert!(done.iter().all(|count| *count > 0), "{layer}: {done:?}");
        });
        unlinked.write_all_at(b"nameless", 0).unwrap();
        assert_eq!(unlinked.metadata().unwrap().len(), 8);
        drop(unlinked);
        // After an upgrade, a killed daemon is still replaced.
        kill_process(processes(place).1.unwrap(), Signal::KILL).unwrap();
        fs::write(place.point.join("after"), b"after").unwrap();
        umount_whole(place);
        soon("daemon and supervisor have exited", || {
            crate::support::daemons_naming(&place.point).is_empty()
        });
        place.mount(&arguments_for(layer));
        assert_eq!(fs::read(place.point.join("after")).unwrap(), b"after");
        place.umount();
    }
}

#[test]
fn upgrades_leave_no_descriptors_open() {
    require_mounting!();
    let installed = Installed::mounted("null");
    fs::write(installed.place.point.join("a"), b"text").unwrap();
    let count = || {
        let daemon = processes(&installed.place).1.unwrap().as_raw_nonzero();
        fs::read_dir(format!("/proc/{daemon}/fd")).unwrap().count()
    };
    let upgrade = || assert_eq!(installed.upgrade().0, 0);
    upgrade();
    let after_one = count();
    // A few more descriptors are allowed, because a daemon opens some for its threads later.
    (0..12).for_each(|_| upgrade());
    soon("the number of descriptors does not grow with each upgrade", || count() <= after_one + 6);
    installed.place.umount();
}

#[test]
fn failed_upgrade_keeps_the_running_program() {
    require_mounting!();
    let installed = Installed::mounted("null:passthrough=off");
    let place = &installed.place;
    let path = place.point.join("file");
    fs::write(&path, b"text").unwrap();
    let mut open = File::open(&path).unwrap();
    let before = processes(place);
    for (script, mode, part) in [
        ("#!/bin/sh\necho 'fslab: too old' >&2; exit 1\n", 0o755, "refused: fslab: too old"),
        ("#!/bin/sh\nexit 0\n", 0o775, "users other than its owner may write to it"),
        ("#!/bin/sh\nexit 0\n", 0o644, "can't run"),
    ] {
        installed.install_script(script, mode);
        let (code, said) = installed.upgrade();
        assert_eq!((code, said.lines().count()), (1, 1), "{said}");
        assert!(said.contains(part) && said.contains("was not upgraded"), "{said}");
        assert_eq!(processes(place), before);
    }
    // This program passes the check, but can't run as a supervisor.
    installed.install_script("#!/bin/sh\nexit 0\n", 0o755);
    let (code, said) = installed.upgrade();
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("is still served by the previous program"), "{said}");
    let mut text = String::new();
    open.read_to_string(&mut text).unwrap();
    assert_eq!(text, "text");
    drop(open);
    installed.install();
    assert_eq!(installed.upgrade(), (0, String::new()));
    kill_process(processes(place).0, Signal::KILL).unwrap();
    soon("the supervisor has exited", || processes(place).1.is_none());
    let (code, said) = installed.upgrade();
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("the supervisor of the mount has exited"), "{said}");
    place.umount();
}

/// The signal for an upgrade arrives while the daemon of an ended mount still writes back data.
/// That daemon continues, and nothing is mounted again.
#[test]
fn upgrade_signal_does_not_replace_an_ending_daemon() {
    require_mounting!();
    let place = Place::on_disk();
    let slow = "fault:rules=syncfs delay 2s";
    place.mount(&["-o", "keep", "-l", "zstd", "-l", slow]);
    fs::write(place.point.join("file"), b"text").unwrap();
    let (supervisor, daemon) = processes(&place);
    let point = place.point.clone();
    let unmounting = std::thread::spawn(move || run(&["umount", point.to_str().unwrap()]));
    soon("the mount is unmounted", || !is_mounted(&place.point));
    // A moment later, the supervisor notices that the connection has ended.
    std::thread::sleep(std::time::Duration::from_millis(500));
    kill_process(supervisor, Signal::USR2).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert_eq!(processes(&place), (supervisor, daemon));
    assert_eq!(unmounting.join().unwrap(), (0, String::new()));
    soon("daemon and supervisor have exited", || {
        crate::support::daemons_naming(&place.point).is_empty()
    });
    assert!(!is_mounted(&place.point));
}

#[test]
fn only_kept_mounts_are_upgraded() {
    require_mounting!();
    let place = Place::mounted(&["-l", "null"]);
    let (code, said) = run(&["upgrade", place.point.to_str().unwrap()]);
    assert_eq!((code, said.lines().count()), (3, 1), "{said}");
    assert!(said.contains("is mounted without -o keep"), "{said}");
    place.umount();
    let (code, said) = run(&["upgrade", place.point.to_str().unwrap()]);
    assert_eq!(code, 3, "{said}");
    assert!(!is_mounted(&place.point));
}

#[test]
fn only_root_and_the_owner_may_upgrade_a_mount() {
    require_mounting!();
    if !rustix::process::geteuid().is_root() {
        let why = "not root, so it can't run as another user";
        return skip("only_root_and_the_owner_may_upgrade_a_mount", why);
    }
    let installed = Installed::mounted("null");
    let before = processes(&installed.place);
    let mut asking = Command::new("setpriv");
    asking.args(["--reuid=1234", "--regid=1234", "--clear-groups"]);
    asking.arg(&installed.path).arg("upgrade").arg(&installed.place.point);
    let output = asking.output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{text}");
    assert!(text.contains("was mounted by user 0; only that user and root may send"), "{text}");
    assert_eq!(processes(&installed.place), before);
    installed.place.umount();
}
