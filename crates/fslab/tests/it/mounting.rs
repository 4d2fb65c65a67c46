//! Tests mounts from a user's point of view.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use fslab_sys::mounts::Mount;
use rustix::fs::OFlags;
use rustix::process::{Pid, Signal, kill_process};

use crate::support::{
    Place, copy_program, daemons_naming, fslab, is_mounted, require_mounting, run, soon,
    umount_unused,
};

#[test]
fn a_directory_is_mounted_over_itself() {
    require_mounting!();
    let mut place = Place::new();
    fs::write(place.lower.join("before"), "kept").unwrap();
    place.point.clone_from(&place.lower);
    place.mount(&["-l", "null"]);
    assert_eq!(fs::read_to_string(place.point.join("before")).unwrap(), "kept");
    fs::write(place.point.join("within"), "through the mount").unwrap();
    place.umount();
    assert_eq!(fs::read_to_string(place.lower.join("within")).unwrap(), "through the mount");
}

#[test]
fn mounts_are_nosuid_and_nodev_by_default() {
    require_mounting!();
    let place = Place::mounted(&[]);
    let mounts = fs::read_to_string("/proc/mounts").unwrap();
    let line = mounts.lines().find(|line| line.contains(place.point.to_str().unwrap())).unwrap();
    assert!(line.contains("nosuid") && line.contains("nodev"), "{line}");
    assert!(line.contains("default_permissions") && line.contains("fuse.fslab"), "{line}");
    place.umount();
}

#[test]
fn a_read_only_mount_refuses_changes() {
    require_mounting!();
    let place = Place::new();
    fs::write(place.lower.join("file"), "data").unwrap();
    place.mount(&["-o", "ro"]);
    assert_eq!(fs::read_to_string(place.point.join("file")).unwrap(), "data");
    let error = File::create(place.point.join("new")).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::ROFS.raw_os_error()));
    place.umount();
}

/// A file can be opened many times with passthrough. The kernel returns EIO if a later open uses
/// another backing file than the first one.
#[test]
fn one_file_is_opened_many_times_through_passthrough() {
    require_mounting!();
    let place = Place::mounted(&["-l", "null"]);
    let path = place.point.join("file");
    let first = File::create(&path).unwrap();
    first.write_all_at(b"first", 0).unwrap();
    fs::hard_link(&path, place.point.join("other-name")).unwrap();
    let second = File::open(place.point.join("other-name")).unwrap();
    let third = OpenOptions::new().append(true).open(&path).unwrap();
    drop(first);
    (&third).write_all(b" third").unwrap();
    let mut text = String::new();
    (&second).read_to_string(&mut text).unwrap();
    assert_eq!(text, "first third");
    drop((second, third));
    assert_eq!(fs::read(&path).unwrap(), b"first third", "opened again after the last close");
    place.umount();
}

/// With passthrough, no read or write reaches the daemon. Without it, all do.
#[test]
fn passthrough_keeps_data_out_of_the_daemon() {
    require_mounting!();
    for (layer, through_daemon) in [("null", false), ("null:passthrough=off", true)] {
        let place = Place::mounted(&["-l", layer]);
        let daemon = place.daemon();
        let path = place.point.join("file");
        let before = bytes_written_by(daemon);
        fs::write(&path, vec![7; 8 << 20]).unwrap();
        let written = bytes_written_by(daemon) - before;
        assert_eq!(written >= 8 << 20, through_daemon, "{layer}: {written} bytes");
        assert_eq!(fs::metadata(&path).unwrap().len(), 8 << 20);
        place.umount();
    }
}

/// Returns the bytes that a process has passed to write calls.
fn bytes_written_by(pid: u32) -> u64 {
    let counters = fs::read_to_string(format!("/proc/{pid}/io")).unwrap();
    let line = counters.lines().find_map(|line| line.strip_prefix("wchar: ")).unwrap();
    line.parse().unwrap()
}

