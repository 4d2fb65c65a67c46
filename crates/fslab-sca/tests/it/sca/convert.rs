//! Tests that encoding and decoding a tree in place preserves all data and attributes in spite of
//! interruptions.

use fslab_vfs_testing::scratch;
use std::collections::BTreeMap;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use fslab_layers::StackContext;
use fslab_layers::observe::fault::{Fault, Program};
use fslab_sca::convert::{Conversion, Direction, Outcome, Why, estimate};
use fslab_vfs::{
    FileSystem, HostFs, HostOptions, Ino, MemFs, OpenMode, Request, Result, WriteOptions,
};
use fslab_vfs_testing::client::Client;
use fslab_vfs_testing::unused::until_unused;
use tempfile::TempDir;

use super::below::{Below, mixed, random, read_file, text, write_file};

const LAYER: &str = "zstd:chunk=16KiB,level=1,threads=1";

fn convert(lower: &Arc<dyn FileSystem>, direction: Direction) -> Result<Vec<(String, Outcome)>> {
    let layer = crate::layer(LAYER);
    let around = StackContext::default();
    let conversion = Conversion::over(Arc::clone(lower), &layer, direction, &around);
    let Ok(conversion) = conversion else { return Err(fslab_vfs::Errno::IO.into()) };
    run(&conversion)
}

fn run(conversion: &Conversion) -> Result<Vec<(String, Outcome)>> {
    let told = Mutex::new(Vec::new());
    conversion.run(2, &|path, outcome| {
        let outcome = match outcome {
            Outcome::Converted { before_bytes, after_bytes } => {
                Outcome::Converted { before_bytes: *before_bytes, after_bytes: *after_bytes }
            }
            Outcome::Already => Outcome::Already,
            Outcome::Lookalike => Outcome::Lookalike,
            Outcome::Kept(Why::InUse) => Outcome::Kept(Why::InUse),
            Outcome::Kept(Why::NamesOutside { outside, links }) => {
                Outcome::Kept(Why::NamesOutside { outside: *outside, links: *links })
            }
            Outcome::Kept(_) => Outcome::Kept(Why::Changed),
        };
        told.lock().unwrap().push((path.display().to_string(), outcome));
    })?;
    Ok(told.into_inner().unwrap())
}

fn on_host(root: &Path, direction: Direction) -> Vec<(String, Outcome)> {
    let layer = crate::layer(LAYER);
    run(&Conversion::open(root, &layer, direction, &StackContext::default()).unwrap()).unwrap()
}

/// Preserved attributes of a file: mode, owner, modification time, link count and an xattr.
type Kept = (u32, u32, u32, i64, i64, u64, Vec<u8>);

fn kept(path: &Path) -> Kept {
    let found = fs::symlink_metadata(path).unwrap();
    let mut value = [0; 64];
    let xattr = rustix::fs::getxattr(path, "user.kept", &mut value[..]).unwrap_or(0);
    let (seconds, nanoseconds) = (found.mtime(), found.mtime_nsec());
    let value = value[..xattr].to_vec();
    (found.mode(), found.uid(), found.gid(), seconds, nanoseconds, found.nlink(), value)
}

fn files(root: &Path) -> BTreeMap<&'static str, Kept> {
    NAMES.iter().map(|name| (*name, kept(&root.join(name)))).collect()
}

const NAMES: [&str; 6] = ["text", "program", "deep/er/mixed", "sparse", "deep/linked", "link"];

fn make_tree(root: &Path) {
    fs::create_dir_all(root.join("deep/er")).unwrap();
    fs::write(root.join("text"), text(300_000)).unwrap();
    fs::write(root.join("program"), random(5, 100_000)).unwrap();
    fs::write(root.join("empty"), b"").unwrap();
    fs::write(root.join("deep/er/mixed"), mixed(500_000)).unwrap();
    fs::write(root.join("deep/linked"), text(50_000)).unwrap();
    fs::hard_link(root.join("deep/linked"), root.join("link")).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", root.join("symlink")).unwrap();
    let sparse = File::create(root.join("sparse")).unwrap();
    sparse.write_all_at(&text(5000), 3 << 20).unwrap();
    sparse.set_len(64 << 20).unwrap();
    fs::set_permissions(root.join("program"), Permissions::from_mode(0o4755)).unwrap();
    let xattr = |name: &str| {
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::setxattr(root.join(name), "user.kept", name.as_bytes(), flags).unwrap();
    };
    ["text", "link"].into_iter().for_each(xattr);
    let old = std::time::UNIX_EPOCH + std::time::Duration::new(1_000_000_000, 123_456_789);
    for name in NAMES {
        File::options().write(true).open(root.join(name)).unwrap().set_modified(old).unwrap();
    }
}

