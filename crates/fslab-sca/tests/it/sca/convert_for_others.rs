//! Tests of conversions of other users' trees: whatever users create there, files are never
//! confused, and no written data is lost.

use fslab_vfs_testing::scratch;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use fslab_layers::StackContext;
use fslab_sca::convert::{Conversion, Direction, Outcome};
use fslab_vfs::{
    Attr, Entry, Errno, FileSystem, HostFs, HostOptions, Ino, MemFs, Name, OpenMode, Opened,
    RenameMode, Request, Result, SetAttr, SetTime, Timestamp, XattrMode,
};
use fslab_vfs_testing::client::Client;
use fslab_vfs_testing::unused::until_unused;
use parking_lot::Mutex;
use tempfile::TempDir;

use super::below::{read_file, text, write_file};

const LAYER: &str = "zstd:chunk=16KiB,level=1,threads=1,pack=off";
const TRUSTED: &str = "trusted.fslab.convert";
const USER: &str = "user.fslab.convert";

/// Encodes a tree; returns the reported outcome of each file and the final result.
fn encode(below: &Arc<dyn FileSystem>) -> (Vec<(String, String)>, Result<()>) {
    let (layer, around) = (crate::layer(LAYER), StackContext::default());
    let conversion = Conversion::over(Arc::clone(below), &layer, Direction::Encode, &around);
    let told = Mutex::new(Vec::new());
    let ended = conversion.unwrap().run(1, &|path, outcome| {
        let outcome = match outcome {
            Outcome::Converted { .. } => "converted".to_owned(),
            Outcome::Already => "already".to_owned(),
            Outcome::Lookalike => "lookalike".to_owned(),
            Outcome::Kept(why) => why.to_string(),
        };
        told.lock().push((path.display().to_string(), outcome));
    });
    let mut told = told.into_inner();
    told.sort();
    (told, ended)
}

fn expect(told: &[(String, String)], expected: &[(&str, &str)]) {
    let told: Vec<_> = told.iter().map(|(path, what)| (path.as_str(), what.as_str())).collect();
    assert_eq!(told, expected);
}

/// Makes a file `original` with two names, and a stored file `copy` in the same directory. The copy
/// is exactly what a conversion of the original would make, except for the changes of a test.
fn original_and_copy(memory: &Arc<dyn FileSystem>) -> [Ino; 2] {
    write_file(&**memory, "original", &text(50_000));
    let layer = crate::layer(LAYER);
    let layered = layer.build(Arc::clone(memory)).unwrap();
    write_file(&*layered, "copy", &text(50_000));
    layered.shutdown().unwrap();
    let client = Client::new(&**memory);
    let files = ["original", "copy"].map(|name| client.lookup(Ino::ROOT, name).unwrap().ino);
    for ino in files {
        client.setxattr(ino, "user.kept", b"kept").unwrap();
        touch(&client, ino, 1_000_000_000);
    }
    client.link(files[0], Ino::ROOT, "other").unwrap();
    files
}

fn touch(client: &Client<'_>, ino: Ino, seconds: i64) {
    let modified = Some(SetTime::To(Timestamp { seconds, nanoseconds: 5 }));
    client.set(ino, &SetAttr { modified, ..SetAttr::default() }).unwrap();
}

fn mark(client: &Client<'_>, name: &str, [original, copy]: [Ino; 2]) {
    client.setxattr(copy, name, &original.0.to_le_bytes()).unwrap();
}

/// Checks that all names of the original still refer to one file, and the copy's names to another.
fn are_two_files(memory: &Arc<dyn FileSystem>) -> [Attr; 2] {
    let client = Client::new(&**memory);
    let [original, other, copy] =
        ["original", "other", "copy"].map(|name| client.lookup(Ino::ROOT, name).unwrap());
    assert_eq!((original.ino, original.links), (other.ino, 2));
    assert_eq!((copy.links, copy.ino != original.ino), (1, true));
    for mark in [TRUSTED, USER] {
        assert!(client.getxattr(original.ino, mark).is_err(), "{mark}");
    }
    let layer = crate::layer(LAYER);
    let layered = layer.build(Arc::clone(memory)).unwrap();
    assert!(read_file(&*layered, "original").unwrap() == text(50_000));
    layered.shutdown().unwrap();
    [original, copy]
}

