//! Tests that encoding and then decoding a tree restores it, even if files look like stored files.
//! In between, a mount must show the original content.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use fslab_layers::observe::fault::{Fault, Program};
use fslab_layers::{RandomSource, StackContext};
use fslab_sca::convert::{Conversion, Direction, Outcome, estimate};
use fslab_vfs::{
    Attr, Errno, FileKind, FileSystem, Ino, MemFs, Request, Result as FsResult, SetAttr, SetTime,
    Timestamp, XattrMode,
};
use fslab_vfs_testing::client::Client;
use fslab_vfs_testing::environment::cases;
use fslab_vfs_testing::scratch;
use proptest::prelude::{Strategy, any};
use proptest::test_runner::TestRunner;
use tempfile::TempDir;

use super::below::{mixed, random, text, write_file};

pub const LAYER: &str = "zstd:chunk=4KiB,level=1,threads=1,cache=0,pack=off";

/// A source of numbers that differ for each conversion, as in the program.
struct Numbers;

static NEXT: AtomicU64 = AtomicU64::new(1);

impl RandomSource for Numbers {
    fn draw(&self) -> u64 {
        NEXT.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

/// All properties of a file that a conversion preserves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    kind: FileKind,
    /// Hash and length of the content or of a link's target.
    content: (u32, usize),
    mode: u32,
    owner: (u32, u32),
    modified: Timestamp,
    accessed: Timestamp,
    /// The first path of the file, and the number of its names.
    links: (String, u32),
    xattrs: BTreeMap<String, Vec<u8>>,
}

pub type Tree = BTreeMap<String, Kept>;

/// Returns the properties of the root and of everything in it.
pub fn tree_of(fs: &dyn FileSystem) -> Tree {
    let (client, mut tree) = (Client::new(fs), Tree::new());
    let root = client.attr(Ino::ROOT).unwrap();
    let mut seen = HashMap::new();
    add(&client, (String::new(), root), &mut tree, &mut seen);
    tree
}

fn add(
    client: &Client<'_>,
    (path, attr): (String, Attr),
    tree: &mut Tree,
    seen: &mut HashMap<Ino, String>,
) {
    let mut kept = Kept {
        kind: attr.kind,
        content: (0, 0),
        mode: attr.permissions.bits(),
        owner: (attr.uid, attr.gid),
        modified: attr.modified,
        accessed: attr.accessed,
        links: (seen.entry(attr.ino).or_insert_with(|| path.clone()).clone(), 1),
        xattrs: BTreeMap::new(),
    };
    for name in client.listxattr(attr.ino).unwrap() {
        // The root keeps the layer's xattr of the whole tree, which is not part of the comparison.
        if name != "user.fslab.sca.tree" || !path.is_empty() {
            let value = client.getxattr(attr.ino, &name).unwrap();
            kept.xattrs.insert(name, value);
        }
    }
    match attr.kind {
        FileKind::Regular => {
            let content = client.contents(attr.ino).unwrap();
            kept.content = (crc32c::crc32c(&content), content.len());
            kept.links.1 = attr.links;
        }
        FileKind::Symlink => {
            let target = client.readlink(attr.ino).unwrap();
            kept.content = (crc32c::crc32c(target.as_encoded_bytes()), target.len());
        }
        _ => {
            for name in client.names(attr.ino).unwrap() {
                let found = client.lookup(attr.ino, &name).unwrap();
                add(client, (format!("{path}/{name}"), found), tree, seen);
            }
        }
    }
    tree.insert(path, kept);
}

/// Returns the tree as a mount shows it, without the layer's xattrs.
fn shown(tree: &Tree) -> Tree {
    let mut tree = tree.clone();
    for kept in tree.values_mut() {
        kept.xattrs.retain(|name, _| !name.starts_with("user.fslab.sca"));
    }
    tree
}

/// Panics with the first difference.
pub fn expect_same(found: &Tree, expected: &Tree, when: &str) {
    let names = |tree: &Tree| tree.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(found), names(expected), "{when}");
    for (path, kept) in expected {
        assert_eq!(&found[path], kept, "{when}: {path}");
    }
}

pub fn expect_mount_shows(below: &Arc<dyn FileSystem>, expected: &Tree, when: &str) {
    let layer = crate::layer(LAYER);
    let fs = layer.build(Arc::clone(below)).unwrap();
    expect_same(&tree_of(&*fs), &shown(expected), when);
    fs.shutdown().unwrap();
}