#[test]
fn encoding_and_decoding_a_tree_keeps_files_and_attributes() {
    let scratch = TempDir::new_in(scratch::folder(env!("CARGO_TARGET_TMPDIR"))).unwrap();
    let root = scratch.path();
    make_tree(root);
    let before = files(root);
    until_unused(root).unwrap();
    let expected = estimate(root, &crate::layer(LAYER), &|_| ()).unwrap();
    assert_eq!((expected.already, expected.unreadable), (1, 0));
    let inodes: std::collections::HashSet<_> =
        NAMES.iter().map(|name| fs::metadata(root.join(name)).unwrap().ino()).collect();
    assert_eq!(expected.files, inodes.len() as u64, "each once");
    let told = on_host(root, Direction::Encode);
    let (mut plain_bytes, mut encoded_bytes) = (0, 0);
    for (path, outcome) in &told {
        match outcome {
            Outcome::Converted { before_bytes, after_bytes } => {
                plain_bytes += before_bytes;
                encoded_bytes += after_bytes;
            }
            Outcome::Already => assert_eq!(path, "empty"),
            Outcome::Lookalike => panic!("{path} does not look like a stored file"),
            Outcome::Kept(why) => panic!("{path}: {why}"),
        }
    }
    assert!(encoded_bytes < plain_bytes / 2, "{encoded_bytes} of {plain_bytes}");
    let guessed = expected.after_bytes;
    assert!((encoded_bytes / 2..encoded_bytes * 2).contains(&guessed), "{guessed} {encoded_bytes}");
    assert_eq!(files(root), before);
    assert_eq!(fs::read_link(root.join("symlink")).unwrap(), Path::new("/etc/passwd"));
    let stack = format!("{LAYER} / {}", root.display());
    let mounted = crate::stack(&stack).build().unwrap();
    assert!(read_file(&*mounted, "text").unwrap() == text(300_000));
    assert!(read_file(&*mounted, "program").unwrap() == random(5, 100_000));
    assert!(read_file(&*mounted, "link").unwrap() == text(50_000));
    assert!(read_file(&*mounted, "sparse").unwrap().len() == 64 << 20);
    mounted.shutdown().unwrap();
    drop(mounted);
    assert!(fs::metadata(root.join("sparse")).unwrap().blocks() < 64);
    until_unused(root).unwrap();
    assert!(
        on_host(root, Direction::Encode).iter().all(|(_, one)| matches!(one, Outcome::Already))
    );
    // Files may have been copied without their xattrs.
    rustix::fs::removexattr(root.join("text"), "user.fslab.sca").unwrap();
    until_unused(root).unwrap();
    let told = on_host(root, Direction::Decode);
    assert!(told.iter().all(|(_, one)| !matches!(one, Outcome::Kept(_))), "{told:?}");
    assert_eq!(files(root), before);
    assert!(fs::read(root.join("deep/er/mixed")).unwrap() == mixed(500_000));
    assert!(fs::read(root.join("text")).unwrap() == text(300_000));
    assert!(fs::metadata(root.join("sparse")).unwrap().blocks() < 64);
    let mut left: Vec<_> =
        fs::read_dir(root).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    // Ignores the lock file of the mount in between.
    left.retain(|name| !fslab_vfs::is_lock_file_name(name));
    assert_eq!(left.len(), 7, "{left:?}");
}