#[test]
fn new_files_belong_to_their_creator() {
    require_mounting!();
    let place = Place::mounted(&[]);
    let shared = place.point.join("shared");
    fs::create_dir(&shared).unwrap();
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o2777)).unwrap();
    std::os::unix::fs::chown(&shared, Some(0), Some(4321)).unwrap();
    let script =
        format!("umask 027; cd {}; echo x >file; mkdir sub; ln -s x link", shared.display());
    let status = Command::new("setpriv")
        .args(["--reuid=1234", "--regid=1234", "--clear-groups", "sh", "-c", &script])
        .status()
        .unwrap();
    assert!(status.success());
    let file = fs::metadata(shared.join("file")).unwrap();
    assert_eq!((file.uid(), file.gid(), file.mode() & 0o7777), (1234, 4321, 0o640));
    let sub = fs::metadata(shared.join("sub")).unwrap();
    assert_eq!((sub.uid(), sub.gid(), sub.mode() & 0o7777), (1234, 4321, 0o2750));
    let link = fs::symlink_metadata(shared.join("link")).unwrap();
    assert_eq!((link.uid(), link.gid()), (1234, 4321));
    place.umount();
}

/// A user can create files in a directory that only a supplementary group may write to.
#[test]
fn supplementary_groups_grant_write_access() {
    require_mounting!();
    let place = Place::mounted(&[]);
    let shared = place.point.join("shared");
    fs::create_dir(&shared).unwrap();
    std::os::unix::fs::chown(&shared, Some(0), Some(4321)).unwrap();
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o2770)).unwrap();
    let script = format!("umask 0; touch {0}/file; chmod 2775 {0}/file", shared.display());
    let member = ["--reuid=1234", "--regid=1234", "--groups=4321", "sh", "-c", &script];
    assert!(Command::new("setpriv").args(member).status().unwrap().success());
    let file = fs::metadata(shared.join("file")).unwrap();
    assert_eq!((file.gid(), file.mode() & 0o7777), (4321, 0o2775), "a member keeps set-group-id");
    place.umount();
}

/// Writes and truncations by users without CAP_FSETID clear set-id bits, as docs/SEMANTICS.md
/// promises in section 1. This holds with passthrough, without it, and with the writeback cache.
#[test]
fn writing_by_others_clears_set_id_bits() {
    require_mounting!();
    let stacks: [&[&str]; 3] =
        [&["-l", "null"], &["-l", "null:passthrough=off"], &["-o", "writeback"]];
    for arguments in stacks {
        for change in [
            "printf y >>FILE",
            "printf y | dd of=FILE conv=notrunc",
            "truncate -s1 FILE",
            ": >FILE",
            "fallocate -l 8192 FILE",
            "fallocate --punch-hole -l 1 FILE",
        ] {
            let place = Place::mounted(arguments);
            let path = place.point.join("file");
            fs::write(&path, "xxx").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o6777)).unwrap();
            let script = change.replace("FILE", path.to_str().unwrap());
            let other = ["--reuid=1234", "--regid=1234", "--clear-groups", "sh", "-c", &script];
            let output = Command::new("setpriv").args(other).output().unwrap();
            assert!(output.status.success(), "{output:?}");
            let mode = fs::metadata(&path).unwrap().mode() & 0o7777;
            assert_eq!(mode, 0o777, "{arguments:?}: {change}: {mode:o}");
            let lower = fs::metadata(place.lower.join("file")).unwrap().mode() & 0o7777;
            assert_eq!(lower, 0o777, "{arguments:?}: {change}, below");
            place.umount();
        }
    }
}

