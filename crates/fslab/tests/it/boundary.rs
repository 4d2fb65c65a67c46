//! Tests mounts from a user's point of view: permissions, threads, memory, and several mount points
//! of one file system.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

use fslab_sys::credentials::{ActingAs, Groups};
use fslab_sys::mounts::Mount;
use fslab_vfs::{FileSystem, HostFs, HostOptions};
use fslab_vfs_testing::conformance::run_where;
use fslab_vfs_testing::skip::skip;
use rustix::fs::XattrFlags;
use rustix::mount::{MountPropagationFlags, UnmountFlags};

use crate::support::{
    Place, copy_program, daemons_naming, is_mounted, require_mounting, soon, umount_unused,
};

/// Maximum resident memory of an idle daemon, in KiB.
const RESIDENT_MAX_KIB: u64 = 32 << 10;

const ACCESS_ACL: &str = "system.posix_acl_access";

/// Returns an ACL in the kernel's format. It gives all permissions to the owner and the mask, read
/// permission to one other user, and no permission to anyone else.
fn readable_by(user: u32) -> Vec<u8> {
    const NOBODY: u32 = u32::MAX;
    let entries = [(1, 7, NOBODY), (2, 4, user), (4, 0, NOBODY), (16, 7, NOBODY), (32, 0, NOBODY)];
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        bytes.extend(u16::to_le_bytes(tag));
        bytes.extend(u16::to_le_bytes(permissions));
        bytes.extend(u32::to_le_bytes(id));
    }
    bytes
}

fn can_read(user: u32, path: &Path) -> bool {
    let ids = [format!("--reuid={user}"), format!("--regid={user}")];
    let mut command = Command::new("setpriv");
    command.args(&ids).args(["--clear-groups", "cat"]).arg(path);
    command.output().unwrap().status.success()
}

#[test]
fn access_lists_are_enforced() {
    require_mounting!();
    let place = Place::mounted(&["-l", "null"]);
    let path = place.point.join("file");
    fs::write(&path, "x").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    assert!(!can_read(1234, &path));
    let list = readable_by(1234);
    rustix::fs::setxattr(&path, ACCESS_ACL, &list, XattrFlags::empty()).unwrap();
    assert!(can_read(1234, &path));
    assert!(!can_read(1235, &path));
    place.umount();
}

#[test]
fn setting_an_acl_as_a_non_member_clears_set_group_id() {
    require_mounting!();
    let mut places = [Place::new(), Place::new()];
    places[1].lower = "mem:".into();
    for place in &places {
        place.mount(&[]);
        for (groups, mode) in [(&[4321][..], 0o2000), (&[], 0)] {
            let path = place.point.join("file");
            fs::write(&path, "x").unwrap();
            chown(&path, Some(1234), Some(4321)).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o2775)).unwrap();
            let acting = ActingAs::caller(1234, 1234, Groups::These(groups)).unwrap();
            let list = readable_by(1235);
            rustix::fs::setxattr(&path, ACCESS_ACL, &list, XattrFlags::empty()).unwrap();
            drop(acting);
            let found = fs::metadata(&path).unwrap().mode() & 0o2000;
            assert_eq!(found, mode, "{:?} with groups {groups:?}", place.lower);
        }
        place.umount();
    }
}

/// A mount conforms with one to eight threads. A single thread must never wait for a second one.
#[test]
fn mount_conforms_with_one_to_eight_threads() {
    const AREAS: [&str; 6] = ["names", "files", "handles", "holes", "rename", "copy"];
    require_mounting!();
    for threads in 1..=8 {
        let place = Place::new();
        place.mount(&["-l", "null:passthrough=off", "-o", &format!("threads={threads}")]);
        let make = || {
            let leaf = HostFs::open(&place.point, &HostOptions::default()).unwrap();
            Box::new(leaf) as Box<dyn FileSystem>
        };
        work_side_by_side(&place.point, 4, 1 << 20);
        let report = run_where(&make, &[], &|case| AREAS.contains(&case.area));
        assert!(report.is_success() && report.passed.len() > 40, "{threads} threads: {report}");
        place.umount();
    }
}

