//! Tests that decoding an encoded tree restores it exactly: for an ordinary user, after kills, and
//! if plain files look like stored files.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use fslab_vfs::{FileSystem, Ino};
use fslab_vfs_testing::client::Client;
use fslab_vfs_testing::environment::{number, seed};
use fslab_vfs_testing::scratch;
use fslab_vfs_testing::skip::skip;
use fslab_vfs_testing::unused::until_unused;
use tempfile::TempDir;

use crate::support::{copy_program, fslab, program, run};

/// The ID of a user without an account.
const USER: u32 = 54_321;

const GOLDEN: &str = "../fslab-sca/tests/golden";

/// The properties of a file or directory that a conversion must preserve.
#[derive(Debug, PartialEq, Eq)]
struct Kept {
    content: Vec<u8>,
    mode: u32,
    owner: (u32, u32),
    modified: (i64, i64),
    links: u64,
    xattrs: BTreeMap<String, Vec<u8>>,
}

fn tree(root: &Path) -> BTreeMap<PathBuf, Kept> {
    let mut tree = BTreeMap::new();
    add(root, &mut tree);
    tree
}

fn add(path: &Path, tree: &mut BTreeMap<PathBuf, Kept>) {
    let found = fs::symlink_metadata(path).unwrap();
    let mut kept = Kept {
        content: Vec::new(),
        mode: found.mode(),
        owner: (found.uid(), found.gid()),
        modified: (found.mtime(), found.mtime_nsec()),
        links: if found.is_dir() { 0 } else { found.nlink() },
        xattrs: BTreeMap::new(),
    };
    if found.is_symlink() {
        kept.content = fs::read_link(path).unwrap().into_os_string().into_encoded_bytes();
        tree.insert(path.to_owned(), kept);
        return;
    }
    let mut names = [0; 4096];
    let length = rustix::fs::listxattr(path, &mut names[..]).unwrap();
    for name in names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let name = String::from_utf8(name.to_vec()).unwrap();
        let mut value = [0; 4096];
        let length = rustix::fs::getxattr(path, &name, &mut value[..]).unwrap();
        if name != "user.fslab.sca.tree" {
            kept.xattrs.insert(name, value[..length].to_vec());
        }
    }
    if found.is_dir() {
        for entry in fs::read_dir(path).unwrap().map(Result::unwrap) {
            if !fslab_vfs::is_lock_file_name(&entry.file_name()) {
                add(&entry.path(), tree);
            }
        }
    } else {
        kept.content = fs::read(path).unwrap();
    }
    tree.insert(path.to_owned(), kept);
}

#[track_caller]
fn expect_same(root: &Path, before: &BTreeMap<PathBuf, Kept>, when: &str) {
    let found = tree(root);
    assert_eq!(found.keys().collect::<Vec<_>>(), before.keys().collect::<Vec<_>>(), "{when}");
    for (path, kept) in before {
        let other = &found[path];
        assert!(other.content == kept.content, "{when}: {} contains other bytes", path.display());
        let of =
            |kept: &Kept| (kept.mode, kept.owner, kept.modified, kept.links, kept.xattrs.clone());
        assert_eq!(of(other), of(kept), "{when}: {}", path.display());
    }
}

/// Makes files of many kinds, including the stored files in fslab-sca's golden directory.
fn make_tree(root: &Path) {
    fs::create_dir_all(root.join("deep/er")).unwrap();
    for number in 0..12_usize {
        let text = format!("{number}: it was the spring of hope, ").into_bytes();
        let content: Vec<u8> = text.into_iter().cycle().take(number * number * 900).collect();
        fs::write(root.join(format!("deep/file-{number}")), content).unwrap();
    }
    fs::hard_link(root.join("deep/file-7"), root.join("deep/er/linked")).unwrap();
    symlink("deep/file-7", root.join("symlink")).unwrap();
    for entry in fs::read_dir(GOLDEN).unwrap().map(Result::unwrap) {
        fs::copy(entry.path(), root.join("deep").join(entry.file_name())).unwrap();
    }
    fs::hard_link(root.join("deep/sca-1-gzip"), root.join("linked-golden")).unwrap();
    let modes =
        [("sca-1-zstd", 0o444), ("sca-1-gzip", 0o400), ("file-3", 0o444), ("file-4", 0o4711)];
    for (name, mode) in modes {
        fs::set_permissions(root.join("deep").join(name), Permissions::from_mode(mode)).unwrap();
    }
    let set = |name: &str, xattr: &str, value: &[u8]| {
        let (path, flags) = (root.join("deep").join(name), rustix::fs::XattrFlags::empty());
        rustix::fs::setxattr(path, xattr, value, flags).unwrap();
    };
    set("file-3", "user.kept", b"kept");
    set("sca-1-zstd", "user.kept", b"kept");
    // An ACL with which user 5 may read and write.
    let acl = [
        2, 0, 0, 0, 1, 0, 6, 0, 255, 255, 255, 255, 2, 0, 6, 0, 5, 0, 0, 0, 4, 0, 4, 0, 255, 255,
        255, 255, 16, 0, 6, 0, 255, 255, 255, 255, 32, 0, 0, 0, 255, 255, 255, 255,
    ];
    set("file-5", "system.posix_acl_access", &acl);
    set("sca-1-lz4", "system.posix_acl_access", &acl);
}

