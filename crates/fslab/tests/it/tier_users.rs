//! Tests the `fslab tier` commands of users who did not mount the tree.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime};

use tempfile::TempDir;

use crate::support::{copy_program, require_mounting, run, soon};
use crate::tiering::{FaultyArchive, Tiered};

const NOBODY: u32 = 65534;

/// A copy of the program that an ordinary user may run.
struct Program {
    _scratch: TempDir,
    path: PathBuf,
}

impl Program {
    fn new() -> Self {
        let scratch = TempDir::new().unwrap();
        fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let path = scratch.path().join("fslab");
        copy_program(env!("CARGO_BIN_EXE_fslab").as_ref(), &path);
        Self { _scratch: scratch, path }
    }

    /// Runs `fslab tier` as an ordinary user; returns its exit code, output and errors.
    #[track_caller]
    fn asked(&self, arguments: &[&str]) -> (i32, String, String) {
        let mut command = as_nobody(self.path.to_str().unwrap());
        let output = command.arg("tier").args(arguments).output().unwrap();
        let [told, said] =
            [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
        (output.status.code().unwrap(), told, said)
    }
}

fn as_nobody(program: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", program]);
    command
}

/// A reader. It is killed on drop.
struct Reader(Child);

impl Reader {
    fn of(command: &mut Command, file: &PathBuf) -> Self {
        Self(command.arg(file).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        // A reader that has ended needs no signal.
        drop(self.0.kill());
        self.0.wait().unwrap();
    }
}

/// Queries select the same files for root and for other users. The daemon answers root's queries.
/// For another user, the command reads the files through the mount.
#[test]
fn queries_select_and_sum_files_for_root_and_other_users() {
    require_mounting!();
    let (tiered, program) = (Tiered::mounted(), Program::new());
    let day = 24 * 3600;
    let now = SystemTime::now();
    for (name, bytes, owner, days) in [
        ("a/old.raw", 3 << 20, NOBODY, 100),
        ("a/new.raw", 3 << 20, 7, 0),
        ("small", 9, NOBODY, 10),
    ] {
        let path = tiered.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, vec![7; bytes]).unwrap();
        chown(&path, Some(owner), Some(owner)).unwrap();
        let file = fs::File::options().write(true).open(&path).unwrap();
        let time = now - Duration::from_secs(days * day);
        file.set_times(fs::FileTimes::new().set_accessed(time).set_modified(time)).unwrap();
    }
    tiered.of("archive", "a");
    tiered.of("release", "a/old.raw");
    tiered.of("pin", "small");
    let point = tiered.path("").to_str().unwrap().to_owned();