/// In a tree that only a layer has written, a file of zeros is one that lost its writes in a crash.
/// A decoded tree may contain files that begin with zeros on purpose.
#[test]
fn decoded_files_starting_with_zeros_are_not_treated_as_lost() {
    let memory: Arc<dyn FileSystem> = Arc::new(MemFs::default());
    let layer = crate::layer(LAYER);
    let content = [vec![0; 5000], text(5000)].concat();
    let fs = layer.build(Arc::clone(&memory)).unwrap();
    write_file(&*fs, "image", &content);
    fs.shutdown().unwrap();
    drop(fs);
    for direction in [Direction::Decode, Direction::Encode, Direction::Decode] {
        let told = convert(&memory, direction).unwrap();
        assert!(matches!(told[..], [(_, Outcome::Converted { .. })]), "{told:?}");
        let fs = layer.build(Arc::clone(&memory)).unwrap();
        assert!(read_file(&*fs, "image").unwrap() == content, "{direction:?}");
        fs.shutdown().unwrap();
    }
    assert!(read_file(&*memory, "image").unwrap() == content);
}

/// Makes a tree of one file whose content is a stored file.
fn tree_of_a_nested_file() -> (Arc<dyn FileSystem>, Vec<u8>) {
    let layer = crate::layer(LAYER);
    let store = |content: &[u8]| {
        let memory: Arc<dyn FileSystem> = Arc::new(MemFs::default());
        let fs = layer.build(Arc::clone(&memory)).unwrap();
        write_file(&*fs, "file", content);
        fs.shutdown().unwrap();
        memory
    };
    let content = read_file(&*store(&text(50_000)), "file").unwrap();
    (store(&content), content)
}

/// A stored file that was encoded like a plain file is restored exactly by decoding. The next run,
/// a mount and a second encoding still treat it as a plain file.
#[test]
fn decoded_stored_file_content_is_not_decoded_again() {
    let (memory, content) = tree_of_a_nested_file();
    for run in 0..2 {
        let told = convert(&memory, Direction::Decode).unwrap();
        let is_converted = matches!(told[..], [(_, Outcome::Converted { .. })]);
        assert_eq!(is_converted, run == 0, "run {run}: {told:?}");
        assert!(read_file(&*memory, "file").unwrap() == content, "run {run}");
    }
    let layer = crate::layer(LAYER);
    for direction in [Direction::Encode, Direction::Decode] {
        let fs = layer.build(Arc::clone(&memory)).unwrap();
        assert!(read_file(&*fs, "file").unwrap() == content, "before {direction:?}");
        fs.shutdown().unwrap();
        drop(fs);
        let told = convert(&memory, direction).unwrap();
        assert!(matches!(told[..], [(_, Outcome::Converted { .. })]), "{told:?}");
    }
    assert!(read_file(&*memory, "file").unwrap() == content);
}

/// Without xattrs, a restored stored file can't be marked as foreign, so the file remains encoded.
#[test]
fn nested_stored_file_stays_encoded_if_xattrs_are_unsupported() {
    let (memory, content) = tree_of_a_nested_file();
    let rule = "setxattr on .fslab-convert-* error EOPNOTSUPP";
    let program = Program::parse("no xattrs", rule, 0).unwrap();
    let fault = Fault::new(Arc::clone(&memory), program, Box::new(|_, _| Ok(())));
    let below: Arc<dyn FileSystem> = Arc::new(fault);
    for _ in 0..2 {
        let told = convert(&below, Direction::Decode).unwrap();
        assert!(matches!(told[..], [(_, Outcome::Kept(_))]), "{told:?}");
        assert_eq!(Client::new(&*memory).names(Ino::ROOT).unwrap(), ["file"]);
    }
    let fs = crate::layer(LAYER).build(memory).unwrap();
    assert!(read_file(&*fs, "file").unwrap() == content);
    fs.shutdown().unwrap();
}

