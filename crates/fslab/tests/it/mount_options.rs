//! Tests mount options that other file systems have too: for access times, and for changes that are
//! durable before the reply.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::fs::{Advice, CWD, FallocateFlags, FileType, Mode, XattrFlags};
use rustix::mount::{MountFlags, UnmountFlags};
use tempfile::TempDir;

use crate::ext2;
use crate::support::{Place, copy_program, require_mounting};

/// Longer than the coarsest resolution of file times (10 ms).
const TICK: Duration = Duration::from_millis(25);

/// Uses of files, such as reads and listings, and whether each changed the access time.
type Uses = Vec<(&'static str, bool)>;

/// Uses files below a directory in every way that may change access times. Returns the results.
fn uses_recorded_below(root: &Path) -> Uses {
    let [file, directory, link, program] =
        ["file", "directory", "link", "program"].map(|name| root.join(name));
    fs::write(&file, b"content").unwrap();
    fs::create_dir(&directory).unwrap();
    fs::write(directory.join("entry"), b"").unwrap();
    symlink("file", &link).unwrap();
    copy_program(Path::new("/bin/true"), &program);
    let read = || assert_eq!(fs::read(&file).unwrap(), b"content");
    let list = || assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
    let follow = || assert_eq!(fs::read_link(&link).unwrap(), Path::new("file"));
    let execute = || assert!(Command::new(&program).status().unwrap().success());
    let mut uses = vec![
        ("first read", is_recorded(&file, read)),
        ("second read", is_recorded(&file, read)),
        ("first listing", is_recorded(&directory, list)),
        ("second listing", is_recorded(&directory, list)),
        ("first readlink", is_recorded(&link, follow)),
        ("second readlink", is_recorded(&link, follow)),
        ("first execution", is_recorded(&program, execute)),
        ("second execution", is_recorded(&program, execute)),
    ];
    fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
    uses.push(("read after chmod", is_recorded(&file, read)));
    uses
}

/// Returns whether a use changes the access time. Cached pages are dropped first, because the
/// kernel would read them without a request to the daemon.
fn is_recorded(path: &Path, use_it: impl Fn()) -> bool {
    let accessed = || {
        let metadata = fs::symlink_metadata(path).unwrap();
        (metadata.atime(), metadata.atime_nsec())
    };
    let before = accessed();
    std::thread::sleep(TICK);
    if path.is_file() {
        let file = File::open(path).unwrap();
        rustix::fs::fsync(&file).unwrap();
        rustix::fs::fadvise(&file, 0, None, Advice::DontNeed).unwrap();
    }
    use_it();
    accessed() != before
}

/// A new directory that is bind-mounted over itself with mount flags.
struct Native(TempDir);

impl Native {
    fn mounted(flags: MountFlags) -> Self {
        let native = Self(TempDir::new().unwrap());
        rustix::mount::mount_bind(native.0.path(), native.0.path()).unwrap();
        rustix::mount::mount_remount(native.0.path(), MountFlags::BIND | flags, "").unwrap();
        native
    }
}

impl Drop for Native {
    fn drop(&mut self) {
        let _gone_with_its_tree = rustix::mount::unmount(self.0.path(), UnmountFlags::DETACH);
    }
}

/// Mounts stacks over directories (with and without passthrough), over an image, and in memory.
fn stacks(option: &str) -> Vec<(String, Place)> {
    let options = format!("{option},attr_timeout=0,entry_timeout=0");
    let over_directories = ["null", "null:passthrough=off", "zstd"].map(|layer| {
        let place = Place::mounted(&["-o", &options, "-l", layer]);
        (layer.to_owned(), place)
    });
    let mut stacks = Vec::from(over_directories);
    let mut place = Place::new();
    let image = ext2::image(&place, "32MiB");
    place.lower = format!("ext2:{}", image.display()).into();
    place.mount(&["-o", &options]);
    stacks.push(("ext2".to_owned(), place));
    let mut place = Place::new();
    place.lower = "mem:".into();
    place.mount(&["-o", &options]);
    stacks.push(("mem".to_owned(), place));
    stacks
}

#[test]
fn access_times_change_as_on_a_native_mount_with_the_same_option() {
    require_mounting!();
    for (option, flags) in [
        ("relatime", MountFlags::RELATIME),
        ("nodiratime", MountFlags::RELATIME | MountFlags::NODIRATIME),
        ("noatime", MountFlags::NOATIME),
    ] {
        let native = Native::mounted(flags);
        let expected = uses_recorded_below(native.0.path());
        assert_eq!(expected[0].1, option != "noatime", "{expected:?}");
        for (stack, place) in stacks(option) {
            assert_eq!(uses_recorded_below(&place.point), expected, "{stack}, {option}");
            place.umount();
        }
    }
}

/// The option applies even if the lower directory is mounted with another option.
#[test]
fn relatime_over_a_directory_mounted_noatime_records_reads() {
    require_mounting!();
    let native = Native::mounted(MountFlags::NOATIME);
    let mut place = Place::new();
    place.lower = native.0.path().join("lower");
    fs::create_dir(&place.lower).unwrap();
    for (option, is_read_recorded) in [("rw", false), ("relatime", true)] {
        place.mount(&["-o", &format!("{option},attr_timeout=0,entry_timeout=0"), "-l", "null"]);
        let directory = place.point.join(option);
        fs::create_dir(&directory).unwrap();
        assert_eq!(uses_recorded_below(&directory)[0], ("first read", is_read_recorded));
        place.umount();
    }
}

/// With `noatime`, lower files are accessed through a copy of the lower directory's mount. The
/// paths in a trace must not show this copy.
#[test]
fn traces_name_files_of_a_noatime_mount_by_their_paths() {
    require_mounting!();
    let place = Place::new();
    let trace = place.lower.parent().unwrap().join("trace");
    place.mount(&["-o", "noatime", "-l", "null", "-l", &format!("trace:to={}", trace.display())]);
    fs::create_dir(place.point.join("directory")).unwrap();
    fs::write(place.point.join("directory/name"), b"x").unwrap();
    place.umount();
    let output = crate::support::fslab(&["trace", "show", trace.to_str().unwrap()]).output();
    let shown = String::from_utf8(output.unwrap().stdout).unwrap();
    assert!(shown.contains("directory/name"), "{shown}");
}

#[test]
fn unsupported_mount_options_are_refused_in_one_line() {
    let place = Place::new();
    for (option, says) in [
        (
            "strictatime",
            "mount option strictatime: not supported, because fslab does not see reads",
        ),
        (
            "lazytime",
            "mount option lazytime: not supported, because the file system that contains LOWER",
        ),
    ] {
        let (code, message) = place.try_mount(&["-o", option]);
        assert_eq!((code, message.lines().count()), (3, 1), "{message}");
        assert!(message.contains(says), "{message}");
    }
}

#[test]
fn mount_table_shows_the_requested_options() {
    require_mounting!();
    for option in ["noatime", "nodiratime", "sync", "dirsync", "ro"] {
        let place = Place::mounted(&["-o", option, "-l", "null"]);
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let named = format!(" {} ", place.point.display());
        let line = table.lines().find(|line| line.contains(&named)).unwrap();
        let mut words = line.split([' ', ',']);
        assert!(words.any(|word| word == option), "{option}: {line}");
        place.umount();
    }
}

/// A change of files in the given directory.
type Change = fn(&Path) -> rustix::io::Result<()>;

const CHANGES_OF_NAMES: [(&str, Change); 8] = [
    ("create", |path| to_errno(File::create(path.join("new")).map(drop))),
    ("mkdir", |path| to_errno(fs::create_dir(path.join("new")))),
    ("symlink", |path| to_errno(symlink("target", path.join("new")))),
    ("mknod", |path| rustix::fs::mknodat(CWD, path.join("new"), FileType::Fifo, Mode::RUSR, 0)),
    ("link", |path| to_errno(fs::hard_link(path.join("file"), path.join("new")))),
    ("rename", |path| to_errno(fs::rename(path.join("file"), path.join("new")))),
    ("unlink", |path| to_errno(fs::remove_file(path.join("file")))),
    ("rmdir", |path| to_errno(fs::remove_dir(path.join("directory")))),
];

const CHANGES_OF_FILES: [(&str, Change); 6] = [
    ("write", |path| {
        let mut file = OpenOptions::new().write(true).open(path.join("file"));
        to_errno(file.as_mut().unwrap().write_all(b"changed"))
    }),
    ("truncate", |path| {
        to_errno(OpenOptions::new().write(true).open(path.join("file")).unwrap().set_len(3))
    }),
    ("chmod", |path| {
        to_errno(fs::set_permissions(path.join("file"), Permissions::from_mode(0o600)))
    }),
    ("setxattr", |path| {
        rustix::fs::setxattr(path.join("file"), "user.name", b"value", XattrFlags::empty())
    }),
    ("removexattr", |path| rustix::fs::removexattr(path.join("file"), "user.first")),
    ("fallocate", |path| {
        let file = OpenOptions::new().write(true).open(path.join("file")).unwrap();
        rustix::fs::fallocate(file, FallocateFlags::empty(), 0, 4096)
    }),
];

fn to_errno(answer: std::io::Result<()>) -> rustix::io::Result<()> {
    answer.map_err(|error| rustix::io::Errno::from_io_error(&error).unwrap())
}

/// Makes a mount in which every sync fails, with a directory for each change.
fn place_without_durability(option: &str, layer: &str, changes: &[(&str, Change)]) -> Place {
    let place = Place::new();
    for (name, _) in changes {
        let directory: PathBuf = place.lower.join(name);
        fs::create_dir_all(directory.join("directory")).unwrap();
        fs::write(directory.join("file"), b"content").unwrap();
        let file = directory.join("file");
        rustix::fs::setxattr(file, "user.first", b"value", XattrFlags::empty()).unwrap();
    }
    let fault = "fault:rules=fsync error EIO; fsyncdir error EIO; syncfs error EIO";
    let (code, message) = place.try_mount(&["-o", option, "-l", layer, "-l", fault]);
    assert_eq!(code, 0, "{message}");
    place
}

/// Returns the changes that fail because they can't be made durable.
fn failures(place: &Place, changes: &[(&'static str, Change)]) -> Vec<&'static str> {
    let fails = |(name, change): &(&'static str, Change)| {
        let answer = change(&place.point.join(name));
        assert!(matches!(answer, Ok(()) | Err(rustix::io::Errno::IO)), "{name}: {answer:?}");
        answer.is_err().then_some(*name)
    };
    changes.iter().filter_map(fails).collect()
}

#[test]
fn sync_and_dirsync_make_changes_durable_before_the_reply() {
    require_mounting!();
    let names = CHANGES_OF_NAMES.map(|(name, _)| name);
    let files = CHANGES_OF_FILES.map(|(name, _)| name);
    for (option, of_names, of_files) in [
        ("async", &[][..], &[][..]),
        ("dirsync", &names[..], &[][..]),
        ("sync", &names[..], &files[..]),
    ] {
        for layer in ["null", "null:passthrough=off"] {
            let place = place_without_durability(option, layer, &CHANGES_OF_NAMES);
            assert_eq!(failures(&place, &CHANGES_OF_NAMES), of_names, "{layer}, {option}");
            let place = place_without_durability(option, layer, &CHANGES_OF_FILES);
            assert_eq!(failures(&place, &CHANGES_OF_FILES), of_files, "{layer}, {option}");
        }
    }
}

/// Without injected errors, all changes succeed on a synchronous mount, even with a codec.
#[test]
fn everything_works_on_a_synchronous_mount() {
    require_mounting!();
    for layer in ["null", "zstd"] {
        let place = Place::mounted(&["-o", "sync", "-l", layer]);
        for (name, change) in CHANGES_OF_NAMES.iter().chain(&CHANGES_OF_FILES) {
            let directory = place.point.join(name);
            fs::create_dir_all(directory.join("directory")).unwrap();
            let file = directory.join("file");
            fs::write(&file, b"content").unwrap();
            rustix::fs::setxattr(&file, "user.first", b"value", XattrFlags::empty()).unwrap();
            change(&directory).unwrap();
        }
        place.umount();
    }
}
