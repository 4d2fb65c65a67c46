//! Tests the end of a mount: what its daemon still does, and commands that wait for the daemon.

use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use fslab_sys::mounts;
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::Signal;

use crate::ext2::{check, image};
use crate::mounting::send;
use crate::support::{
    Place, daemons_naming, fslab, is_mounted, program, require_mounting, run, soon,
};

/// Makes a daemon slow to write back its data.
const SLOW: &str = "fault:rules=syncfs delay 2s";

/// Unmounts without a helper, as a container runtime does.
fn umount_2(point: &Path) {
    soon("the mount is not in use", || unmount(point, UnmountFlags::NOFOLLOW).is_ok());
}

fn device_at(point: &Path) -> (u32, u32) {
    mounts::mounted_on(point).unwrap().unwrap().device
}

/// Returns a stopped daemon whose mount has ended, and a new mount that has its device number.
fn stopped_daemon_and_next_mount(arguments: &[&str]) -> (Place, u32, Place) {
    let first = Place::mounted(arguments);
    let (number, daemon) = (device_at(&first.point), first.daemon());
    send(daemon, Signal::STOP);
    umount_2(&first.point);
    let next = Place::new();
    // The kernel assigns the lowest free number. For a while, a mount of another test may have it.
    soon("the device number is used again", || {
        next.mount(&["-l", "null"]);
        let has_it = device_at(&next.point) == number;
        if !has_it {
            next.umount();
        }
        has_it
    });
    (first, daemon, next)
}

#[test]
fn signalled_daemon_does_not_unmount_a_later_mount() {
    require_mounting!();
    let (first, daemon, next) = stopped_daemon_and_next_mount(&["-l", "zstd", "-l", SLOW]);
    let user = File::create(next.point.join("file")).unwrap();
    send(daemon, Signal::TERM);
    send(daemon, Signal::CONT);
    soon("the first daemon has exited", || daemons_naming(&first.point).is_empty());
    assert!(is_mounted(&next.point));
    drop(user);
    next.umount();
}

#[test]
fn idle_timer_does_not_unmount_a_later_mount() {
    require_mounting!();
    let idle = ["-o", "idle_timeout=400ms", "-l", "zstd", "-l", SLOW];
    let (first, daemon, next) = stopped_daemon_and_next_mount(&idle);
    std::thread::sleep(Duration::from_millis(400));
    send(daemon, Signal::CONT);
    soon("the first daemon has exited", || daemons_naming(&first.point).is_empty());
    assert!(is_mounted(&next.point), "the later mount has no idle timeout");
    next.umount();
}

#[test]
fn umount_waits_for_the_daemon_of_its_own_mount() {
    require_mounting!();
    let (first, daemon, next) = stopped_daemon_and_next_mount(&["-l", "null"]);
    // umount must not wait for the first daemon, which is stopped and would never exit.
    soon("the mount is unmounted", || {
        let (code, message) = run(&["umount", next.point.to_str().unwrap()]);
        assert!(code == 0 || message.contains("is in use"), "{message}");
        code == 0
    });
    assert!(daemons_naming(&next.point).is_empty());
    assert_eq!(daemons_naming(&first.point), [daemon]);
    send(daemon, Signal::CONT);
    soon("the first daemon has exited", || daemons_naming(&first.point).is_empty());
}

/// At a signal, every mount point of the file system is detached, even if one is inside another.
#[test]
fn signal_detaches_every_mount_point_innermost_first() {
    require_mounting!();
    let place = Place::mounted(&["-l", "null"]);
    let inner = place.point.join("inner");
    fs::create_dir(&inner).unwrap();
    for target in [&inner, &place.point] {
        rustix::mount::mount_bind(&place.point, target).unwrap();
    }
    let user = File::create(place.point.join("file")).unwrap();
    send(place.daemon(), Signal::TERM);
    soon("no mount point is left", || !is_mounted(&place.point) && !is_mounted(&inner));
    drop(user);
    soon("the daemon has exited", || daemons_naming(&place.point).is_empty());
}

/// Mounts a new image, and opens a file in it, so that the mount is in use.
fn image_in_use() -> (Place, std::path::PathBuf, File) {
    let mut place = Place::new();
    let image = image(&place, "16MiB");
    place.lower = format!("ext2:{}", image.display()).into();
    place.mount(&[]);
    fs::create_dir(place.point.join("directory")).unwrap();
    fs::write(place.point.join("directory/file"), "closed").unwrap();
    let user = File::create(place.point.join("open")).unwrap();
    (place, image, user)
}