#[test]
fn file_open_for_writing_is_not_converted() {
    let scratch = TempDir::new_in(scratch::folder(env!("CARGO_TARGET_TMPDIR"))).unwrap();
    let root = scratch.path();
    make_tree(root);
    let writer = File::options().append(true).open(root.join("text")).unwrap();
    let told = on_host(root, Direction::Encode);
    let (_, outcome) = told.iter().find(|(path, _)| path == "text").unwrap();
    assert!(matches!(outcome, Outcome::Kept(Why::InUse)), "{outcome:?}");
    assert!(fs::read(root.join("text")).unwrap() == text(300_000));
    drop(writer);
    fs::hard_link(root.join("text"), scratch.path().join("deep/again")).unwrap();
    let outside = TempDir::new_in(scratch::folder(env!("CARGO_TARGET_TMPDIR"))).unwrap();
    fs::hard_link(root.join("text"), outside.path().join("outside")).unwrap();
    until_unused(root).unwrap();
    let told = on_host(root, Direction::Encode);
    let kept = told.iter().filter(|(_, outcome)| {
        matches!(outcome, Outcome::Kept(Why::NamesOutside { outside: 1, links: 3 }))
    });
    assert_eq!(kept.count(), 1, "{told:?}");
}

/// A file system that changes a file once, after its copy is complete.
struct Meddler {
    inner: Arc<dyn FileSystem>,
    is_done: AtomicBool,
}

impl FileSystem for Meddler {
    fn fallback(&self) -> Option<&dyn FileSystem> {
        Some(&*self.inner)
    }

    fn listxattr(&self, request: &Request, ino: Ino) -> Result<Vec<u8>> {
        if !self.is_done.swap(true, Ordering::Relaxed) {
            let handle = self.inner.open(request, ino, OpenMode::READ_WRITE)?.handle;
            let options = WriteOptions::default();
            self.inner.write(request, ino, handle, 7, b"meddled with", options)?;
            self.inner.release(request, ino, handle)?;
        }
        self.inner.listxattr(request, ino)
    }
}

#[test]
fn write_during_a_conversion_is_not_lost() {
    let memory: Arc<dyn FileSystem> = Arc::new(MemFs::default());
    write_file(&*memory, "file", &text(100_000));
    let inner = Arc::clone(&memory);
    let meddler: Arc<dyn FileSystem> = Arc::new(Meddler { inner, is_done: AtomicBool::new(false) });
    let told = convert(&meddler, Direction::Encode).unwrap();
    assert!(matches!(told[..], [(_, Outcome::Kept(Why::Changed))]), "{told:?}");
    let mut expected = text(100_000);
    expected[7..19].copy_from_slice(b"meddled with");
    assert!(read_file(&*memory, "file").unwrap() == expected);
    assert_eq!(Client::new(&*memory).names(Ino::ROOT).unwrap(), ["file"]);
    convert(&meddler, Direction::Encode).unwrap();
    let layer = crate::layer(LAYER);
    assert!(read_file(&*layer.build(memory).unwrap(), "file").unwrap() == expected);
}

/// If any call fails, each name still has its content, and the next run completes the conversion.
#[test]
fn interrupted_conversion_is_resumed_by_the_next_run() {
    for direction in [Direction::Encode, Direction::Decode] {
        let calls = (1..).take_while(|call| is_interrupted_on_host((direction, *call), direction));
        assert!(calls.count() > 20, "{direction:?}");
    }
}

/// If any call fails, a run of the other direction restores the names that the files had. That run
/// may be interrupted as well, and then be resumed or undone.
#[test]
fn interrupted_conversion_is_undone_by_a_run_of_the_other_direction() {
    for [one, other] in
        [[Direction::Encode, Direction::Decode], [Direction::Decode, Direction::Encode]]
    {
        let calls = (1..).take_while(|call| is_interrupted_on_host((one, *call), other)).count();
        assert!(calls > 20, "{one:?}");
        // The last calls of a run give the names of one file to another file.
        for first in (1..=calls as u64).rev().take(20).step_by(3) {
            for last in [one, other] {
                let runs = |second: u64| [(one, first), (other, second)];
                let memory = || Arc::new(MemFs::default());
                let seconds =
                    (1..).take_while(|second| is_interrupted(memory(), &runs(*second), last));
                assert!(seconds.count() > 4, "{one:?}, call {first}");
            }
        }
    }
}

