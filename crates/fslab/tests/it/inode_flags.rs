//! Tests lsattr(1) and chattr(1) in mounts.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use fslab_sys::fsxattr::{self, Fsxattr};
use rustix::io::Errno;

use crate::ext2;
use crate::support::{Place, require_mounting};
use crate::tiering::Tiered;

/// Longer than the coarsest resolution of file times (10 ms).
const TICK: Duration = Duration::from_millis(25);
/// `FS_XFLAG_IMMUTABLE`.
const IMMUTABLE: u32 = 0x8;

/// Runs chattr. An error contains the message of chattr.
fn chattr(flag: &str, path: &Path) -> Result<(), String> {
    let output = Command::new("chattr").arg(flag).arg(path).output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() { Ok(()) } else { Err(message) }
}

/// Returns the flags that lsattr prints for a file or directory, without the dashes.
#[track_caller]
fn lsattr(path: &Path) -> String {
    let output = Command::new("lsattr").arg("-d").arg(path).output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {message}", path.display());
    let line = String::from_utf8(output.stdout).unwrap();
    // `e` (extents) and `I` (index) are internal to the lower file system.
    line.split(' ').next().unwrap().replace(['-', 'e', 'I'], "")
}

/// Clears the inode flags of a tree on drop, so that the scratch directory can be removed.
struct Unprotected(PathBuf);

impl Drop for Unprotected {
    fn drop(&mut self) {
        // If the test failed early, there are no flags to clear.
        drop(Command::new("chattr").args(["-f", "-R", "-ia"]).arg(&self.0).output());
    }
}

fn is_refused<T>(answer: std::io::Result<T>, errno: Errno) -> bool {
    answer.is_err_and(|error| error.raw_os_error() == Some(errno.raw_os_error()))
}

fn changed(path: &Path) -> (i64, i64) {
    let metadata = fs::metadata(path).unwrap();
    (metadata.ctime(), metadata.ctime_nsec())
}

/// Checks that even root can't change the content and names of immutable and append-only files.
fn assert_protection_works(tree: &Path) {
    let [file, log, directory] = ["file", "log", "directory"].map(|name| tree.join(name));
    fs::write(&file, "kept").unwrap();
    fs::write(&log, "one").unwrap();
    fs::create_dir(&directory).unwrap();
    fs::write(directory.join("name"), "").unwrap();
    let before = changed(&file);
    std::thread::sleep(TICK);
    chattr("+i", &file).unwrap();
    assert_ne!(changed(&file), before, "the new ctime is visible at once");
    assert_eq!(lsattr(&file), "i");
    assert_eq!(fsxattr::get(File::open(&file).unwrap()).unwrap().xflags & IMMUTABLE, IMMUTABLE);
    let is_protected = |path: &Path| {
        is_refused(OpenOptions::new().write(true).open(path), Errno::PERM)
            && is_refused(fs::remove_file(path), Errno::PERM)
            && is_refused(fs::rename(path, tree.join("other")), Errno::PERM)
    };
    assert!(is_protected(&file));

    chattr("+a", &log).unwrap();
    assert!(is_protected(&log));
    OpenOptions::new().append(true).open(&log).unwrap().write_all(b" two").unwrap();
    assert_eq!(fs::read_to_string(&log).unwrap(), "one two");

    chattr("+i", &directory).unwrap();
    assert!(is_refused(File::create(directory.join("another")), Errno::PERM));
    assert!(is_refused(fs::remove_file(directory.join("name")), Errno::PERM));

    // Clear the flag as xfs_io does, by the ioctl FS_IOC_FSSETXATTR.
    let attributes = fsxattr::get(File::open(&file).unwrap()).unwrap();
    let unprotected = Fsxattr { xflags: attributes.xflags & !IMMUTABLE, ..attributes };
    fsxattr::set(File::open(&file).unwrap(), unprotected).unwrap();
    for (flag, path) in [("-a", &log), ("-i", &directory)] {
        chattr(flag, path).unwrap();
    }
    fs::write(&file, "changed").unwrap();
    fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn flags_of_lower_files_are_shown_and_set_by_observers() {
    require_mounting!();
    for layer in ["null", "null:passthrough=off", "stats", "fault"] {
        let place = Place::mounted(&["-l", layer]);
        let _unprotected = Unprotected(place.lower.clone());
        assert_protection_works(&place.point);
        let (below, above) = (place.lower.join("file"), place.point.join("file"));
        chattr("+dA", &below).unwrap();
        assert_eq!((lsattr(&above), lsattr(&below)), ("dA".into(), "dA".into()), "{layer}");
        chattr("-A", &above).unwrap();
        assert_eq!(lsattr(&below), "d", "{layer}");
    }
}

#[test]
fn users_without_permission_cannot_set_inode_flags() {
    require_mounting!();
    let place = Place::mounted(&["-o", "allow_other", "-l", "null"]);
    let _unprotected = Unprotected(place.lower.clone());
    fs::set_permissions(place.lower.parent().unwrap(), PermissionsExt::from_mode(0o755)).unwrap();
    let file = place.point.join("file");
    fs::write(&file, "").unwrap();
    let as_user = |flag: &str| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "chattr", flag]);
        command.arg(&file).output().unwrap()
    };
    // Users can't change the flags of others' files. Even on their own files, they can't set flags
    // that need CAP_LINUX_IMMUTABLE.
    assert!(!as_user("+d").status.success());
    std::os::unix::fs::chown(&file, Some(65534), Some(65534)).unwrap();
    assert!(as_user("+d").status.success());
    assert!(!as_user("+i").status.success());
    assert_eq!(lsattr(&file), "d");
}