/// Gives all files to one owner, and gives each file a different time.
fn finish(path: &Path, owner: Option<u32>, number: &mut u32) {
    let found = fs::symlink_metadata(path).unwrap();
    if found.is_symlink() {
        return;
    }
    if found.is_dir() {
        for entry in fs::read_dir(path).unwrap().map(Result::unwrap) {
            finish(&entry.path(), owner, number);
        }
    }
    if owner.is_some() {
        chown(path, owner, owner).unwrap();
        fs::set_permissions(path, found.permissions()).unwrap();
    }
    *number += 1;
    let time = SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000, 123_456_789 + *number);
    let file = fs::File::open(path).unwrap();
    file.set_times(fs::FileTimes::new().set_accessed(time).set_modified(time)).unwrap();
}

/// Checks that a mount shows the golden files with their own bytes, not decoded.
fn expect_golden_files(root: &Path) {
    let stack = crate::support::sca_stack(&format!("zstd / {}", root.display()));
    let built = stack.build().unwrap();
    let client = Client::new(&*built);
    let deep = client.lookup(Ino::ROOT, "deep").unwrap().ino;
    let mut count = 0;
    for entry in fs::read_dir(GOLDEN).unwrap().map(Result::unwrap) {
        let ino = client.lookup(deep, entry.file_name()).unwrap().ino;
        let is_same = client.contents(ino).unwrap() == fs::read(entry.path()).unwrap();
        assert!(is_same, "{}", entry.file_name().display());
        count += 1;
    }
    assert_eq!(count, 10);
    built.shutdown().unwrap();
}

#[test]
fn ordinary_users_convert_their_own_trees() {
    let name = "ordinary users convert their own trees";
    if !rustix::process::geteuid().is_root() {
        return skip(name, "needs root to become another user");
    }
    if program("setpriv").is_none() {
        return skip(name, "no setpriv");
    }
    let scratch = TempDir::new().unwrap();
    fs::set_permissions(scratch.path(), Permissions::from_mode(0o755)).unwrap();
    let (root, program) = (scratch.path().join("tree"), scratch.path().join("fslab"));
    fs::create_dir(&root).unwrap();
    copy_program(env!("CARGO_BIN_EXE_fslab").as_ref(), &program);
    make_tree(&root);
    finish(&root, Some(USER), &mut 0);
    let convert = |direction: &str| {
        let output = Command::new("setpriv")
            .args([&format!("--reuid={USER}"), &format!("--regid={USER}"), "--clear-groups"])
            .arg(&program)
            .args(["sca", direction])
            .arg(&root)
            .output()
            .unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.code().unwrap(), String::from_utf8(said).unwrap())
    };
    let before = tree(&root);
    for direction in ["encode", "decode"] {
        let (code, said) = convert(direction);
        assert_eq!(code, 0, "{direction}: {said}");
        if direction == "encode" {
            let encoded = tree(&root);
            let kept = before.iter().filter(|(path, kept)| encoded[*path].content == kept.content);
            // The root, two directories, the symbolic link and the empty file are unchanged.
            assert_eq!(kept.count(), 5, "{said}");
        }
    }
    expect_same(&root, &before, "decoded");
    let closed = root.join("closed");
    fs::write(root.join("of-root"), "of root").unwrap();
    fs::create_dir(&closed).unwrap();
    fs::set_permissions(&closed, Permissions::from_mode(0o700)).unwrap();
    finish(&root.join("of-root"), None, &mut 100);
    let before = tree(&root);
    for direction in ["encode", "decode"] {
        let (code, said) = convert(direction);
        assert_eq!(code, 1, "{direction}: {said}");
        let lines = |what: &str| said.lines().filter(|line| line.contains(what)).count();
        assert_eq!(lines("closed: not converted: Permission denied"), 1, "{said}");
        let line = "of-root: not converted: it belongs to user 0 and group 0";
        assert_eq!(lines(line), usize::from(direction == "encode"), "{said}");
        if direction == "encode" {
            expect_golden_files(&root);
        }
    }
    // Compare only the content, because the tree could not be decoded completely.
    let found = tree(&root);
    for (path, kept) in &before {
        assert!(found[path].content == kept.content, "{}", path.display());
    }
}