pub fn convert(
    below: &Arc<dyn FileSystem>,
    direction: Direction,
) -> Result<Vec<(String, String)>, String> {
    let layer = crate::layer(LAYER);
    let around = StackContext::default().with_random_source(Arc::new(Numbers));
    let conversion = Conversion::over(Arc::clone(below), &layer, direction, &around);
    let told = Mutex::new(Vec::new());
    conversion
        .map_err(|error| error.to_string())?
        .run(1, &|path, outcome| {
            let outcome = match outcome {
                Outcome::Kept(why) => why.to_string(),
                Outcome::Converted { .. } => "converted".to_owned(),
                Outcome::Already => "already".to_owned(),
                Outcome::Lookalike => "lookalike".to_owned(),
            };
            told.lock().unwrap().push((path.display().to_string(), outcome));
        })
        .map_err(|error| error.to_string())?;
    Ok(told.into_inner().unwrap())
}

/// Converts a tree and asserts that every file is converted.
pub fn convert_all(below: &Arc<dyn FileSystem>, direction: Direction, when: &str) {
    let told = convert(below, direction).unwrap_or_else(|error| panic!("{when}: {error}"));
    let is_done = |what: &str| matches!(what, "converted" | "already" | "lookalike");
    let kept: Vec<_> = told.iter().filter(|(_, what)| !is_done(what)).collect();
    assert!(kept.is_empty(), "{when}: {kept:?}");
}

/// Returns a stored file that another layer wrote, and its size xattr.
pub fn stored(content: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let memory: Arc<dyn FileSystem> = Arc::new(MemFs::default());
    let fs = crate::layer(LAYER).build(Arc::clone(&memory)).unwrap();
    write_file(&*fs, "file", content);
    fs.shutdown().unwrap();
    let client = Client::new(&*memory);
    let ino = client.lookup(Ino::ROOT, "file").unwrap().ino;
    (client.contents(ino).unwrap(), client.getxattr(ino, "user.fslab.sca").unwrap())
}

/// Returns the encoded form of a file that looks like a stored file: content and xattrs.
fn encoded_lookalike() -> (Vec<u8>, BTreeMap<String, Vec<u8>>) {
    let memory: Arc<dyn FileSystem> = Arc::new(MemFs::default());
    let (content, mark) = stored(&text(9000));
    let client = Client::new(&*memory);
    let ino = client.file(Ino::ROOT, "file", &content).unwrap();
    client.setxattr(ino, "user.fslab.sca", &mark).unwrap();
    convert_all(&memory, Direction::Encode, "a tree of its own");
    let ino = client.lookup(Ino::ROOT, "file").unwrap().ino;
    let names = client.listxattr(ino).unwrap();
    let xattrs = names.into_iter().map(|name| {
        let value = client.getxattr(ino, &name).unwrap();
        (name, value)
    });
    (client.contents(ino).unwrap(), xattrs.collect())
}

/// Number of kinds of files that `make` makes. Each kind has its own content and xattrs.
const KINDS: usize = 14;

fn make(kind: usize, size: usize) -> (Vec<u8>, BTreeMap<String, Vec<u8>>) {
    let named = |value: Vec<u8>| BTreeMap::from([("user.fslab.sca".to_owned(), value)]);
    match kind % KINDS {
        0 => (Vec::new(), BTreeMap::new()),
        1 => (text(size), BTreeMap::new()),
        2 => (random(size as u64, size), BTreeMap::new()),
        3 => ([vec![0; 8192], mixed(size), vec![0; 8192]].concat(), BTreeMap::new()),
        4 => (golden(size), BTreeMap::new()),
        5 => (stored(&mixed(size)).0, BTreeMap::new()),
        6 => {
            let (content, mark) = stored(&mixed(size));
            (content, named(mark))
        }
        // A stored file in a stored file.
        7 => (stored(&stored(&text(size)).0).0, BTreeMap::new()),
        8 => encoded_lookalike(),
        // The size xattr of another file, and an invalid one.
        9 => (text(size), named(stored(&text(100)).1)),
        10 => (mixed(size), named(b"anything".to_vec())),
        // A file of a later version, and one with a damaged head.
        11 => {
            let mut content = stored(&text(size)).0;
            content[72] = 2;
            (content, BTreeMap::new())
        }
        12 => {
            let (mut content, mark) = stored(&text(size));
            let head = content.len().min(1200);
            content[..head].fill(0xEE);
            (content, named(mark))
        }
        _ => ([vec![0; 1024], text(size)].concat(), BTreeMap::new()),
    }
}