    #[track_caller]
    fn agree(tiered: &Tiered, program: &Program, arguments: &[&str]) -> String {
        let (code, told, said) = program.asked(arguments);
        assert_eq!((code, said.as_str()), (0, ""), "{arguments:?}");
        let sorted = |text: &str| {
            let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
            lines.sort();
            lines
        };
        assert_eq!(sorted(&told), sorted(&tiered.ok(arguments)), "{arguments:?}");
        told
    }
    for (options, expected) in [
        (&[][..], &["new.raw", "old.raw", "small"][..]),
        (&["--state", "offline"], &["old.raw"]),
        (&["--state", "offline", "--state", "resident"], &["old.raw", "small"]),
        (&["--user", "nobody"], &["old.raw", "small"]),
        (&["--user", "65534", "--group", "7"], &[]),
        (&["--group", "7"], &["new.raw"]),
        (&["--larger", "3MiB"], &["new.raw", "old.raw"]),
        (&["--smaller", "3MiB"], &["small"]),
        (&["--unused", "30d"], &["old.raw"]),
        (&["--unchanged", "9d"], &["old.raw", "small"]),
        (&["--match", "a/*.raw", "--smaller", "4MiB"], &["new.raw", "old.raw"]),
        (&["--pinned"], &["small"]),
    ] {
        let told = agree(&tiered, &program, &[&["find", &point], options].concat());
        let name = |line: &str| line.rsplit(['/', ' ']).next().unwrap().to_owned();
        let mut names: Vec<_> = told.lines().map(name).collect();
        names.sort_unstable();
        match expected {
            [] => assert_eq!(told, "no such files\n", "{options:?}"),
            _ => assert_eq!(names, expected, "{options:?}"),
        }
    }
    for (by, expected) in [
        ("state", &["resident  ", "archived  ", "offline  "][..]),
        ("user", &["user 7  ", "user 65534  "]),
        ("group", &["group 7  ", "group 65534  "]),
        ("size", &["below 4 KiB  ", "below 64 MiB  "]),
        ("age", &["used within a day  ", "used within 30 days  ", "used within a year  "]),
    ] {
        let told = agree(&tiered, &program, &["du", "--by", by, &point]);
        let is_right = |(line, start): (&str, &&str)| line.starts_with(*start);
        assert_eq!(told.lines().count(), expected.len(), "{told}");
        assert!(told.lines().zip(expected).all(is_right), "{by}: {told}");
    }
    let old = agree(&tiered, &program, &["du", "--by", "user", "--larger", "1MiB", &point]);
    let of_user = old.lines().find(|line| line.starts_with("user 65534")).unwrap();
    assert!(of_user.contains("1 file, 3.0 MiB; resident 0 B, in archives 3.0 MiB"), "{old}");
    let once = agree(&tiered, &program, &["du", "--by", "state", &point]);
    let inner = format!("{point}/a");
    let twice = agree(&tiered, &program, &["du", "--by", "state", &point, &inner]);
    assert_eq!(once, twice, "a file in both paths is counted once");
    let (code, _, said) = program.asked(&["find", "--match", "a[", &point]);
    assert!(code == 3 && said.contains("'a['"), "{code}: {said}");
    let (code, said) = run(&["tier", "du", "--by", "colour", &point]);
    assert!(code == 3 && said.contains("age"), "{code}: {said}");
    tiered.umount();
}

/// Makes a mounted tier with three offline files: all users may read `shared`, only root may read
/// `secret`, and `own` belongs to an ordinary user.
#[track_caller]
fn with_offline_files() -> Tiered {
    let tiered = Tiered::mounted();
    for (name, mode, owner) in [("own", 0o600, NOBODY), ("secret", 0o600, 0), ("shared", 0o644, 0)]
    {
        let path = tiered.path(name);
        fs::write(&path, vec![7; 3 << 20]).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        chown(&path, Some(owner), Some(owner)).unwrap();
    }
    tiered.of("archive", "");
    tiered.of("release", "");
    tiered
}

#[test]
fn users_see_recall_and_pin_only_files_that_they_may_access() {
    require_mounting!();
    let (tiered, program) = (with_offline_files(), Program::new());
    let [point, own, secret, shared] = ["", "own", "secret", "shared"].map(|name| {
        let path = tiered.path(name);
        path.to_str().unwrap().to_owned()
    });

    let (code, told, said) = program.asked(&["state", &point]);
    let mut lines: Vec<_> = told.lines().collect();
    lines.sort_unstable_by_key(|line| line.rsplit("  ").next());
    assert_eq!(code, 1, "{told}{said}");
    assert_eq!(said.lines().next(), Some("fslab: secret: Permission denied (os error 13)"));
    assert!(lines.len() == 2 && lines.iter().all(|line| line.starts_with("A offline")), "{told}");
    assert!(lines[0].ends_with("  own") && lines[1].ends_with("  shared"), "{told}");
    let own_of_root = tiered.ok(&["state", &own]);
    assert_eq!(program.asked(&["state", &own]).1, own_of_root, "the same as for root");
    assert_eq!(program.asked(&["du", &own]).1, tiered.ok(&["du", &own]));

    let (code, told, said) = program.asked(&["recall", "-v", "--range", "1MiB+1", &own]);
    assert_eq!((code, said.as_str()), (0, ""), "{told}");
    assert!(told.contains("1.0 MiB  own"), "one block: {told}");
    assert!(program.asked(&["state", &own]).1.starts_with("p partly-resident"));
    assert_eq!(program.asked(&["recall", &own, &shared]).0, 0);
    assert!(tiered.of("state", "own").starts_with("a archived"));
    assert!(tiered.of("state", "shared").starts_with("a archived"));
    assert_eq!(program.asked(&["recall", &secret]).0, 1);
    assert!(tiered.of("state", "secret").starts_with("A offline"));

    assert_eq!(program.asked(&["pin", &own]).0, 0);
    assert!(tiered.of("state", "own").contains("pinned"));
    assert_eq!(program.asked(&["unpin", &own]).0, 0);
    assert!(!tiered.of("state", "own").contains("pinned"));
    assert_eq!(program.asked(&["pin", &shared]).0, 1, "the file belongs to root");
    assert!(!tiered.of("state", "shared").contains("pinned"));

    for command in ["release", "archive", "cancel", "wait", "scan", "archives", "versions"] {
        let (code, told, said) = program.asked(&[command, &point]);
        assert_eq!(code, 3, "{command}: {told}{said}");
        assert!(said.contains("only that user and root may run this command"), "{command}: {said}");
    }
    tiered.umount();
}

#[test]
fn users_see_only_their_own_recalls_in_the_queue() {
    require_mounting!();
    let (tiered, program) = (with_offline_files(), Program::new());
    let point = tiered.path("").to_str().unwrap().to_owned();
    assert_eq!(program.asked(&["queue", &point]), (0, "no recall is waiting\n".into(), "".into()));
    tiered.umount();
    let archive = FaultyArchive::over(&tiered, "read on /files/** delay 3s");
    tiered.place().mount(&["-l", "tier"]);
    let readers = [
        Reader::of(&mut as_nobody("cat"), &tiered.path("shared")),
        Reader::of(&mut Command::new("cat"), &tiered.path("secret")),
    ];
    let is_waiting =
        |name: &str| tiered.ok(&["queue", &point]).contains(&format!(" of {name}  for"));
    soon("both readers wait", || is_waiting("shared") && is_waiting("secret"));
    let (code, told, said) = program.asked(&["queue", &point]);
    assert_eq!((code, said.as_str()), (0, ""));
    assert!(told.contains(" of shared  for cat") && told.contains("of user 65534"), "{told}");
    assert!(!told.contains("secret"), "a recall of another user: {told}");
    drop(readers);
    soon("the recalls have ended", || tiered.of("queue", "") == "no recall is waiting\n");
    tiered.umount();
    drop(archive);
}

#[test]
fn computed_xattrs_are_neither_listed_nor_set() {
    require_mounting!();
    let tiered = with_offline_files();
    let own = tiered.path("own");
    let mut buffer = [0; 4096];
    for name in ["user.fslab.state", "user.fslab.queue"] {
        let flags = rustix::fs::XattrFlags::empty();
        let set = rustix::fs::setxattr(&own, name, b"x", flags);
        assert_eq!(set, Err(rustix::io::Errno::PERM), "{name}");
    }
    let length = rustix::fs::listxattr(&own, &mut buffer[..]).unwrap();
    let names = String::from_utf8_lossy(&buffer[..length]).into_owned();
    assert!(!names.contains("fslab"), "{names}");
    let length = rustix::fs::getxattr(&own, "user.fslab.state", &mut buffer[..]).unwrap();
    let state: serde_json::Value = serde_json::from_slice(&buffer[..length]).unwrap();
    assert_eq!((&state["state"], &state["bytes"]), (&"offline".into(), &(3 << 20).into()));
    let queue = rustix::fs::getxattr(&own, "user.fslab.queue", &mut buffer[..]);
    assert_eq!(queue, Err(rustix::io::Errno::NODATA), "only the root has a queue");
    tiered.umount();
}