/// Any user can set this mark, even to the inode of another user's file.
#[test]
fn user_xattr_mark_cannot_claim_another_users_file() {
    for (mode, owner) in [(0o666, 1002), (0o755, 1001)] {
        let memory: Arc<dyn FileSystem> = Arc::new(MemFs::default());
        let files = original_and_copy(&memory);
        let client = Client::new(&*memory);
        client.chown(files[0], 1001, 1001).unwrap();
        client.chmod(files[0], 0o755).unwrap();
        client.chown(files[1], owner, owner).unwrap();
        client.chmod(files[1], mode).unwrap();
        mark(&client, USER, files);
        let (told, ended) = encode(&memory);
        ended.unwrap();
        expect(&told, &[("copy", "already"), ("original", "converted")]);
        let [original, copy] = are_two_files(&memory);
        assert_eq!((original.uid, original.permissions.bits()), (1001, 0o755));
        assert_eq!((copy.uid, copy.permissions.bits()), (owner, mode));
    }
}

type Change = fn(&Client<'_>, [Ino; 2]);

/// Changes that a user may have made to either file since the run was interrupted.
const CHANGES: [(&str, Change); 6] = [
    ("the owner", |client, [_, copy]| {
        client.chown(copy, 7, 0).unwrap();
    }),
    ("the group", |client, [_, copy]| {
        client.chown(copy, 0, 7).unwrap();
    }),
    ("the mode", |client, [original, _]| {
        client.chmod(original, 0o600).unwrap();
    }),
    ("an xattr", |client, [original, _]| client.setxattr(original, "user.new", b"1").unwrap()),
    ("the time", |client, [_, copy]| touch(client, copy, 1_000_000_001)),
    ("the kind", |client, [_, copy]| {
        client.truncate(copy, 0).unwrap();
        let file = client.open(copy, OpenMode::READ_WRITE).unwrap();
        file.write_all(0, &text(50_000)).unwrap();
        file.close().unwrap();
        touch(client, copy, 1_000_000_000);
    }),
];

#[test]
fn copy_is_reused_only_if_it_equals_a_fresh_conversion() {
    let memory: Arc<dyn FileSystem> = Arc::new(MemFs::default());
    mark(&Client::new(&*memory), TRUSTED, original_and_copy(&memory));
    encode(&memory).1.unwrap();
    let client = Client::new(&*memory);
    let inos = ["original", "other", "copy"].map(|name| client.lookup(Ino::ROOT, name).unwrap());
    assert!(inos.iter().all(|attr| (attr.ino, attr.links) == (inos[2].ino, 3)), "{inos:?}");
    for (change, make) in CHANGES {
        let memory: Arc<dyn FileSystem> = Arc::new(MemFs::default());
        let files = original_and_copy(&memory);
        let client = Client::new(&*memory);
        mark(&client, TRUSTED, files);
        make(&client, files);
        let attributes = |ino| {
            let attr = client.attr(ino).unwrap();
            let xattrs = client.getxattr(ino, "user.new").is_ok();
            (attr.uid, attr.gid, attr.permissions, attr.modified, xattrs)
        };
        let before = files.map(attributes);
        encode(&memory).1.unwrap();
        let after = are_two_files(&memory).map(|attr| attributes(attr.ino));
        assert_eq!(after, before, "{change}");
        assert!(client.getxattr(files[1], TRUSTED).is_err(), "{change}");
    }
}

#[test]
fn copy_with_a_name_outside_the_tree_is_not_reused() {
    let scratch = TempDir::new_in(scratch::folder(env!("CARGO_TARGET_TMPDIR"))).unwrap();
    let tree = scratch.path().join("tree");
    fs::create_dir(&tree).unwrap();
    let host: Arc<dyn FileSystem> = Arc::new(HostFs::open(&tree, &HostOptions::default()).unwrap());
    let [original, _] = original_and_copy(&host);
    drop(host);
    let is_root = rustix::process::geteuid().is_root();
    let (mark, value) = (if is_root { TRUSTED } else { USER }, original.0.to_le_bytes());
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(tree.join("copy"), mark, &value, flags).unwrap();
    fs::hard_link(tree.join("copy"), scratch.path().join("outside")).unwrap();
    let layer = crate::layer(LAYER);
    let around = StackContext::default();
    let conversion = Conversion::open(&tree, &layer, Direction::Encode, &around).unwrap();
    conversion.run(1, &|_, _| ()).unwrap();
    let [original, other, copy] =
        ["original", "other", "copy"].map(|name| fs::metadata(tree.join(name)).unwrap());
    assert_eq!((original.ino(), original.nlink()), (other.ino(), 2));
    assert_eq!((copy.nlink(), copy.ino() != original.ino()), (2, true));
}

/// A file system with the rights of an ordinary user.
struct Unprivileged(Arc<dyn FileSystem>);

impl FileSystem for Unprivileged {
    fn fallback(&self) -> Option<&dyn FileSystem> {
        Some(&*self.0)
    }

    fn setxattr(
        &self,
        request: &Request,
        ino: Ino,
        name: &OsStr,
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()> {
        match name.to_str() {
            Some(TRUSTED) => Err(Errno::PERM.into()),
            _ => self.0.setxattr(request, ino, name, value, mode),
        }
    }
}

/// Conversions of trees in memory act as user 0. So in this test, the files of the ordinary user
/// belong to user 0.
#[test]
fn ordinary_user_trusts_marks_only_on_own_files() {
    let cases =
        [("own", 0, 0o640, true), ("others'", 1002, 0o640, false), ("own", 0, 0o600, false)];
    for (whose, owner, mode, is_taken_up) in cases {
        let memory: Arc<dyn FileSystem> = Arc::new(MemFs::default());
        let files = original_and_copy(&memory);
        let client = Client::new(&*memory);
        client.chmod(files[0], 0o640).unwrap();
        client.chmod(files[1], mode).unwrap();
        client.chown(files[1], owner, 0).unwrap();
        mark(&client, USER, files);
        let below: Arc<dyn FileSystem> = Arc::new(Unprivileged(Arc::clone(&memory)));
        encode(&below).1.unwrap();
        let names = ["original", "copy"].map(|name| client.lookup(Ino::ROOT, name).unwrap().ino);
        assert_eq!(names[0] == names[1], is_taken_up, "{whose} file, {mode:o}");
        let is_marked = client.getxattr(names[1], USER).is_ok();
        assert_eq!(is_marked, owner != 0, "{whose} file, {mode:o}");
    }
}

#[test]
fn hard_links_of_others_are_not_converted_without_trusted_xattrs() {
    let memory: Arc<dyn FileSystem> = Arc::new(MemFs::default());
    write_file(&*memory, "one", &text(50_000));
    let client = Client::new(&*memory);
    let ino = client.lookup(Ino::ROOT, "one").unwrap().ino;
    client.link(ino, Ino::ROOT, "two").unwrap();
    client.chown(ino, 1001, 1001).unwrap();
    let below: Arc<dyn FileSystem> = Arc::new(Unprivileged(Arc::clone(&memory)));
    let (told, ended) = encode(&below);
    ended.unwrap();
    let why = "it has several names and belongs to another user; converting it needs trusted \
               xattrs, which can't be set";
    expect(&told, &[("one", why)]);
    assert!(read_file(&*memory, "two").unwrap() == text(50_000));
}

/// A file system in which a process writes to the original just after the copy got the original's
/// name. If `fails_then` is set, all later renames fail.
struct WrittenToAfterTrade {
    inner: HostFs,
    root: PathBuf,
    is_done: AtomicBool,
    fails_then: bool,
}

impl FileSystem for WrittenToAfterTrade {
    fn fallback(&self) -> Option<&dyn FileSystem> {
        Some(&self.inner)
    }

    fn rename(
        &self,
        request: &Request,
        parent: Ino,
        name: Name<'_>,
        new_parent: Ino,
        new_name: Name<'_>,
        mode: RenameMode,
    ) -> Result<()> {
        let is_done = self.is_done.swap(true, Ordering::Relaxed);
        if is_done && self.fails_then {
            return Err(Errno::IO.into());
        }
        self.inner.rename(request, parent, name, new_parent, new_name, mode)?;
        if !is_done {
            let path = self.root.join(new_name.as_os_str());
            let opened = File::options().append(true).custom_flags(NONBLOCK).open(path);
            // If leases are supported, this open fails instead of waiting for the lease to end.
            if let Ok(mut file) = opened {
                std::io::Write::write_all(&mut file, b"newer").unwrap();
            }
        }
        Ok(())
    }
}

const NONBLOCK: i32 = rustix::fs::OFlags::NONBLOCK.bits() as i32;

fn written_to_after_trade(root: &Path, fails_then: bool) -> Arc<dyn FileSystem> {
    let inner = HostFs::open(root, &HostOptions::default()).unwrap();
    let is_done = AtomicBool::new(false);
    Arc::new(WrittenToAfterTrade { inner, root: root.to_owned(), is_done, fails_then })
}

fn names(root: &Path) -> Vec<String> {
    let names = fs::read_dir(root).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn an_original_that_is_written_to_is_never_removed() {
    let scratch = TempDir::new_in(scratch::folder(env!("CARGO_TARGET_TMPDIR"))).unwrap();
    let root = scratch.path();
    fs::write(root.join("file"), text(50_000)).unwrap();
    let ino = fs::metadata(root.join("file")).unwrap().ino();
    until_unused(root).unwrap();
    let (told, ended) = encode(&written_to_after_trade(root, false));
    ended.unwrap();
    expect(&told, &[("file", "it was changed during the conversion")]);
    assert_eq!(names(root), ["file"]);
    assert_eq!(fs::metadata(root.join("file")).unwrap().ino(), ino);
    until_unused(root).unwrap();
    let (told, ended) = encode(&written_to_after_trade(root, true));
    ended.unwrap();
    let left = format!(".fslab-convert-{ino:016x}");
    let why = &told[0].1;
    assert!(why.contains("the newest data is in") && why.contains(&left), "{why}");
    assert_eq!(names(root), [left.as_str(), "file"]);
    let mut newer = File::options().append(true).open(root.join(&left)).unwrap();
    std::io::Write::write_all(&mut newer, b"newer").unwrap();
    drop(newer);
    for _ in 0..2 {
        until_unused(root).unwrap();
        let (told, ended) = encode(&written_to_after_trade(root, false));
        ended.unwrap();
        let (path, why) = &told[0];
        assert!(*path == left && why.contains("rename it to its original name"), "{told:?}");
        assert!(fs::read(root.join(&left)).unwrap().starts_with(&text(50_000)));
    }
}

/// In a copied or restored tree, files have other inode numbers than those in the temporary names.
/// A temporary name then has no meaning, and its file may be the only copy of a user's data.
#[test]
fn leftover_original_is_kept_if_inode_numbers_changed() {
    let memory: Arc<dyn FileSystem> = Arc::new(MemFs::default());
    write_file(&*memory, "file", &text(50_000));
    encode(&memory).1.unwrap();
    let client = Client::new(&*memory);
    let file = client.lookup(Ino::ROOT, "file").unwrap().ino;
    let [newest, same] = [".fslab-convert-00000000deadbee0", ".fslab-convert-00000000deadbee1"];
    let part = format!(".fslab-convert-{:016x}", file.0);
    let contents = [(newest, text(50_001)), (same, text(50_000)), (&part, text(100))];
    for (name, content) in contents {
        write_file(&*memory, name, &content);
    }
    // All other attributes are equal, so that a wrong match would remove one of the files.
    for ino in [file, client.lookup(Ino::ROOT, same).unwrap().ino] {
        touch(&client, ino, 1_000_000_000);
    }
    for ino in [newest, same].map(|name| client.lookup(Ino::ROOT, name).unwrap().ino) {
        client.chmod(ino, client.attr(file).unwrap().permissions.bits()).unwrap();
    }
    for _ in 0..2 {
        let (told, ended) = encode(&memory);
        ended.unwrap();
        let (path, why) = &told[0];
        assert!(path == newest && why.contains("rename it to its original name"), "{told:?}");
        let mut names = client.names(Ino::ROOT).unwrap();
        names.sort();
        assert_eq!(names, [newest, "file"]);
        assert!(read_file(&*memory, newest).unwrap() == text(50_001));
    }
}

/// A file system that counts lookup references. One removal of an existing name fails.
struct Balance {
    inner: MemFs,
    lookups: Mutex<HashMap<Ino, i64>>,
    removals_left: AtomicUsize,
}

impl Balance {
    fn add(&self, ino: Ino, count: i64) {
        *self.lookups.lock().entry(ino).or_default() += count;
    }
}

impl FileSystem for Balance {
    fn fallback(&self) -> Option<&dyn FileSystem> {
        Some(&self.inner)
    }

    fn lookup(&self, request: &Request, parent: Ino, name: Name<'_>) -> Result<Entry> {
        self.inner.lookup(request, parent, name).inspect(|entry| self.add(entry.attr.ino, 1))
    }

    fn link(&self, request: &Request, ino: Ino, parent: Ino, name: Name<'_>) -> Result<Entry> {
        self.inner.link(request, ino, parent, name).inspect(|entry| self.add(entry.attr.ino, 1))
    }

    fn create(
        &self,
        request: &Request,
        parent: Ino,
        name: Name<'_>,
        mode: u32,
        flags: OpenMode,
    ) -> Result<(Entry, Opened)> {
        let created = self.inner.create(request, parent, name, mode, flags);
        created.inspect(|(entry, _)| self.add(entry.attr.ino, 1))
    }

    fn forget(&self, ino: Ino, lookups: u64) {
        self.add(ino, -(lookups as i64));
        self.inner.forget(ino, lookups);
    }

    fn unlink(&self, request: &Request, parent: Ino, name: Name<'_>) -> Result<()> {
        let is_there = self.inner.lookup(request, parent, name).map(|entry| entry.attr.ino);
        if let Ok(ino) = is_there {
            self.inner.forget(ino, 1);
            if self.removals_left.fetch_sub(1, Ordering::Relaxed) == 1 {
                return Err(Errno::IO.into());
            }
        }
        self.inner.unlink(request, parent, name)
    }
}

#[test]
fn file_is_reported_converted_even_if_its_original_remains() {
    for links in [1, 3] {
        let inner = MemFs::default();
        write_file(&inner, "file-1", &text(50_000));
        let client = Client::new(&inner);
        let ino = client.lookup(Ino::ROOT, "file-1").unwrap().ino;
        for number in 2..=links {
            client.link(ino, Ino::ROOT, format!("file-{number}")).unwrap();
        }
        drop(client);
        // The conversion removes one name of the original for each name of the file, and finally
        // the original's temporary name. The last removal fails.
        let (lookups, removals_left) = (Mutex::default(), AtomicUsize::new(links));
        let balance = Arc::new(Balance { inner, lookups, removals_left });
        let below: Arc<dyn FileSystem> = balance.clone();
        let (told, ended) = encode(&below);
        expect(&told, &[("file-1", "converted")]);
        assert_eq!(ended.unwrap_err().errno(), Errno::IO);
        let (told, ended) = encode(&below);
        ended.unwrap();
        expect(&told, &[("file-1", "already")]);
        assert_eq!(Client::new(&balance.inner).names(Ino::ROOT).unwrap().len(), links);
        drop(below);
        let held = balance.lookups.lock().clone();
        assert!(held.values().all(|count| *count == 0), "{held:?}");
    }
}

/// A file system that reports a path with a symbolic link for each file, as if an attacker had
/// added the link.
struct Elsewhere(HostFs, PathBuf);

impl FileSystem for Elsewhere {
    fn fallback(&self) -> Option<&dyn FileSystem> {
        Some(&self.0)
    }

    fn path_below(&self, ino: Ino) -> Option<PathBuf> {
        Some(self.1.join(self.0.path_below(ino)?.file_name()?))
    }
}

#[test]
fn conversion_does_not_follow_a_symbolic_link() {
    let scratch = TempDir::new_in(scratch::folder(env!("CARGO_TARGET_TMPDIR"))).unwrap();
    let root = scratch.path().canonicalize().unwrap();
    fs::create_dir(root.join("tree")).unwrap();
    fs::write(root.join("tree/file"), text(50_000)).unwrap();
    std::os::unix::fs::symlink("tree", root.join("link")).unwrap();
    let host = HostFs::open(&root.join("tree"), &HostOptions::default()).unwrap();
    let below: Arc<dyn FileSystem> = Arc::new(Elsewhere(host, root.join("link")));
    let (told, ended) = encode(&below);
    ended.unwrap();
    expect(&told, &[("file", "it was changed during the conversion")]);
    assert!(fs::read(root.join("tree/file")).unwrap() == text(50_000));
}

/// Returns an ACL in the kernel's format: a version, followed by entries of tag, permissions and
/// id. The entries are for the owner, user 1002, the group, the mask, and others.
fn acl() -> Vec<u8> {
    let entries =
        [(1, 7, u32::MAX), (2, 7, 1002), (4, 5, u32::MAX), (16, 7, u32::MAX), (32, 0, u32::MAX)];
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        bytes.extend(u16::to_le_bytes(tag));
        bytes.extend(u16::to_le_bytes(permissions));
        bytes.extend(u32::to_le_bytes(id));
    }
    bytes
}

/// A directory's default ACL applies to new files in it, not to existing ones.
#[test]
fn default_acl_is_not_applied_to_converted_files() {
    let memory: Arc<dyn FileSystem> = Arc::new(MemFs::default());
    write_file(&*memory, "file", &text(50_000));
    let client = Client::new(&*memory);
    let ino = client.lookup(Ino::ROOT, "file").unwrap().ino;
    client.chmod(ino, 0o640).unwrap();
    client.setxattr(Ino::ROOT, "system.posix_acl_default", &acl()).unwrap();
    let (told, ended) = encode(&memory);
    ended.unwrap();
    expect(&told, &[("file", "converted")]);
    let converted = client.lookup(Ino::ROOT, "file").unwrap();
    assert_eq!(converted.permissions.bits(), 0o640);
    assert!(client.getxattr(converted.ino, "system.posix_acl_access").is_err());
}