fn golden(number: usize) -> Vec<u8> {
    let mut paths: Vec<_> =
        fs::read_dir("tests/golden").unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert_eq!(paths.len(), 10);
    fs::read(&paths[number % paths.len()]).unwrap()
}

/// A file to make: kind, size, directory, mode, owner, number of xattrs, number of additional
/// names, times.
type Item = (usize, usize, usize, u32, u32, usize, usize, u32);

fn items(most: usize) -> impl Strategy<Value = Vec<Item>> {
    let size = 1..20_000_usize;
    let item = (0..KINDS, size, 0..4_usize, 0..0o10000_u32, 0..3_u32, 0..3_usize, 0..3_usize);
    let item = (item, any::<u32>()).prop_map(|((a, b, c, d, e, f, g), h)| (a, b, c, d, e, f, g, h));
    proptest::collection::vec(item, 1..most)
}

fn touch(client: &Client<'_>, ino: Ino, time: u32) {
    let at = |seconds| Some(SetTime::To(Timestamp { seconds, nanoseconds: time % 1_000_000_000 }));
    // The access time lies in the future, so that reading the file does not change it.
    let (accessed, modified) = (at(5_000_000_000 + i64::from(time)), at(i64::from(time) / 4));
    client.set(ino, &SetAttr { accessed, modified, ..SetAttr::default() }).unwrap();
}

fn make_tree(fs: &dyn FileSystem, items: &[Item]) {
    let client = Client::new(fs);
    let mut directories = vec![Ino::ROOT];
    for name in ["a", "b", "c"] {
        let parent = directories[directories.len() / 2];
        directories.push(client.mkdir(parent, name).unwrap());
    }
    for (number, (kind, size, directory, mode, owner, xattrs, names, time)) in
        items.iter().enumerate()
    {
        let (content, own) = make(*kind, *size);
        let ino = client.file(directories[*directory], format!("f{number}"), &content).unwrap();
        for (name, value) in own {
            client.setxattr(ino, &name, &value).unwrap();
        }
        for xattr in 0..*xattrs {
            client.setxattr(ino, &format!("user.x{xattr}"), &random(7, xattr * 40)).unwrap();
        }
        for name in 0..*names {
            let parent = directories[(directory + name) % directories.len()];
            client.link(ino, parent, format!("f{number}-{name}")).unwrap();
        }
        if number % 5 == 0 {
            let link = client.symlink(directories[*directory], format!("s{number}"), "anywhere");
            touch(&client, link.unwrap().ino, *time);
        }
        client.chown(ino, *owner, *owner).unwrap();
        client.chmod(ino, *mode).unwrap();
        // Capabilities are set last, because a chown or a write removes them.
        if *xattrs == 1 {
            client.setxattr(ino, "security.capability", &random(9, 20)).unwrap();
            client.setxattr(ino, "trusted.x", &random(8, 50)).unwrap();
        }
        if *xattrs == 2 {
            client.setxattr(ino, "system.posix_acl_access", &acl()).unwrap();
        }
        touch(&client, ino, *time);
    }
    for (number, directory) in (0..).zip(directories) {
        touch(&client, directory, 1_000_000_000 + number);
    }
}

/// Returns an ACL that lets user 5 read and write.
fn acl() -> Vec<u8> {
    const NOBODY: u32 = u32::MAX;
    let entries = [(1, 6, NOBODY), (2, 6, 5), (4, 4, NOBODY), (0x10, 6, NOBODY), (0x20, 0, NOBODY)];
    let entry = |(tag, permissions, id): (u16, u16, u32)| {
        [&tag.to_le_bytes()[..], &permissions.to_le_bytes(), &id.to_le_bytes()].concat()
    };
    [&2_u32.to_le_bytes()[..], &entries.map(entry).concat()].concat()
}

fn tree(items: &[Item]) -> Arc<dyn FileSystem> {
    let memory: Arc<dyn FileSystem> = Arc::new(MemFs::default());
    make_tree(&*memory, items);
    memory
}