/// Like [`is_interrupted`], for one run over a directory. Unlike a file system in memory, a
/// directory refuses inodes that were forgotten.
fn is_interrupted_on_host(run: (Direction, u64), last: Direction) -> bool {
    let scratch = TempDir::new_in(scratch::folder(env!("CARGO_TARGET_TMPDIR"))).unwrap();
    let root = scratch.path().join("tree");
    fs::create_dir(&root).unwrap();
    let host = HostFs::open(&root, &HostOptions::default()).unwrap();
    is_interrupted(Arc::new(host), &[run], last)
}

/// Makes one call of each of these runs fail, and then converts the tree in the direction `last`.
/// Returns whether the last of these calls was made.
fn is_interrupted(lower: Arc<dyn FileSystem>, runs: &[(Direction, u64)], last: Direction) -> bool {
    let client = Client::new(&*lower);
    let contents = [("a", mixed(60_000)), ("b", text(30_000))];
    for (name, content) in &contents {
        write_file(&*lower, name, content);
    }
    let ino = client.lookup(Ino::ROOT, "b").unwrap().ino;
    client.link(ino, Ino::ROOT, "c").unwrap();
    client.link(ino, Ino::ROOT, "d").unwrap();
    if runs[0].0 == Direction::Decode {
        convert(&lower, Direction::Encode).unwrap();
    }
    let layer = crate::layer(LAYER);
    let check = |when: &str| {
        let fs = layer.build(Arc::clone(&lower)).unwrap();
        for (name, expected) in
            [("a", &contents[0].1), ("b", &contents[1].1), ("c", &contents[1].1)]
        {
            let found = read_file(&*fs, name).unwrap();
            assert!(&found == expected, "{when} {runs:?}: {name}");
        }
        fs.shutdown().unwrap();
    };
    let mut struck = false;
    for (direction, call) in runs {
        struck = with_a_failed_call(&lower, *direction, *call);
        check("after");
    }
    let told = convert(&lower, last).unwrap();
    let failed = told.iter().find(|(_, outcome)| matches!(outcome, Outcome::Kept(_)));
    assert!(failed.is_none(), "{runs:?}, {last:?}: {failed:?}");
    check(&format!("{last:?} after"));
    assert_eq!(client.names(Ino::ROOT).unwrap().len(), 4, "{runs:?}, {last:?}");
    let linked = ["b", "c", "d"].map(|name| client.lookup(Ino::ROOT, name).unwrap());
    let is_one = linked.iter().all(|attr| (attr.ino, attr.links) == (linked[0].ino, 3));
    assert!(is_one, "{runs:?}, {last:?}");
    struck
}

/// Converts a tree while one call fails; returns whether that call was made.
fn with_a_failed_call(memory: &Arc<dyn FileSystem>, direction: Direction, call: u64) -> bool {
    let rule = format!("write|rename|link|unlink|setxattr|setattr nth {call} error EIO");
    let program = Program::parse("interrupted", &rule, 0).unwrap();
    let fault = Arc::new(Fault::new(Arc::clone(memory), program, Box::new(|_, _| Ok(()))));
    let below: Arc<dyn FileSystem> = fault.clone();
    convert(&below, direction).ok();
    fault.counts().iter().any(|rule| rule.struck > 0)
}

/// A file that a mount would refuse is not plain. Encoding it would turn its damage into content
/// with correct checksums, and its remaining frames could no longer be found.
#[test]
fn stored_file_without_a_head_is_not_converted() {
    for junk in [0xEE, 0] {
        let below = Below::new();
        let fs = below.mount(LAYER);
        write_file(&*fs, "file", &mixed(20_000));
        fs.shutdown().unwrap();
        drop(fs);
        write_file(&*below.fs, "plain", &text(5000));
        below.overwrite("file", 0, &[junk; 1200]);
        let before = below.bytes("file");
        for direction in [Direction::Encode, Direction::Decode] {
            let told = convert(&below.fs, direction).unwrap();
            let of_file = told.iter().find(|(path, _)| path == "file").unwrap();
            assert!(matches!(of_file.1, Outcome::Kept(_)), "{direction:?}: {told:?}");
            assert!(below.bytes("file") == before, "{direction:?}");
        }
    }
}