/// Set-id bits are cleared even if they were set after the file was opened. With passthrough, the
/// daemon does not see the writes, because the kernel itself writes to the lower file.
#[test]
fn writes_clear_set_id_bits_set_after_the_file_was_opened() {
    require_mounting!();
    let stacks = [["-l", "null"], ["-l", "null:passthrough=off"], ["-l", "copy"]];
    for arguments in stacks.into_iter().chain([["-o", "writeback"]]) {
        let place = Place::mounted(&arguments);
        let path = place.point.join("file");
        fs::write(&path, "xxx").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
        let (file, signals) = (path.display(), place.lower.with_extension("signals"));
        fs::create_dir(&signals).unwrap();
        fs::set_permissions(&signals, fs::Permissions::from_mode(0o777)).unwrap();
        let script = format!(
            "exec 3>>{file}; cd {}; : >open; until [ -e go ]; do sleep 0.01; done; printf y >&3",
            signals.display()
        );
        let other = ["--reuid=1234", "--regid=1234", "--clear-groups", "sh", "-c", &script];
        let mut writer = Command::new("setpriv").args(other).spawn().unwrap();
        soon("the file is open", || signals.join("open").exists());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o6777)).unwrap();
        fs::write(signals.join("go"), "").unwrap();
        assert!(writer.wait().unwrap().success());
        let mode = fs::metadata(&path).unwrap().mode() & 0o7777;
        assert_eq!(mode, 0o777, "{arguments:?}: {mode:o}");
        place.umount();
    }
}

/// The kernel refuses to truncate a running program. After the refusal, the file must still have
/// its content.
#[test]
fn running_program_cannot_be_truncated() {
    require_mounting!();
    let stacks = [["-l", "null"], ["-l", "null:passthrough=off"], ["-l", "copy"]];
    for arguments in stacks.into_iter().chain([["-o", "writeback"]]) {
        let place = Place::mounted(&arguments);
        let program = place.point.join("program");
        copy_program("/bin/sleep".as_ref(), &program);
        let mut running = Command::new(&program).arg("60").spawn().unwrap();
        let path = program.as_path();
        let refused = rustix::fs::open(path, OFlags::TRUNC, rustix::fs::Mode::empty());
        assert_eq!(refused.unwrap_err(), rustix::io::Errno::TXTBSY, "{arguments:?}");
        assert_ne!(fs::metadata(path).unwrap().len(), 0, "{arguments:?}");
        running.kill().unwrap();
        running.wait().unwrap();
        place.umount();
    }
}

#[test]
fn a_signal_unmounts_and_ends_the_daemon() {
    require_mounting!();
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let place = Place::mounted(&[]);
        let daemon = place.daemon();
        send(daemon, signal);
        soon("the mount has ended", || !is_mounted(&place.point));
        soon("the daemon has exited", || daemons_naming(&place.point).is_empty());
    }
}

#[test]
fn open_files_are_served_after_a_signal() {
    require_mounting!();
    let place = Place::mounted(&["-l", "null:passthrough=off"]);
    let file = File::create(place.point.join("file")).unwrap();
    send(place.daemon(), Signal::TERM);
    soon("the mount is detached", || !is_mounted(&place.point));
    file.write_all_at(b"still served", 0).unwrap();
    drop(file);
    soon("the daemon has exited", || daemons_naming(&place.point).is_empty());
    assert_eq!(fs::read(place.lower.join("file")).unwrap(), b"still served");
}

pub fn send(daemon: u32, signal: Signal) {
    let pid = Pid::from_raw(daemon.try_into().unwrap()).unwrap();
    kill_process(pid, signal).unwrap();
}

#[test]
fn idle_timeout_unmounts_only_unused_mounts() {
    require_mounting!();
    let place = Place::new();
    let beneath = fs::metadata(&place.point).unwrap().dev();
    // On a busy machine, the mount may be idle long enough to be unmounted before the test opens
    // it.
    let user = loop {
        place.mount(&["-o", "idle_timeout=300ms"]);
        let user = File::open(&place.point).unwrap();
        if user.metadata().unwrap().dev() != beneath {
            break user;
        }
        soon("the daemon has exited", || daemons_naming(&place.point).is_empty());
    };
    std::thread::sleep(Duration::from_millis(900));
    assert!(is_mounted(&place.point), "an open directory keeps the mount in use");
    drop(user);
    soon("the idle mount has ended", || !is_mounted(&place.point));
    soon("the daemon has exited", || daemons_naming(&place.point).is_empty());
}

#[test]
fn daemon_detaches_from_the_terminal_and_directory() {
    require_mounting!();
    let place = Place::mounted(&[]);
    let daemon = place.daemon();
    assert_eq!(fs::read_link(format!("/proc/{daemon}/cwd")).unwrap(), Path::new("/"));
    for descriptor in ["1", "2"] {
        let open = fs::read_link(format!("/proc/{daemon}/fd/{descriptor}")).unwrap();
        assert_eq!(open, Path::new("/dev/null"));
    }
    place.umount();
}