/// Writes, syncs and reads one file of `bytes` bytes per worker, in parallel.
fn work_side_by_side(directory: &Path, workers: u32, bytes: usize) {
    std::thread::scope(|scope| {
        for number in 0..workers {
            let path = directory.join(format!("worker-{number}"));
            scope.spawn(move || {
                for byte in 1..=4 {
                    fs::write(&path, vec![byte; bytes]).unwrap();
                    fs::File::open(&path).unwrap().sync_all().unwrap();
                    assert!(fs::read(&path).unwrap() == vec![byte; bytes]);
                }
            });
        }
    });
}

/// Mounts with a daemon that may use only two processors. A daemon starts threads for each
/// processor, and this machine may have many processors.
fn mount_on_two_processors(place: &Place, layer: &str) {
    let allowed = rustix::thread::sched_getaffinity(None).unwrap();
    let processors = (0..rustix::thread::CpuSet::MAX_CPU).filter(|one| allowed.is_set(*one));
    let two: Vec<_> = processors.take(2).map(|one| one.to_string()).collect();
    let status = Command::new("taskset")
        .args(["-c", &two.join(","), env!("CARGO_BIN_EXE_fslab"), "mount", "-l", layer])
        .args([&place.lower, &place.point])
        .status();
    assert!(status.unwrap().success());
}

