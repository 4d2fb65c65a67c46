//! Tests the lock of a tree: only one mount or tool uses the tree at a time, and locks that other
//! users hold do not block it.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use fslab_sys::mounts::Mount;
use fslab_vfs_testing::skip::skip;

use crate::support::{Place, copy_program, program, require_mounting, run};

const LOCK: &str = ".fslab-lock";

/// Locks a file or directory, as any user can who may read it.
fn locked(path: &Path) -> File {
    let file = File::open(path).unwrap();
    flock(&file, FlockOperation::LockExclusive).unwrap();
    file
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[track_caller]
fn is_refused((code, message): (i32, String)) {
    assert_eq!(code, 3, "{message}");
    assert!(message.contains("in use"), "{message}");
    assert_eq!(message.lines().count(), 1, "{message}");
}

/// Returns a place with the same tree and another mount point.
fn beside(place: &Place) -> Place {
    let mut other = Place::new();
    other.lower.clone_from(&place.lower);
    other
}

#[test]
fn locks_on_directories_do_not_prevent_a_mount() {
    require_mounting!();
    let place = Place::new();
    let _tree = locked(&place.lower);
    let _above = locked(place.lower.parent().unwrap());
    for layer in ["zstd", "copy"] {
        place.mount(&["-l", layer, "-o", "busy_timeout=0"]);
        place.umount();
    }
}

#[test]
fn locked_stored_file_can_still_be_used() {
    require_mounting!();
    let place = Place::mounted(&["-l", "zstd"]);
    fs::write(place.point.join("file"), "data").unwrap();
    place.umount();
    let _stored = locked(&place.lower.join("file"));
    place.mount(&["-l", "zstd"]);
    assert_eq!(fs::read(place.point.join("file")).unwrap(), b"data");
    fs::write(place.point.join("file"), "other").unwrap();
    place.umount();
    let path = place.lower.join("file");
    assert_eq!(run(&["sca", "check", path.to_str().unwrap()]).0, 0);
}

#[test]
fn a_mount_hides_its_lock_file() {
    require_mounting!();
    let place = Place::mounted(&["-l", "zstd"]);
    let (lock, shown) = (place.lower.join(LOCK), place.point.join(LOCK));
    let found = fs::symlink_metadata(&lock).unwrap();
    assert_eq!((found.mode() & 0o7777, found.len()), (0o600, 0));
    fs::write(place.point.join("file"), "data").unwrap();
    assert_eq!(names(&place.point), ["file"]);
    assert_eq!(fs::metadata(&shown).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(fs::remove_file(&shown).unwrap_err().kind(), ErrorKind::NotFound);
    let taken = [
        fs::write(&shown, "x"),
        fs::create_dir(&shown),
        fs::rename(place.point.join("file"), &shown),
        fs::hard_link(place.point.join("file"), &shown),
        std::os::unix::fs::symlink("file", &shown),
    ];
    for refused in taken {
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::PermissionDenied);
    }
    // In other directories, a file may have the name of the lock file.
    fs::create_dir(place.point.join("directory")).unwrap();
    fs::write(place.point.join("directory").join(LOCK), "x").unwrap();
    place.umount();
    assert_eq!(names(&place.lower), [LOCK, "directory", "file"]);
}

#[test]
fn new_lock_file_keeps_the_directory_times() {
    require_mounting!();
    let place = Place::new();
    let old = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
    File::open(&place.lower).unwrap().set_modified(old).unwrap();
    place.mount(&["-l", "zstd"]);
    assert!(place.lower.join(LOCK).exists());
    assert_eq!(fs::metadata(&place.point).unwrap().modified().unwrap(), old);
    place.umount();
}

#[test]
fn tree_is_mounted_only_once_across_users_and_namespaces() {
    require_mounting!();
    let place = Place::new();
    chown(&place.lower, Some(65_534), Some(65_534)).unwrap();
    let scratch = place.lower.parent().unwrap();
    // Other users may have no access to the build directory.
    let program = scratch.join("fslab");
    copy_program(env!("CARGO_BIN_EXE_fslab").as_ref(), &program);
    let script = r#"
        mount -t tmpfs -o mode=755 none /run
        "$PROGRAM" mount -l zstd "$LOWER" "$POINT" || exit 1
        # From the namespace outside, which does not show the mount.
        nsenter --mount=/proc/$OUTSIDE/ns/mnt sh -c '
            for layer in zstd gzip; do
                "$PROGRAM" mount -o busy_timeout=0 -l $layer "$LOWER" "$OTHER"
                echo "code $?"
            done
            setpriv --reuid=65534 --regid=65534 --clear-groups \
                "$PROGRAM" mount -o busy_timeout=0 -l zstd "$LOWER" "$OWN"
            echo "code $?"
        ' 2>&1
        "$PROGRAM" umount "$POINT"
    "#;
    let [other, own] = ["other", "own"].map(|name| scratch.join(name));
    fs::create_dir(&other).unwrap();
    fs::create_dir(&own).unwrap();
    chown(&own, Some(65_534), Some(65_534)).unwrap();
    let output = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "sh", "-c", script])
        .env("PROGRAM", &program)
        .env("OUTSIDE", std::process::id().to_string())
        .envs([("LOWER", &place.lower), ("POINT", &place.point), ("OTHER", &other), ("OWN", &own)])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    let lines: Vec<_> = said.lines().collect();
    assert_eq!(lines.len(), 6, "{said}");
    for pair in lines.chunks(2) {
        assert!(pair[0].contains("in use") && pair[1] == "code 3", "{said}");
    }
}