#[test]
fn second_signal_aborts_open_files_and_keeps_closed_ones() {
    require_mounting!();
    let (place, image, mut user) = image_in_use();
    send(place.daemon(), Signal::TERM);
    soon("the mount is detached", || !is_mounted(&place.point));
    send(place.daemon(), Signal::TERM);
    soon("the daemon has exited", || daemons_naming(&place.point).is_empty());
    std::io::Write::write_all(&mut user, b"late").and_then(|()| user.sync_all()).unwrap_err();
    check(&image);
    place.mount(&[]);
    assert_eq!(fs::read(place.point.join("directory/file")).unwrap(), b"closed");
    place.umount();
}

#[test]
fn signals_during_writeback_lose_no_data() {
    require_mounting!();
    let (place, image, user) = image_in_use();
    let daemon = place.daemon();
    send(daemon, Signal::STOP);
    drop(user);
    umount_2(&place.point);
    for signal in [Signal::TERM, Signal::INT, Signal::CONT] {
        send(daemon, signal);
    }
    soon("the daemon has exited", || daemons_naming(&place.point).is_empty());
    check(&image);
    place.mount(&[]);
    assert_eq!(fs::read(place.point.join("directory/file")).unwrap(), b"closed");
    place.umount();
}

#[test]
fn umount_reports_that_the_daemon_failed() {
    require_mounting!();
    let place = Place::mounted(&["-l", "zstd", "-l", "fault:rules=syncfs error EIO"]);
    fs::write(place.point.join("file"), "data").unwrap();
    let (code, message) = run(&["umount", place.point.to_str().unwrap()]);
    assert!(!is_mounted(&place.point));
    assert_eq!(code, 1, "{message}");
    assert!(message.contains("Input/output error"), "{message}");
    assert_eq!(message.lines().count(), 1, "{message}");
}

#[test]
fn umount_reports_that_the_daemon_was_killed() {
    require_mounting!();
    let place = Place::mounted(&["-l", "zstd", "-l", SLOW]);
    let daemon = place.daemon();
    send(daemon, Signal::STOP);
    let mut umount = fslab(&["umount", place.point.to_str().unwrap()]);
    let umount = umount.stderr(Stdio::piped()).spawn().unwrap();
    soon("the mount is unmounted", || !is_mounted(&place.point));
    send(daemon, Signal::KILL);
    let output = umount.wait_with_output().unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains("was killed"), "{message}");
}

#[test]
fn waiting_umount_is_interruptible() {
    require_mounting!();
    let place = Place::mounted(&["-l", "null"]);
    let daemon = place.daemon();
    send(daemon, Signal::STOP);
    let mut umount = fslab(&["umount", place.point.to_str().unwrap()]).spawn().unwrap();
    soon("the mount is unmounted", || !is_mounted(&place.point));
    send(umount.id(), Signal::TERM);
    assert_eq!(umount.wait().unwrap().signal(), Some(Signal::TERM.as_raw()));
    send(daemon, Signal::CONT);
    soon("the daemon has exited", || daemons_naming(&place.point).is_empty());
}

#[test]
fn lazy_umount_does_not_wait_for_the_daemon() {
    require_mounting!();
    let place = Place::mounted(&["-l", "null"]);
    let daemon = place.daemon();
    send(daemon, Signal::STOP);
    assert_eq!(run(&["umount", "--lazy", place.point.to_str().unwrap()]), (0, String::new()));
    assert_eq!(daemons_naming(&place.point), [daemon]);
    send(daemon, Signal::CONT);
    soon("the daemon has exited", || daemons_naming(&place.point).is_empty());
}

/// The advice about a dead mount to an ordinary user does not include actions that only root can
/// do.
#[test]
fn advice_about_a_dead_mount_fits_the_user() {
    require_mounting!();
    let place = Place::mounted(&["-o", "allow_other"]);
    send(place.daemon(), Signal::KILL);
    soon("the daemon has exited", || daemons_naming(&place.point).is_empty());
    let (code, message) = place.try_mount(&[]);
    assert!(code == 3 && message.contains("-o replace"), "{message}");
    let copy = place.lower.with_file_name("fslab");
    crate::support::copy_program(env!("CARGO_BIN_EXE_fslab").as_ref(), &copy);
    let output = Command::new("setpriv")
        .args(["--reuid=1234", "--regid=1234", "--clear-groups"])
        .arg(&copy)
        .arg("mount")
        .args([&place.lower, &place.point])
        .output()
        .unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(message.contains("daemon is dead") && message.contains("root"), "{message}");
    assert!(!message.contains("-o replace"), "{message}");
}