/// The memory is measured after many threads have worked and used their buffers.
#[test]
fn idle_daemon_uses_little_memory() {
    require_mounting!();
    let place = Place::new();
    mount_on_two_processors(&place, "null:passthrough=off");
    work_side_by_side(&place.point, 16, 4 << 20);
    let daemon = place.daemon();
    let resident_kib = || {
        let status = fs::read_to_string(format!("/proc/{daemon}/status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap()
    };
    eprintln!("resident after work: {} KiB", resident_kib());
    soon("surplus threads have exited and freed their memory", || {
        resident_kib() <= RESIDENT_MAX_KIB
    });
    eprintln!("resident at rest: {} KiB", resident_kib());
    place.umount();
}

/// Makes a separate /dev/fuse, because the machine's own may be accessible only to root.
const WITH_OWN_DEVICE: &str = r#"
    set -e
    mount --make-rprivate /
    mount -t tmpfs -o dev,mode=755 none "$SCRATCH/dev"
    mknod "$SCRATCH/dev/fuse" c 10 229
    chmod 666 "$SCRATCH/dev/fuse"
    mount --bind "$SCRATCH/dev/fuse" /dev/fuse
    trap 'fusermount3 -u -q -z "$POINT" || true' EXIT
"#;

/// The commands of an ordinary user.
const AS_A_USER: &str = r#"
    setpriv --reuid=nobody --regid=nogroup --clear-groups sh -ec '
        # A mount by an ordinary user prints no messages.
        "$PROGRAM" mount -l null "$LOWER" "$POINT" 2>"$LOWER/said"
        test ! -s "$LOWER/said"
        echo through the mount >"$POINT/file"
        mkdir "$POINT/directory"
        mv "$POINT/file" "$POINT/directory/moved"
        cat "$POINT/directory/moved"
        grep " $POINT " /proc/mounts
    '
    # Unusable directories are refused, and options that are not granted are reported.
    mkdir -m 700 "$SCRATCH/closed"
    mkdir -m 711 "$SCRATCH/passing"
    echo by name >"$SCRATCH/passing/named"
    setpriv --reuid=nobody --regid=nogroup --clear-groups sh -c '
        try() { "$PROGRAM" mount "$@" 2>&1; echo "code $?"; }
        try "$SCRATCH/closed" "$SECOND"
        chmod 500 "$SECOND"
        try "$LOWER" "$SECOND"
        chmod 700 "$SECOND"
        try -o suid,dev "$LOWER" "$SECOND"
        "$PROGRAM" umount "$SECOND"
        try -l null "$SCRATCH/passing" "$SECOND"
        cat "$SECOND/named"
        "$PROGRAM" umount "$SECOND"
    ' >"$SCRATCH/answers"
    # Other users, including root, have no access.
    ! ls "$POINT" 2>/dev/null
    setpriv --reuid=nobody --regid=nogroup --clear-groups sh -ec '
        "$PROGRAM" umount "$POINT"
        cat "$LOWER/directory/moved"
        stat -c %U "$LOWER/directory"
        ! grep " $POINT " /proc/mounts
    '
    cat "$SCRATCH/answers"
"#;

/// A user enters an idle mount while the daemon tries to unmount it, and leaves the mount later. A
/// wrapper of fusermount3 logs these attempts, and delays them until the user is in the mount.
const IN_AN_IDLE_MOUNT: &str = r#"
    export HELPER="$(command -v fusermount3)" NOTES="$SCRATCH/dev/notes"
    install -d -o nobody "$NOTES"
    cat >"$NOTES/fusermount3" <<'END'
#!/bin/sh
[ "$1" != -u ] || until [ -e "$NOTES/used" ]; do sleep 0.02; done
code=0
"$HELPER" "$@" || code=$?
[ "$1" != -u ] || echo "$code: $*" >>"$NOTES/tries"
exit $code
END
    chmod 755 "$NOTES/fusermount3"
    timeout 60 setpriv --reuid=nobody --regid=nogroup --clear-groups sh -ec '
        PATH="$NOTES:$PATH" "$PROGRAM" mount -o idle_timeout=100ms -l null "$LOWER" "$POINT"
        cd "$POINT"
        touch "$NOTES/used"
        until [ -s "$NOTES/tries" ]; do sleep 0.02; done
        grep " $POINT " /proc/mounts || { cat "$NOTES/tries"; exit 1; }
        cd /
        while grep -q " $POINT " /proc/mounts; do sleep 0.02; done
    '
"#;

/// Runs a script in an environment where ordinary users can mount. If that is impossible, prints a
/// skip message and returns `None`.
pub fn with_own_device(test: &str, script: &str) -> Option<String> {
    if Command::new("fusermount3").arg("--version").output().is_err() {
        skip(test, "fusermount3 is not installed (Debian: fuse3)");
        return None;
    }
    let place = Place::new();
    let scratch = place.lower.parent().unwrap().to_owned();
    fs::create_dir(scratch.join("dev")).unwrap();
    let second = scratch.join("second");
    fs::create_dir(&second).unwrap();
    for owned in [&place.lower, &place.point, &second] {
        chown(owned, Some(65_534), Some(65_534)).unwrap();
    }
    // Other users may have no access to the build directory.
    let program = scratch.join("fslab");
    copy_program(env!("CARGO_BIN_EXE_fslab").as_ref(), &program);
    let output = Command::new("unshare")
        .args(["--mount", "sh", "-c", &[WITH_OWN_DEVICE, script].concat()])
        .env("SCRATCH", &scratch)
        .env("LOWER", &place.lower)
        .env("POINT", &place.point)
        .env("SECOND", &second)
        .env("PROGRAM", &program)
        .output()
        .unwrap();
    let (said, errors) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}{errors}");
    Some(said.into_owned())
}

#[test]
fn an_ordinary_user_mounts_by_fusermount3() {
    require_mounting!();
    let test = "boundary::an_ordinary_user_mounts_by_fusermount3";
    let Some(said) = with_own_device(test, AS_A_USER) else { return };
    let lines: Vec<_> = said.lines().collect();
    assert_eq!(
        [lines[0], lines[2], lines[3]],
        ["through the mount", "through the mount", "nobody"]
    );
    for option in ["nosuid", "nodev", "user_id=65534", "fuse.fslab", "default_permissions"] {
        assert!(lines[1].contains(option), "{}", lines[1]);
    }
    assert!(!lines[1].contains("allow_other"), "{}", lines[1]);
    let [unreadable, "code 3", unwritable, "code 3", said, "code 0", "code 0", "by name"] =
        lines[4..]
    else {
        panic!("{lines:#?}");
    };
    assert!(unreadable.contains("closed: user 65534 may not enter it"), "{unreadable}");
    assert!(unwritable.contains("second: user 65534 may not write to it"), "{unwritable}");
    assert!(said.contains("this mount is nosuid and nodev"), "{said}");
}

#[test]
fn idle_timeout_spares_a_used_mount_of_an_ordinary_user() {
    require_mounting!();
    let test = "boundary::idle_timeout_spares_a_used_mount_of_an_ordinary_user";
    let said = with_own_device(test, IN_AN_IDLE_MOUNT);
    assert!(said.is_none_or(|said| said.contains("fuse.fslab")));
}

fn bind(source: &Path, target: &Path) -> Mount {
    rustix::mount::mount_bind(source, target).unwrap();
    rustix::mount::mount_change(target, MountPropagationFlags::PRIVATE).unwrap();
    Mount::adopt(target)
}

/// The daemon serves a second mount point after the first is unmounted. When it exits, the second
/// one is unmounted too.
#[test]
fn mount_is_served_at_both_of_its_mount_points() {
    require_mounting!();
    let (place, other) = (Place::mounted(&["-l", "null"]), tempfile::tempdir().unwrap());
    let second = bind(&place.point, other.path());
    fs::write(place.point.join("file"), "x").unwrap();
    let (code, message) = umount_unused(&place.point);
    assert_eq!(code, 0, "{message}");
    assert!(message.contains("also mounted on"), "{message}");
    assert_eq!(fs::read_to_string(other.path().join("file")).unwrap(), "x");
    let daemon = place.daemon();
    crate::mounting::send(daemon, rustix::process::Signal::TERM);
    soon("the second mount has ended", || !is_mounted(other.path()));
    soon("the daemon has exited", || daemons_naming(&place.point).is_empty());
    second.release();
}

#[test]
fn daemon_unmounts_its_mount_after_a_move() {
    require_mounting!();
    // A mount under a shared mount can't be moved, so this mount is under a private one.
    let scratch = tempfile::tempdir().unwrap();
    let own = Mount::new(Path::new("none"), scratch.path(), "tmpfs", "size=1m").unwrap();
    rustix::mount::mount_change(scratch.path(), MountPropagationFlags::PRIVATE).unwrap();
    let mut place = Place::new();
    place.point = scratch.path().join("first");
    let second = scratch.path().join("second");
    fs::create_dir(&place.point).unwrap();
    fs::create_dir(&second).unwrap();
    place.mount(&["-l", "null"]);
    rustix::mount::mount_move(&place.point, &second).unwrap();
    fs::write(second.join("file"), "x").unwrap();
    crate::mounting::send(place.daemon(), rustix::process::Signal::TERM);
    soon("the moved mount has ended", || !is_mounted(&second));
    soon("the daemon has exited", || daemons_naming(&place.point).is_empty());
    own.unmount().unwrap();
}

#[test]
fn daemon_does_not_unmount_a_mount_above_its_own() {
    require_mounting!();
    let place = Place::mounted(&["-l", "null"]);
    let above = Mount::new(Path::new("none"), &place.point, "tmpfs", "size=1m").unwrap();
    crate::mounting::send(place.daemon(), rustix::process::Signal::TERM);
    std::thread::sleep(std::time::Duration::from_millis(300));
    let top = fslab_sys::mounts::mounted_on(&place.point).unwrap().unwrap();
    assert_eq!(top.file_system, "tmpfs");
    above.unmount().unwrap();
    rustix::mount::unmount(&place.point, UnmountFlags::empty()).unwrap();
    soon("the daemon has exited", || daemons_naming(&place.point).is_empty());
}

/// Of several stacked mounts, the kernel grants passthrough only to the lowest. The refusal is
/// logged once for each of the others.
#[test]
fn stacked_mounts_work_and_log_passthrough_refusal_once() {
    require_mounting!();
    let bottom = Place::mounted(&["-l", "null"]);
    let mut above = [Place::new(), Place::new(), Place::new()];
    let mut lower = bottom.point.clone();
    for place in &mut above {
        place.lower.clone_from(&lower);
        let log = place.point.parent().unwrap().join("log");
        // The log also contains another message, about missing file handles.
        let (code, said) =
            place.try_mount(&["-l", "null", "-o", &format!("log={}", log.display())]);
        assert_eq!(code, 0, "{said}");
        lower.clone_from(&place.point);
    }
    for number in 0..3 {
        let data = vec![number; 2 << 20];
        fs::write(lower.join(number.to_string()), &data).unwrap();
        assert!(fs::read(lower.join(number.to_string())).unwrap() == data);
        assert!(fs::read(bottom.lower.join(number.to_string())).unwrap() == data);
    }
    for place in above.iter().rev() {
        place.umount();
        let log = fs::read_to_string(place.point.parent().unwrap().join("log")).unwrap();
        assert_eq!(log.matches("refuses passthrough").count(), 1, "said once: {log}");
        assert!(!log.contains('\x1b'), "colours in a file: {log}");
    }
    bottom.umount();
}