#[test]
fn a_lock_file_of_another_user_is_named() {
    require_mounting!();
    let place = Place::new();
    fs::set_permissions(&place.lower, fs::Permissions::from_mode(0o777)).unwrap();
    place.mount(&["-l", "zstd"]);
    place.umount();
    let program = place.lower.parent().unwrap().join("fslab");
    copy_program(env!("CARGO_BIN_EXE_fslab").as_ref(), &program);
    chown(&place.point, Some(65_534), Some(65_534)).unwrap();
    let output = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(&program)
        .args(["mount", "-l", "zstd"])
        .args([&place.lower, &place.point])
        .output()
        .unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && message.contains(LOCK), "{message}");
    assert!(message.contains("user 0"), "{message}");
}

#[test]
fn overlapping_mounts_are_refused_or_hide_the_locked_subtree() {
    require_mounting!();
    let (outer, mut inner) = (Place::new(), Place::new());
    inner.lower = outer.lower.join("a/inner");
    fs::create_dir_all(&inner.lower).unwrap();
    let now = ["-l", "zstd", "-o", "busy_timeout=0,entry_timeout=0,attr_timeout=0"];
    outer.mount(&now);
    is_refused(inner.try_mount(&now));
    outer.umount();
    // A lock file has no effect if no process has locked it.
    inner.mount(&now);
    fs::write(inner.point.join("file"), "inner").unwrap();
    outer.mount(&now);
    fs::write(outer.point.join("a/file"), "outer").unwrap();
    let refused = fs::read_dir(outer.point.join("a/inner")).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(Errno::BUSY.raw_os_error()), "{refused}");
    inner.umount();
    assert!(names(&outer.point.join("a/inner")).contains(&"file".to_owned()));
    is_refused(inner.try_mount(&now));
    outer.umount();
}

#[test]
fn stacked_mounts_have_separate_lock_files() {
    require_mounting!();
    let (lower, mut upper) = (Place::mounted(&["-l", "gzip"]), Place::new());
    upper.lower.clone_from(&lower.point);
    let upper_layer = ["-l", "zstd:size-xattr=off", "-o", "busy_timeout=0"];
    upper.mount(&upper_layer);
    fs::write(upper.point.join("file"), "data").unwrap();
    assert_eq!(names(&upper.point), ["file"]);
    is_refused(beside(&upper).try_mount(&upper_layer));
    upper.umount();
    lower.umount();
    lower.mount(&["-l", "gzip"]);
    upper.mount(&upper_layer);
    assert_eq!(fs::read(upper.point.join("file")).unwrap(), b"data");
    upper.umount();
    lower.umount();
}

#[test]
fn read_only_mounts_create_no_lock_file_and_share_the_lock() {
    require_mounting!();
    let place = Place::new();
    let read_only = ["-l", "zstd", "-o", "ro,busy_timeout=0"];
    let (code, message) = place.try_mount(&read_only);
    assert!(code == 0 && message.contains("not locked"), "{message}");
    assert!(!place.lower.join(LOCK).exists());
    place.umount();
    place.mount(&["-l", "zstd"]);
    is_refused(beside(&place).try_mount(&read_only));
    place.umount();
    place.mount(&read_only);
    let other = beside(&place);
    other.mount(&read_only);
    is_refused(beside(&place).try_mount(&["-l", "zstd", "-o", "busy_timeout=0"]));
    other.umount();
    place.umount();
}