#[test]
fn encoding_and_decoding_any_tree_leaves_it_as_it_was() {
    let checked = TestRunner::new(cases(64)).run(&items(12), |items| {
        let below = tree(&items);
        let before = tree_of(&*below);
        for round in 0..2 {
            for again in ["", " again"] {
                convert_all(&below, Direction::Encode, &format!("round {round}, encoded{again}"));
            }
            expect_mount_shows(&below, &before, &format!("round {round}, encoded"));
            for again in ["", " again"] {
                convert_all(&below, Direction::Decode, &format!("round {round}, decoded{again}"));
                expect_same(&tree_of(&*below), &before, &format!("round {round}, decoded{again}"));
            }
        }
        Ok(())
    });
    checked.unwrap_or_else(|error| panic!("{error}"));
}

/// Makes a tree with one file of each kind that matters to a resumed run.
fn small_tree() -> Arc<dyn FileSystem> {
    tree(&[
        (1, 9000, 0, 0o640, 1, 1, 0, 77),
        (4, 3, 0, 0o444, 0, 0, 0, 1_000_000_777),
        (6, 5000, 1, 0o4755, 2, 1, 2, 1_200_000_777),
        (8, 1, 2, 0o600, 0, 2, 0, 1_300_000_777),
        (2, 3000, 2, 0o600, 0, 0, 1, 1_400_000_777),
    ])
}

/// Converts a tree. From the modifying call with this number on, all modifying calls fail, as if
/// the run was killed.
fn killed_at(below: &Arc<dyn FileSystem>, direction: Direction, call: u64) -> bool {
    let calls =
        "write|rename|link|unlink|setxattr|removexattr|setattr|create|fsync|fsyncdir|syncfs";
    let program = Program::parse("killed", &format!("{calls} nth {call}.. error EIO"), 0).unwrap();
    let fault = Arc::new(Fault::new(Arc::clone(below), program, Box::new(|_, _| Ok(()))));
    let faulty: Arc<dyn FileSystem> = fault.clone();
    convert(&faulty, direction).ok();
    fault.counts().iter().any(|rule| rule.struck > 0)
}

/// Whether the xattr of the tree marks all its files as plain.
fn is_plain(below: &Arc<dyn FileSystem>) -> bool {
    let tree = Client::new(&**below).getxattr(Ino::ROOT, "user.fslab.sca.tree");
    tree.is_ok_and(|value| value[1] & 2 != 0)
}

/// Returns the tree with which the killed run begins, and the state of the tree with all files
/// plain, which must be restored in the end.
fn beginnings(direction: Direction) -> (Arc<dyn FileSystem>, Tree) {
    let below = small_tree();
    let before = tree_of(&*below);
    if direction == Direction::Decode {
        convert_all(&below, Direction::Encode, "at first");
    }
    (below, before)
}

#[test]
fn conversion_killed_at_any_call_resumes_to_the_same_tree() {
    for direction in [Direction::Encode, Direction::Decode] {
        let mut calls = 0;
        for call in 1.. {
            let (below, mut before) = beginnings(direction);
            if !killed_at(&below, direction, call) {
                break;
            }
            calls = call;
            let when = format!("{direction:?}, killed at call {call}");
            // Once all files are encoded, the tree is a lower directory. A file that looks like a
            // stored file would then be treated as one.
            if direction == Direction::Encode && (is_plain(&below) || call == 1) {
                before = with_another_lookalike(&below, before);
            }
            convert_all(&below, direction, &format!("{when}, resumed"));
            if direction == Direction::Encode {
                expect_mount_shows(&below, &before, &format!("{when}, resumed"));
                convert_all(&below, Direction::Decode, &format!("{when}, decoded"));
            }
            expect_same(&tree_of(&*below), &before, &when);
        }
        eprintln!("{direction:?}: killed at {calls} calls");
        assert!(calls > 60, "{direction:?}: only {calls} calls");
    }
}

/// Adds a stored file of another tree before the run is resumed.
fn with_another_lookalike(below: &Arc<dyn FileSystem>, mut before: Tree) -> Tree {
    let client = Client::new(&**below);
    let root = client.attr(Ino::ROOT).unwrap();
    let ino = client.file(Ino::ROOT, "late", &golden(7)).unwrap();
    touch(&client, ino, 1_500_000_777);
    let (accessed, modified) = (Some(SetTime::To(root.accessed)), Some(SetTime::To(root.modified)));
    client.set(Ino::ROOT, &SetAttr { accessed, modified, ..SetAttr::default() }).unwrap();
    before.insert("/late".to_owned(), tree_of(&**below)["/late"].clone());
    before
}

