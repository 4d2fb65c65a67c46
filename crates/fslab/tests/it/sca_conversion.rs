//! Tests `fslab sca encode` and `decode` when they are killed, and while programs use the files.

use fslab_vfs_testing::scratch;
use std::collections::BTreeMap;
use std::fs::{self, File, Permissions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use fslab_vfs::{FileKind, FileSystem, Ino};
use fslab_vfs_testing::client::Client;
use fslab_vfs_testing::environment::{number, seed};
use fslab_vfs_testing::skip::skip;
use fslab_vfs_testing::unused::until_unused;
use tempfile::TempDir;

use crate::support::{fslab, run};

const LAYER: &str = "zstd:chunk=16KiB,level=1";

/// Number of killed conversions; `FSLAB_CONVERSION_KILLS` replaces it.
const KILLS: u64 = 12;

/// The properties of a file that a conversion must preserve.
#[derive(Debug, PartialEq, Eq)]
struct Kept {
    content: Vec<u8>,
    mode: u32,
    owner: (u32, u32),
    modified: (i64, i64),
    links: u64,
    xattr: Vec<u8>,
}

type Tree = BTreeMap<String, Kept>;

#[test]
fn killed_conversions_lose_no_data_and_are_resumed() {
    let (seed, kills) = (seed(), number("FSLAB_CONVERSION_KILLS").unwrap_or(KILLS));
    let scratch = TempDir::new_in(scratch::folder(env!("CARGO_TARGET_TMPDIR"))).unwrap();
    let root = scratch.path();
    let expected = make_tree(root);
    until_unused(root).unwrap();
    let (mut direction, mut draws, mut killed) = ("encode", seed, [0_u64; 2]);
    let mut duration = Duration::from_millis(200);
    while killed.iter().sum::<u64>() < kills {
        draws += 1;
        let delay = duration.mul_f64(f64::from(drawn(draws)) / f64::from(u32::MAX));
        let start = Instant::now();
        if killed_after(delay, direction, root) {
            killed[usize::from(direction == "decode")] += 1;
            is_all_there(root, &expected, &format!("{direction}, killed after {delay:?}"));
            continue;
        }
        // The kills are spread over the duration of one complete conversion.
        duration = start.elapsed();
        is_converted(root, &expected, direction);
        direction = if direction == "encode" { "decode" } else { "encode" };
    }
    eprintln!("{} encodings and {} decodings were killed", killed[0], killed[1]);
    let (code, message) = run(&convert(direction, root));
    assert_eq!(code, 0, "{direction}: {message}");
    is_converted(root, &expected, direction);
}

/// Returns a pseudo-random number that depends only on `number` (the first step of SplitMix64).
fn drawn(number: u64) -> u32 {
    let number = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 32) as u32
}

fn convert<'a>(direction: &'a str, root: &'a Path) -> Vec<&'a str> {
    let layer = if direction == "encode" { &["-l", LAYER][..] } else { &[] };
    [&["sca", direction, root.to_str().unwrap(), "--threads", "2"], layer].concat()
}

/// Starts a conversion and kills it after a delay. Returns whether it was still running.
fn killed_after(delay: Duration, direction: &str, root: &Path) -> bool {
    let mut command = fslab(&convert(direction, root));
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let start = Instant::now();
    while start.elapsed() < delay && child.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_micros(200));
    }
    child.kill().unwrap();
    let ended = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.code().is_none_or(|code| code == 0), "{direction}: {said}");
    ended.status.code().is_none()
}

/// Makes a tree of files of many sizes, in directories. Some have two names, some have holes.
fn make_tree(root: &Path) -> Tree {
    for number in 0..60_u64 {
        let directory = root.join(format!("directory-{}", number % 5));
        fs::create_dir_all(&directory).unwrap();
        let path = directory.join(format!("file-{number}"));
        let file = File::create_new(&path).unwrap();
        let hole = if number % 7 == 3 { 100_000 } else { 0 };
        let length = 1 + (number * number * 7919) as usize % 150_000;
        let text = format!("{number}: it was the season of light, ").into_bytes();
        let content: Vec<u8> = text.into_iter().cycle().take(length).collect();
        file.write_all_at(&content, hole).unwrap();
        let (flags, value) = (rustix::fs::XattrFlags::empty(), number.to_le_bytes());
        rustix::fs::fsetxattr(&file, "user.kept", &value, flags).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600 + number as u32 % 64)).unwrap();
        let time = SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000 + number, 123);
        file.set_modified(time).unwrap();
        if number % 4 == 1 {
            let other = root.join(format!("directory-{}/link-{number}", number % 3));
            fs::create_dir_all(other.parent().unwrap()).unwrap();
            fs::hard_link(&path, other).unwrap();
        }
    }
    plain_tree(root)
}