/// Mounts again while the earlier daemon of the lower file system is stopped.
fn mounted_again_meanwhile(place: &Place, layer: &[&str]) {
    let daemon = place.daemon();
    send(daemon, Signal::STOP);
    umount_2(&place.point);
    let waits = [layer, &["-o", "busy_timeout=60s"]].concat();
    let mut mounting = place.mount_command(&waits).stderr(Stdio::null()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(100));
    send(daemon, Signal::CONT);
    assert!(mounting.wait().unwrap().success(), "{layer:?}");
    assert!(is_mounted(&place.point));
    place.umount();
}

#[test]
fn a_mount_waits_for_the_earlier_daemon_of_a_directory_an_image_or_a_tier() {
    require_mounting!();
    mounted_again_meanwhile(&Place::mounted(&["-l", "zstd"]), &["-l", "zstd"]);
    let (place, _image, user) = image_in_use();
    drop(user);
    mounted_again_meanwhile(&place, &[]);
    let tiered = crate::tiering::Tiered::mounted();
    mounted_again_meanwhile(tiered.place(), &["-l", "tier"]);
}

/// Sets up an environment as if the package were installed, so that umount(8) finds the helper. A
/// separate /run contains the utab.
const WITH_HELPER: &str = r#"
    set -e
    mount --make-rprivate /
    mkdir -p "$SCRATCH/helpers" "$SCRATCH/program"
    mount -t tmpfs none "$SCRATCH/program"
    cp "$PROGRAM" "$SCRATCH/program/fslab"
    ln -s "$SCRATCH/program/fslab" "$SCRATCH/helpers/umount.fuse.fslab"
    mount -t overlay none -o lowerdir="$SCRATCH/helpers":/usr/sbin /usr/sbin
    mount -t tmpfs -o mode=755 none /run
    mkdir "$SCRATCH/low" "$SCRATCH/m"
    fslab() { "$SCRATCH/program/fslab" "$@"; }
"#;

/// Mounts each stack, and mounts it again immediately after each form of umount(8).
const ROUNDS: &str = r#"
    "$SCRATCH/program/fslab" ext2 mkfs "$SCRATCH/image" 16MiB
    fslab tier init --archive "$SCRATCH/archive" --home "$SCRATCH/home" "$SCRATCH/tree" \
        > "$SCRATCH/said" 2>&1
    for stack in null gzip zstd tier ext2; do
        layer="-l $stack" lower="$SCRATCH/$stack"
        case $stack in
            ext2) layer="" lower="ext2:$SCRATCH/image" ;;
            tier) lower="$SCRATCH/tree" ;;
            *) mkdir "$lower" ;;
        esac
        slow="fault:rules=syncfs delay 200ms"
        for form in "umount" "umount -c"; do
            for round in $ROUNDS; do
                fslab mount -o busy_timeout=0 $layer -l "$slow" "$lower" "$SCRATCH/m"
                echo $form $round > "$SCRATCH/m/file"
                $form "$SCRATCH/m"
                if [ $stack = ext2 ] && command -v e2fsck > /dev/null; then
                    e2fsck -fn "$SCRATCH/image" > "$SCRATCH/checked" 2>&1 ||
                        { cat "$SCRATCH/checked"; exit 1; }
                fi
            done
        done
        fslab mount $layer "$lower" "$SCRATCH/m"
        cat "$SCRATCH/m/file"
        fslab umount "$SCRATCH/m"
    done
    # The lines of ended mounts were removed.
    cat /run/mount/utab
"#;

/// Runs a script in an environment where umount(8) finds the helper. Returns its output.
fn with_helper(test: &str, script: &str) -> Option<String> {
    if program("umount").is_none() {
        fslab_vfs_testing::skip::skip(test, "umount(8) is not installed (Debian: mount)");
        return None;
    }
    let scratch = crate::support::scratch_in_memory();
    fs::create_dir(scratch.path().join("tree")).unwrap();
    let output = Command::new("unshare")
        .args(["--mount", "sh", "-c", &[WITH_HELPER, script].concat()])
        .env("SCRATCH", scratch.path())
        .env("PROGRAM", env!("CARGO_BIN_EXE_fslab"))
        .env("ROUNDS", "1 2")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{errors}");
    Some(said)
}

#[test]
fn every_stack_is_mounted_again_at_once_after_both_forms_of_umount_8() {
    require_mounting!();
    let test = "unmounting::every_stack_is_mounted_again_at_once_after_both_forms_of_umount_8";
    let said = with_helper(test, ROUNDS);
    assert!(said.is_none_or(|said| said == "umount -c 2\n".repeat(5)));
}