/// A mount turns a tree into a lower directory. Later runs do not change the content that the mount
/// has shown.
#[test]
fn contents_mounted_after_a_killed_conversion_do_not_change_later() {
    for direction in [Direction::Encode, Direction::Decode] {
        for call in 1.. {
            let (below, before) = beginnings(direction);
            if !killed_at(&below, direction, call) {
                break;
            }
            let when = format!("{direction:?}, killed at call {call}");
            let has_encoded = converted(&below, &before);
            let was_plain = is_plain(&below);
            let seen = mounted(&below);
            // Before the first file is encoded, a mount would decode everything that looks like a
            // stored file.
            let is_fixed = match direction {
                Direction::Encode => has_encoded,
                Direction::Decode => !was_plain,
            };
            if is_fixed {
                assert_eq!(seen, contents(&before), "{when}, mounted");
            }
            convert_all(&below, direction, &format!("{when}, resumed"));
            if direction == Direction::Encode {
                assert_eq!(mounted(&below), seen, "{when}, resumed");
                convert_all(&below, Direction::Decode, &format!("{when}, decoded"));
            }
            if direction == Direction::Encode || !was_plain {
                assert_eq!(contents(&tree_of(&*below)), seen, "{when}, decoded");
            }
        }
    }
}

/// Whether the bytes of any file differ from before.
fn converted(below: &Arc<dyn FileSystem>, before: &Tree) -> bool {
    let (found, before) = (contents(&tree_of(&**below)), contents(before));
    found.iter().any(|(path, content)| before.get(path).is_some_and(|before| before != content))
}

fn contents(tree: &Tree) -> BTreeMap<String, (u32, usize)> {
    tree.iter().map(|(path, kept)| (path.clone(), kept.content)).collect()
}

/// Returns the content of the original files as a mount shows it.
fn mounted(below: &Arc<dyn FileSystem>) -> BTreeMap<String, (u32, usize)> {
    let fs = crate::layer(LAYER).build(Arc::clone(below)).unwrap();
    let mut found = contents(&tree_of(&*fs));
    fs.shutdown().unwrap();
    found.retain(|path, _| !path.contains(".fslab-convert-"));
    found
}

/// A file system that limits the total size of a file's xattrs.
struct LittleRoom(MemFs);

const ROOM: usize = 400;

impl FileSystem for LittleRoom {
    fn fallback(&self) -> Option<&dyn FileSystem> {
        Some(&self.0)
    }

    fn setxattr(
        &self,
        request: &Request,
        ino: Ino,
        name: &OsStr,
        value: &[u8],
        mode: XattrMode,
    ) -> FsResult<()> {
        let mut taken = name.len() + value.len();
        for other in self.0.listxattr(request, ino)?.split(|byte| *byte == 0) {
            let other = OsStr::new(std::str::from_utf8(other).unwrap());
            if !other.is_empty() && other != name {
                taken += other.len() + self.0.getxattr(request, ino, other)?.len();
            }
        }
        if taken > ROOM && ino != Ino::ROOT {
            return Err(Errno::NOSPC.into());
        }
        self.0.setxattr(request, ino, name, value, mode)
    }
}

/// If there is no room for all xattrs, the size xattr is dropped and the user's xattrs are kept. A
/// file that looks like a stored file needs an fslab xattr; if there is no room, the file is not
/// converted.
#[test]
fn user_xattrs_take_precedence_over_the_size_xattr() {
    let below: Arc<dyn FileSystem> = Arc::new(LittleRoom(MemFs::default()));
    let client = Client::new(&*below);
    for (name, content) in [("text", text(9000)), ("golden", golden(5))] {
        let ino = client.file(Ino::ROOT, name, &content).unwrap();
        client.setxattr(ino, "user.full", &random(3, ROOM - "user.full".len())).unwrap();
        touch(&client, ino, 1_000_000_777);
    }
    let before = tree_of(&*below);
    let told = convert(&below, Direction::Encode).unwrap();
    let of = |name: &str| told.iter().find(|(path, _)| path == name).unwrap().1.clone();
    assert_eq!(of("text"), "converted");
    assert!(of("golden").contains("user.fslab.sca.kept"), "{told:?}");
    let fs = crate::layer(LAYER).build(Arc::clone(&below)).unwrap();
    assert_eq!(tree_of(&*fs)["/text"], before["/text"]);
    drop(fs);
    convert_all(&below, Direction::Decode, "decoded");
    assert_eq!(tree_of(&*below)["/text"], before["/text"]);
}