#[test]
fn foreground_mount_exits_when_it_is_unmounted() {
    require_mounting!();
    let place = Place::new();
    let paths = [place.lower.to_str().unwrap(), place.point.to_str().unwrap()];
    let mut served = fslab(&["mount", "--foreground", paths[0], paths[1]]).spawn().unwrap();
    soon("the directory is mounted", || is_mounted(&place.point));
    fs::write(place.point.join("file"), "x").unwrap();
    // The daemon makes its sockets a moment after the mount. Until then, umount can't get the
    // daemon's result and prints a note about that.
    let (code, told) = umount_unused(&place.point);
    assert_eq!(code, 0, "{told}");
    assert!(!is_mounted(&place.point));
    assert!(served.wait().unwrap().success());
}

#[test]
fn mount_helper_accepts_the_options_of_mount_8() {
    require_mounting!();
    let place = Place::new();
    let helper = place.lower.join("mount.fslab");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_fslab"), &helper).unwrap();
    let status = Command::new(&helper)
        .args([&place.lower, &place.point])
        .args(["-n", "-o", "rw,nofail,layer=null:passthrough=off"])
        .status()
        .unwrap();
    assert!(status.success());
    fs::write(place.point.join("file"), "x").unwrap();
    place.umount();
}

/// A walk through a directory with far more files than the daemon may open succeeds.
#[test]
fn directory_walk_keeps_no_descriptor_per_file() {
    require_mounting!();
    const FILES: usize = 3_000;
    let place = Place::new();
    for number in 0..FILES {
        fs::write(place.lower.join(number.to_string()), "").unwrap();
    }
    let program = env!("CARGO_BIN_EXE_fslab");
    let script = format!(
        "ulimit -n 128; exec {program} mount -l null {} {}",
        place.lower.display(),
        place.point.display()
    );
    assert!(Command::new("sh").args(["-c", &script]).status().unwrap().success());
    for _ in 0..2 {
        let walked = fs::read_dir(&place.point).unwrap();
        let sizes = walked.map(|entry| entry.unwrap().metadata().unwrap().len());
        assert_eq!(sizes.count(), FILES);
    }
    let open = fs::read_dir(format!("/proc/{}/fd", place.daemon())).unwrap().count();
    assert!(open < 100, "{open} descriptors");
    place.umount();
}

/// The daemon inherits the shell's limit on file sizes. A write beyond the limit must fail and must
/// not kill the daemon.
#[test]
fn a_limit_on_file_sizes_does_not_end_the_daemon() {
    require_mounting!();
    let place = Place::new();
    let program = env!("CARGO_BIN_EXE_fslab");
    let script = format!(
        "ulimit -f 100; exec {program} mount -l null:passthrough=off {} {}",
        place.lower.display(),
        place.point.display()
    );
    assert!(Command::new("sh").args(["-c", &script]).status().unwrap().success());
    let error = fs::write(place.point.join("large"), vec![1; 1 << 20]).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::FBIG.raw_os_error()), "{error}");
    fs::write(place.point.join("small"), "still served").unwrap();
    place.umount();
}

/// Whenever a signal arrives during mounting, it leaves no mount without a daemon.
#[test]
fn a_signal_while_mounting_leaves_nothing_behind() {
    require_mounting!();
    let place = Place::new();
    let paths = [place.lower.to_str().unwrap(), place.point.to_str().unwrap()];
    for step in 0..200 {
        let mut served = fslab(&["mount", "--foreground", paths[0], paths[1]]).spawn().unwrap();
        std::thread::sleep(Duration::from_micros(step * 100));
        send(served.id(), Signal::INT);
        served.wait().unwrap();
        assert!(!is_mounted(&place.point), "after {} microseconds", step * 100);
    }
}