/// Reads a tree directly, without a layer.
fn plain_tree(root: &Path) -> Tree {
    let mut tree = Tree::new();
    for path in files(root) {
        let found = fs::metadata(root.join(&path)).unwrap();
        let mut value = [0; 64];
        let length = rustix::fs::getxattr(root.join(&path), "user.kept", &mut value[..]).unwrap();
        let kept = Kept {
            content: fs::read(root.join(&path)).unwrap(),
            mode: found.mode(),
            owner: (found.uid(), found.gid()),
            modified: (found.mtime(), found.mtime_nsec()),
            links: found.nlink(),
            xattr: value[..length].to_vec(),
        };
        tree.insert(path, kept);
    }
    tree
}

/// Returns the paths of all files below a root.
fn files(root: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for directory in fs::read_dir(root).unwrap() {
        let directory = directory.unwrap().path();
        // A killed conversion leaves the lock file.
        if fslab_vfs::is_lock_file_name(directory.file_name().unwrap()) {
            continue;
        }
        let name = directory.file_name().unwrap().to_str().unwrap().to_owned();
        for file in fs::read_dir(&directory).unwrap() {
            found.push(format!("{name}/{}", file.unwrap().file_name().to_str().unwrap()));
        }
    }
    found
}

/// Checks the content of all files through a layer, which serves files that are not encoded
/// unchanged.
fn is_all_there(root: &Path, expected: &Tree, when: &str) {
    let stack = crate::support::sca_stack(&format!("{LAYER} / {}", root.display()));
    let fs = stack.build().unwrap();
    let client = Client::new(&*fs);
    for (path, kept) in expected {
        let found = content(&client, path);
        let found = found.unwrap_or_else(|error| panic!("{when}: {path}: {error}"));
        assert!(found == kept.content, "{when}: {path} contains other bytes");
    }
    drop(client);
    fs.shutdown().unwrap();
}

fn content(client: &Client<'_>, path: &str) -> fslab_vfs::Result<Vec<u8>> {
    let mut ino = Ino::ROOT;
    for name in path.split('/') {
        let attr = client.lookup(ino, name)?;
        if attr.kind == FileKind::Regular {
            return client.contents(attr.ino);
        }
        ino = attr.ino;
    }
    Err(fslab_vfs::Errno::ISDIR.into())
}

/// Checks that all files are converted and have kept their properties, and that there are no other
/// files.
fn is_converted(root: &Path, expected: &Tree, direction: &str) {
    let found = plain_tree(root);
    let names = |tree: &Tree| tree.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&found), names(expected), "{direction}");
    for (path, kept) in expected {
        let found = &found[path];
        let of =
            |kept: &Kept| (kept.mode, kept.owner, kept.modified, kept.links, kept.xattr.clone());
        assert_eq!(of(found), of(kept), "{direction}: {path}");
        let is_plain = found.content == kept.content;
        assert_eq!(is_plain, direction == "decode", "{direction}: {path}");
    }
    is_all_there(root, expected, direction);
}

/// Maps a file for writing, closes it and reports this. Then writes to the mapping on request.
const WRITES_TO_A_MAP: &str = "
import mmap, sys
with open(sys.argv[1], 'r+b') as file:
    mapped = mmap.mmap(file.fileno(), 0)
print('mapped', flush=True)
sys.stdin.readline()
mapped[100:106] = b'mapped'
mapped.flush()
mapped.close()
";

/// A program can map a file for writing, close the file, and still write to the mapping. A
/// conversion must not touch such a file.
#[test]
fn file_mapped_for_writing_is_not_converted() {
    let scratch = TempDir::new_in(scratch::folder(env!("CARGO_TARGET_TMPDIR"))).unwrap();
    let tree = scratch.path().join("tree");
    fs::create_dir(&tree).unwrap();
    let path = tree.join("mapped");
    let mut content = vec![b'a'; 50_000];
    fs::write(&path, &content).unwrap();
    let mut command = Command::new("python3");
    command.args(["-c", WRITES_TO_A_MAP]).arg(&path).stdin(Stdio::piped()).stdout(Stdio::piped());
    let Ok(mut mapper) = command.spawn() else {
        skip("file mapped for writing is not converted", "no python3");
        return;
    };
    let mut line = String::new();
    BufReader::new(mapper.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "mapped\n");
    let (code, message) = run(&convert_all(&tree));
    let kept = fs::read(&path).unwrap() == content;
    mapper.stdin.take().unwrap().write_all(b"go on\n").unwrap();
    assert!(mapper.wait().unwrap().success());
    assert_eq!((code, kept), (1, true), "{message}");
    content[100..106].copy_from_slice(b"mapped");
    assert!(fs::read(&path).unwrap() == content);
    let (code, message) = run(&convert_all(&tree));
    assert_eq!(code, 0, "{message}");
    assert!(fs::read(&path).unwrap() != content, "the file was not encoded");
}

fn convert_all(tree: &Path) -> Vec<&str> {
    convert("encode", tree)
}