/// Without xattrs it is unknown whether a file that looks like a stored file is one.
#[test]
fn files_that_look_stored_are_not_encoded_without_xattrs() {
    let memory: Arc<dyn FileSystem> = Arc::new(MemFs::default());
    write_file(&*memory, "golden", &golden(2));
    write_file(&*memory, "text", &text(5000));
    let rules = "setxattr|getxattr|listxattr error EOPNOTSUPP";
    let program = Program::parse("no xattrs", rules, 0).unwrap();
    let below: Arc<dyn FileSystem> =
        Arc::new(Fault::new(Arc::clone(&memory), program, Box::new(|_, _| Ok(()))));
    for _ in 0..2 {
        let told = convert(&below, Direction::Encode).unwrap();
        let (_, why) = told.iter().find(|(path, _)| path == "golden").unwrap();
        assert!(why.contains("the tree has no xattr to record"), "{told:?}");
    }
    let client = Client::new(&*memory);
    let golden_file = client.lookup(Ino::ROOT, "golden").unwrap().ino;
    assert!(client.contents(golden_file).unwrap() == golden(2));
    let text_file = client.lookup(Ino::ROOT, "text").unwrap().ino;
    assert!(client.contents(text_file).unwrap() != text(5000));
}

#[test]
fn an_estimate_counts_files_that_only_look_stored() {
    let scratch = TempDir::new_in(scratch::folder(env!("CARGO_TARGET_TMPDIR"))).unwrap();
    fs::write(scratch.path().join("golden"), golden(3)).unwrap();
    fs::write(scratch.path().join("text"), text(5000)).unwrap();
    let layer = crate::layer(LAYER);
    let expected = estimate(scratch.path(), &layer, &|_| ()).unwrap();
    assert_eq!((expected.files, expected.already), (2, 0));
    let around = StackContext::default().with_random_source(Arc::new(Numbers));
    let conversion = Conversion::open(scratch.path(), &layer, Direction::Encode, &around);
    conversion.unwrap().run(1, &|_, _| ()).unwrap();
    let expected = estimate(scratch.path(), &layer, &|_| ()).unwrap();
    assert_eq!((expected.files, expected.already), (0, 2));
}

/// In a subdirectory of a lower directory, a conversion distinguishes stored files by the rule of
/// the whole lower directory.
#[test]
fn subdirectory_is_converted_by_the_rule_of_its_lower_directory() {
    let scratch = TempDir::new_in(scratch::folder(env!("CARGO_TARGET_TMPDIR"))).unwrap();
    let (tree, part) = (scratch.path().to_owned(), scratch.path().join("part"));
    fs::create_dir(&part).unwrap();
    let layer = crate::layer(LAYER);
    let convert = |root: &Path, direction| {
        let around = StackContext::default().with_random_source(Arc::new(Numbers));
        Conversion::open(root, &layer, direction, &around)
            .map(|conversion| {
                conversion.run(1, &|path, what| {
                    assert!(!matches!(what, Outcome::Kept(_)), "{}: {what:?}", path.display());
                })
            })
            .map(Result::unwrap)
    };
    fs::write(part.join("golden"), golden(3)).unwrap();
    convert(&tree, Direction::Encode).unwrap();
    let encoded = fs::read(part.join("golden")).unwrap();
    assert!(encoded != golden(3));
    convert(&part, Direction::Encode).unwrap();
    assert!(fs::read(part.join("golden")).unwrap() == encoded, "encoded twice");
    convert(&part, Direction::Decode).unwrap();
    assert!(fs::read(part.join("golden")).unwrap() == golden(3));
    // In a lower directory the file remains marked as foreign until the whole directory is decoded.
    let mut value = [0; 128];
    let mut mark = || rustix::fs::getxattr(part.join("golden"), "user.fslab.sca", &mut value[..]);
    assert!(mark().is_ok());
    convert(&tree, Direction::Decode).unwrap();
    assert!(mark().is_err());
    assert!(fs::read(part.join("golden")).unwrap() == golden(3));
    let refused = convert(&part, Direction::Encode).err().unwrap().to_string();
    assert!(refused.contains("the surrounding tree"), "{refused}");
}