#[test]
fn messages_are_written_to_the_file_of_the_log_option() {
    require_mounting!();
    let place = Place::new();
    let paths = [place.lower.to_str().unwrap(), place.point.to_str().unwrap()];
    let folder = place.lower.parent().unwrap();
    for foreground in [false, true] {
        let name = format!("log-{foreground}");
        let log = format!("log={name}");
        let mut mount = fslab(&["mount", "-o", &log]);
        mount.args(foreground.then_some("--foreground")).args(paths).current_dir(folder);
        let mut mounting = mount.spawn().unwrap();
        if !foreground {
            assert!(mounting.wait().unwrap().success());
        }
        soon("the directory is mounted", || is_mounted(&place.point));
        let messages = format!("/proc/{}/fd/2", place.daemon());
        soon("messages go to the file", || {
            fs::read_link(&messages).is_ok_and(|file| file == folder.join(&name))
        });
        // The mount is in use when the signal arrives, so the daemon writes a message.
        let user = File::create(place.point.join("file")).unwrap();
        send(place.daemon(), Signal::TERM);
        soon("the mount is detached", || !is_mounted(&place.point));
        drop(user);
        assert!(mounting.wait().unwrap().success());
        soon("the message is written", || {
            fs::read_to_string(folder.join(&name)).is_ok_and(|text| text.contains("in use"))
        });
        soon("the daemon has exited", || daemons_naming(&place.point).is_empty());
    }
}

#[test]
fn mount_point_may_be_a_symbolic_link_or_follow_dashes() {
    require_mounting!();
    let place = Place::new();
    let link = place.lower.parent().unwrap().join("link");
    std::os::unix::fs::symlink(&place.point, &link).unwrap();
    let (lower, link) = (place.lower.to_str().unwrap(), link.to_str().unwrap());
    assert_eq!(run(&["mount", "--", lower, link]), (0, String::new()));
    assert!(is_mounted(&place.point));
    assert_eq!(umount_unused(link.as_ref()), (0, String::new()));
    assert!(!is_mounted(&place.point));
}

#[test]
fn only_root_can_list_trusted_attributes() {
    require_mounting!();
    let place = Place::mounted(&[]);
    let path = place.point.join("file");
    fs::write(&path, "").unwrap();
    rustix::fs::setxattr(&path, "trusted.secret", b"1", rustix::fs::XattrFlags::empty()).unwrap();
    let script = format!("getfattr --match=- {}", path.display());
    let listed = |who: &[&str]| {
        let output =
            Command::new("setpriv").args(who).args(["sh", "-c", &script]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(listed(&["--reuid=0"]).contains("trusted.secret"));
    assert_eq!(listed(&["--reuid=1234", "--regid=1234", "--clear-groups"]), "");
    place.umount();
}

/// Mounts layers over a read-only file system: files can be read, and changes are refused.
#[test]
fn a_read_only_directory_is_read_through_layers() {
    require_mounting!();
    for layer in ["gzip", "copy:size-xattr=off", "zstd:chunk=4KiB"] {
        let place = Place::new();
        let lower = Mount::new(Path::new("tmpfs"), &place.lower, "tmpfs", "size=8m").unwrap();
        place.mount(&["-l", layer]);
        fs::write(place.point.join("file"), vec![3; 300_000]).unwrap();
        place.umount();
        // Lower files stay open for a moment after their last use, so the remount is retried.
        let read_only = rustix::mount::MountFlags::RDONLY;
        let remount = || rustix::mount::mount_remount(place.lower.as_path(), read_only, "");
        soon("nothing is open for writing", || remount().is_ok());
        place.mount(&["-l", layer]);
        let file = place.point.join("file");
        assert_eq!(fs::metadata(&file).unwrap().len(), 300_000, "{layer}");
        assert!(fs::read(&file).unwrap() == vec![3; 300_000], "{layer}");
        let refused = [
            OpenOptions::new().write(true).open(&file).map(drop),
            fs::write(place.point.join("new"), b"data"),
            fs::remove_file(&file),
        ];
        for answer in refused {
            assert_eq!(answer.unwrap_err().kind(), ErrorKind::ReadOnlyFilesystem, "{layer}");
        }
        place.umount();
        lower.unmount().unwrap();
    }
}