#[test]
fn decode_dry_run_counts_the_files_that_decode_converts() {
    let scratch = TempDir::new_in(scratch::folder(env!("CARGO_TARGET_TMPDIR"))).unwrap();
    let root = scratch.path().join("tree");
    fs::create_dir(&root).unwrap();
    fs::copy(golden_file(), root.join("golden")).unwrap();
    fs::write(root.join("text"), "text ".repeat(1000)).unwrap();
    fs::write(root.join("empty"), "").unwrap();
    let path = root.to_str().unwrap();
    let expect = |arguments: &[&str], lines: &[&str]| {
        let output = fslab(&[&["sca"], arguments, &[path]].concat()).output().unwrap();
        let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        let has_all = lines.iter().all(|line| said.contains(line));
        assert!(output.status.success() && has_all, "{arguments:?}: {said}");
    };
    let left = "1 file not decoded: in a decoded directory";
    expect(&["encode"], &["2 files encoded"]);
    expect(&["decode", "--dry-run"], &["2 stored files would be decoded"]);
    expect(&["decode"], &["2 files decoded"]);
    let before = tree(&root);
    expect(&["decode", "--dry-run"], &["0 stored files would be decoded", left]);
    expect_same(&root, &before, "a dry run");
    expect(&["decode"], &["0 files decoded", left]);
}

fn golden_file() -> PathBuf {
    let files = fs::read_dir(GOLDEN).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|path| path.is_file()).min().unwrap()
}

/// Number of killed conversions; `FSLAB_CONVERSION_KILLS` replaces it.
const KILLS: u64 = 8;

#[test]
fn killed_conversions_of_stored_files_are_resumed_to_the_same_tree() {
    let (seed, kills) = (seed(), number("FSLAB_CONVERSION_KILLS").unwrap_or(KILLS));
    let scratch = TempDir::new_in(scratch::folder(env!("CARGO_TARGET_TMPDIR"))).unwrap();
    let root = scratch.path().join("tree");
    fs::create_dir(&root).unwrap();
    make_tree(&root);
    finish(&root, None, &mut 0);
    let before = tree(&root);
    until_unused(&root).unwrap();
    let (mut direction, mut draws, mut killed) = ("encode", seed, 0);
    let mut duration = Duration::from_millis(200);
    while killed < kills || direction == "decode" {
        draws = draws.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let share = ((draws ^ draws >> 29) % 1000) as f64 / 1000.0;
        let start = Instant::now();
        if killed_after(duration.mul_f64(share), direction, &root) {
            killed += 1;
            continue;
        }
        duration = start.elapsed();
        if direction == "decode" {
            expect_same(&root, &before, &format!("after {killed} kills"));
        } else {
            expect_golden_files(&root);
        }
        until_unused(&root).unwrap();
        direction = if direction == "encode" { "decode" } else { "encode" };
    }
    let (code, said) = run(&["sca", "decode", root.to_str().unwrap()]);
    assert_eq!(code, 0, "{said}");
    expect_same(&root, &before, "decoded again");
}

/// Starts a conversion and kills it after a delay. Returns whether it was still running.
fn killed_after(delay: Duration, direction: &str, root: &Path) -> bool {
    let mut command = fslab(&["sca", direction, root.to_str().unwrap(), "--threads", "2"]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(delay);
    child.kill().unwrap();
    let ended = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.code().is_none_or(|code| code == 0), "{direction}: {said}");
    ended.status.code().is_none()
}