#[test]
fn tools_are_refused_while_a_tree_is_mounted_and_leave_no_lock_file() {
    require_mounting!();
    let place = Place::mounted(&["-l", "zstd"]);
    fs::create_dir(place.point.join("directory")).unwrap();
    fs::write(place.point.join("directory/file"), vec![7; 100_000]).unwrap();
    let directory = place.lower.join("directory");
    let stored = directory.join("file");
    let actions = ["stat", "check", "pack"];
    let act = |action: &str| run(&["sca", action, stored.to_str().unwrap()]);
    for action in actions {
        assert_eq!(act(action).0, 3, "{action}");
    }
    place.umount();
    for action in actions {
        let (code, message) = act(action);
        assert_eq!(code, 0, "{action}: {message}");
        assert_eq!(names(&directory), ["file"], "{action}");
    }
    // While a tool works in a subdirectory, only this subdirectory of a mount is unusable.
    let lock = directory.join(LOCK);
    fs::write(&lock, "").unwrap();
    fs::set_permissions(&lock, fs::Permissions::from_mode(0o600)).unwrap();
    let held = locked(&lock);
    place.mount(&["-l", "zstd", "-o", "busy_timeout=0,entry_timeout=0"]);
    let refused = fs::metadata(place.point.join("directory/file")).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(Errno::BUSY.raw_os_error()), "{refused}");
    drop(held);
    assert_eq!(fs::read(place.point.join("directory/file")).unwrap(), vec![7; 100_000]);
    place.umount();
}

#[test]
fn conversion_does_not_convert_lock_files() {
    let place = Place::new();
    let lock = place.lower.join(LOCK);
    fs::write(&lock, "").unwrap();
    fs::set_permissions(&lock, fs::Permissions::from_mode(0o600)).unwrap();
    fs::write(place.lower.join("file"), vec![7; 100_000]).unwrap();
    let tree = place.lower.to_str().unwrap();
    for action in ["encode", "decode"] {
        let (code, message) = run(&["sca", action, tree]);
        assert_eq!(code, 0, "{action}: {message}");
        assert_eq!(fs::metadata(&lock).unwrap().len(), 0, "{action}");
    }
    assert_eq!(fs::read(place.lower.join("file")).unwrap(), vec![7; 100_000]);
    let held = locked(&lock);
    assert_eq!(run(&["sca", "encode", tree]).0, 3);
    drop(held);
}

#[test]
fn mount_reports_waiting_and_its_timeout_in_one_line_each() {
    require_mounting!();
    let place = Place::mounted(&["-l", "zstd"]);
    let (code, message) = beside(&place).try_mount(&["-l", "zstd", "-o", "busy_timeout=1100ms"]);
    let lines: Vec<_> = message.lines().collect();
    assert_eq!((code, lines.len()), (3, 2), "{message}");
    assert!(lines[0].contains("waiting up to 1.1 s"), "{message}");
    assert!(lines[1].contains("in use"), "{message}");
    place.umount();
}

/// Mounts sshfs on the lower directory. The mount looks remote, but sshfs talks to a local server
/// through pipes.
fn over_sshfs(place: &Place) -> Option<Mount> {
    let test = "claims::mount_over_sshfs_warns_about_other_machines";
    let server = Path::new("/usr/lib/openssh/sftp-server");
    let Some(sshfs) = program("sshfs").filter(|_| server.exists()) else {
        skip(test, "sshfs or sftp-server is missing (Debian: sshfs, openssh-sftp-server)");
        return None;
    };
    let there = place.lower.with_file_name("there");
    let connect = place.lower.with_file_name("connect");
    fs::create_dir(&there).unwrap();
    fs::write(&connect, format!("#!/bin/sh\nexec {}\n", server.display())).unwrap();
    fs::set_permissions(&connect, fs::Permissions::from_mode(0o755)).unwrap();
    let (command, source) =
        (format!("ssh_command={}", connect.display()), format!("host:{}", there.display()));
    let mounted = Command::new(sshfs).args(["-o", &command, &source]).arg(&place.lower).status();
    assert!(mounted.unwrap().success());
    Some(Mount::adopt(&place.lower))
}

#[test]
fn mount_over_sshfs_warns_about_other_machines() {
    require_mounting!();
    let place = Place::new();
    let Some(lower) = over_sshfs(&place) else { return };
    let (code, message) = place.try_mount(&["-l", "zstd"]);
    assert_eq!(code, 0, "{message}");
    assert!(message.contains("the lock does not exclude other machines"), "{message}");
    place.umount();
    lower.unmount().unwrap();
    place.mount(&["-l", "null"]);
    let mut over = Place::new();
    over.lower.clone_from(&place.point);
    let (code, message) = over.try_mount(&["-l", "zstd"]);
    assert!(code == 0 && !message.contains("other machines"), "{message}");
    over.umount();
    place.umount();
}