#[test]
fn codecs_and_tiers_pass_flags_but_refuse_immutable_and_append() {
    require_mounting!();
    let codec = Place::mounted(&["-l", "zstd"]);
    let tier = Tiered::mounted();
    let _unprotected = [&*codec.lower, tier.tree()].map(|lower| Unprotected(lower.to_owned()));
    for tree in [&codec.point, &tier.place().point] {
        let file = tree.join("file");
        fs::write(&file, "content").unwrap();
        chattr("+d", &file).unwrap();
        assert_eq!(lsattr(&file), "d");
        for flag in ["+i", "+a"] {
            let message = chattr(flag, &file).unwrap_err();
            assert!(message.contains("Operation not supported"), "{message}");
        }
        fs::write(&file, "changed").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "changed");
    }
}

#[test]
fn flags_set_on_a_mounted_image_are_stored_in_it() {
    require_mounting!();
    let mut place = Place::new();
    let image = ext2::image(&place, "32MiB");
    place.lower = format!("ext2:{}", image.display()).into();
    place.mount(&["-o", "relatime,attr_timeout=0"]);
    assert_protection_works(&place.point);

    // New files inherit the same flags from their directory as in the kernel's ext2.
    let directory = place.point.join("inherited");
    fs::create_dir(&directory).unwrap();
    chattr("+dAT", &directory).unwrap();
    let unread = directory.join("unread");
    fs::write(&unread, "x").unwrap();
    assert_eq!((lsattr(&directory), lsattr(&unread)), ("dAT".into(), "dA".into()));
    let accessed = || fs::metadata(&unread).unwrap().atime_nsec();
    let before = accessed();
    std::thread::sleep(TICK);
    File::open(&unread).unwrap().read_to_end(&mut Vec::new()).unwrap();
    assert_eq!(accessed(), before, "a file with +A keeps its access time");

    // The engine refuses flags that it does not support, and attributes that ext2 does not have.
    let file = place.point.join("file");
    for flag in ["+S", "+j", "+T"] {
        let message = chattr(flag, &file).unwrap_err();
        assert!(message.contains("Operation not supported"), "{flag}: {message}");
    }
    let with_project = Fsxattr { project: 42, ..Fsxattr::default() };
    let answer = fsxattr::set(File::open(&file).unwrap(), with_project);
    assert_eq!(answer, Err(Errno::OPNOTSUPP));

    chattr("+i", &file).unwrap();
    place.umount();
    ext2::check(&image);
    let output = Command::new("debugfs").args(["-R", "stat file"]).arg(&image).output().unwrap();
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(shown.contains("Flags: 0x10"), "{shown}");
    place.mount(&["-o", "ro"]);
    assert_eq!(lsattr(&file), "i");
    assert!(chattr("-i", &file).unwrap_err().contains("Read-only file system"));
}
