//! The tier of an ordinary user. The kernel denies this user access to xattrs and directories
//! without the needed permissions.

use std::ffi::OsStr;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use fslab_tier::command::{Command, Event};
use fslab_tier::stored::Marks;
use fslab_tier::{Settings, own_request};
use fslab_vfs::{
    Attr, Entry, Errno, FileSystem, Handle, Ino, MemFs, Name, OpenMode, Opened, Request, Result,
    SetAttr, XattrMode,
};
use fslab_vfs_testing::client::Client;
use parking_lot::Mutex;

use crate::bundles::expire;
use crate::marks::{OWNER, give};
use crate::opening::totals;
use crate::support::{Bench, MIB, TIER, noise, told};

const OTHER: u32 = OWNER + 1;

const READ: u32 = 4;
const WRITE: u32 = 2;
const SEARCH: u32 = 1;

type Deed = Box<dyn FnOnce() + Send>;

/// A file system as an ordinary user sees it. It calls a function when an xattr is next set.
#[derive(Default)]
struct Ordinary {
    memory: MemFs,
    at_mark: Mutex<Option<Deed>>,
}

impl Ordinary {
    fn bench() -> (Arc<Self>, Bench) {
        let lower = Arc::new(Self::default());
        give(&lower.memory, Ino::ROOT, OWNER);
        let bench = Bench::of(lower.clone(), Settings::of(TIER), Marks::Own(OWNER));
        (lower, bench)
    }

    fn check(&self, request: &Request, ino: Ino, wanted: u32) -> Result<()> {
        let attr = self.memory.getattr(request, ino, None)?;
        let bits = attr.permissions.bits();
        let granted = if attr.uid == OWNER { bits >> 6 } else { bits };
        if granted & wanted == wanted { Ok(()) } else { Err(Errno::ACCESS.into()) }
    }

    /// Gives a file or directory to a user.
    fn let_have(&self, ino: Ino, uid: u32, mode: u32) {
        Client::new(&self.memory).chmod(ino, mode).unwrap();
        give(&self.memory, ino, uid);
    }

    fn file(&self, directory: Ino, name: &str, data: &[u8], (uid, mode): (u32, u32)) -> Ino {
        let ino = Client::new(&self.memory).file(directory, name, data).unwrap();
        self.let_have(ino, uid, mode);
        ino
    }

    fn directory(&self, name: &str, (uid, mode): (u32, u32)) -> Ino {
        let ino = Client::new(&self.memory).mkdir(Ino::ROOT, name).unwrap();
        self.let_have(ino, uid, mode);
        ino
    }
}

fn is_users(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(b"user.")
}

impl FileSystem for Ordinary {
    fn fallback(&self) -> Option<&dyn FileSystem> {
        Some(&self.memory)
    }

    fn lookup(&self, request: &Request, parent: Ino, name: Name<'_>) -> Result<Entry> {
        self.check(request, parent, SEARCH)?;
        self.memory.lookup(request, parent, name)
    }

    fn opendir(&self, request: &Request, ino: Ino) -> Result<Handle> {
        self.check(request, ino, READ)?;
        self.memory.opendir(request, ino)
    }

    fn open(&self, request: &Request, ino: Ino, mode: OpenMode) -> Result<Opened> {
        self.check(request, ino, if mode.writes() { READ | WRITE } else { READ })?;
        self.memory.open(request, ino, mode)
    }

    fn setattr(
        &self,
        request: &Request,
        ino: Ino,
        handle: Option<Handle>,
        changes: &SetAttr,
    ) -> Result<Attr> {
        if self.memory.getattr(request, ino, None)?.uid != OWNER {
            return Err(Errno::PERM.into());
        }
        self.memory.setattr(request, ino, handle, changes)
    }

    fn getxattr(&self, request: &Request, ino: Ino, name: &OsStr) -> Result<Vec<u8>> {
        if is_users(name) {
            self.check(request, ino, READ)?;
        }
        self.memory.getxattr(request, ino, name)
    }

    fn setxattr(
        &self,
        request: &Request,
        ino: Ino,
        name: &OsStr,
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()> {
        if is_users(name) {
            self.check(request, ino, WRITE)?;
        }
        let deed = self.at_mark.lock().take();
        deed.into_iter().for_each(|deed| deed());
        self.memory.setxattr(request, ino, name, value, mode)
    }
}

fn permissions(bench: &Bench, ino: Ino) -> u32 {
    bench.below().attr(ino).unwrap().permissions.bits()
}

#[test]
fn files_with_any_permissions_are_released_and_recalled() {
    for mode in [0o400, 0o200, 0] {
        let (lower, bench) = Ordinary::bench();
        let data = noise(64, MIB);
        let ino = lower.file(Ino::ROOT, "file", &data, (OWNER, mode));
        bench.archive(ino, "file").unwrap();
        assert!(bench.release(ino, "file").unwrap().bytes > 0);
        let paths = vec![b"file".to_vec()];
        let recalled = told(&bench, &Command::Recall { paths, range: None, rate: 0 });
        assert!(matches!(&recalled[..], [Event::Done { .. }]), "{mode:o}: {recalled:?}");
        assert_eq!(permissions(&bench, ino), mode);
        lower.let_have(ino, OWNER, 0o600);
        assert!(bench.client().contents(ino).unwrap() == data, "{mode:o}");
        assert_eq!(bench.offline_blocks(ino), [0_u64; 0], "{mode:o}");
    }
}

#[test]
fn offline_file_that_became_read_only_is_readable() {
    let (lower, bench) = Ordinary::bench();
    let data = noise(65, MIB);
    let ino = lower.file(Ino::ROOT, "file", &data, (OWNER, 0o644));
    bench.archive(ino, "file").unwrap();
    assert!(bench.release(ino, "file").unwrap().bytes > 0);
    let client = bench.client();
    client.chmod(ino, 0o444).unwrap();
    assert!(client.contents(ino).unwrap() == data);
    assert_eq!((permissions(&bench, ino), bench.offline_blocks(ino)), (0o444, vec![]));
}

/// Archiving adds permissions for the owner temporarily. A caller that requests the attributes
/// meanwhile waits until the permissions are restored.
#[test]
fn temporary_owner_permissions_are_never_shown() {
    let (lower, bench) = Ordinary::bench();
    let ino = lower.file(Ino::ROOT, "file", &noise(66, MIB), (OWNER, 0o400));
    let (fs, looking) = (Arc::clone(&bench.fs), Arc::new(Mutex::new(None)));
    let thread = Arc::clone(&looking);
    *lower.at_mark.lock() = Some(Box::new(move || {
        let (done, is_done) = mpsc::channel();
        *thread.lock() = Some(std::thread::spawn(move || {
            let found = Client::new(&*fs).attr(ino).unwrap();
            // The send fails only if the test no longer waits for the message.
            done.send(()).unwrap_or_default();
            found.permissions.bits()
        }));
        is_done.recv_timeout(Duration::from_millis(200)).unwrap_or_default();
    }));
    bench.archive(ino, "file").unwrap();
    let found = looking.lock().take().unwrap().join().unwrap();
    assert_eq!(found, 0o400);
}

/// The tree contains files of other users, with various permissions for the owner of the tree.
#[test]
fn files_and_directories_of_other_users_do_not_interfere() {
    let (lower, bench) = Ordinary::bench();
    lower.file(Ino::ROOT, "a private one", b"theirs", (OTHER, 0o600));
    let listed = lower.directory("b listed", (OTHER, 0o744));
    lower.file(listed, "file", b"theirs", (OTHER, 0o644));
    lower.directory("lost+found", (OTHER, 0o700));
    let own = lower.file(Ino::ROOT, "own", &noise(67, MIB), (OWNER, 0o000));
    let paths = vec![Vec::new()];
    let archived = told(&bench, &Command::Archive { paths, rate: 0, bundled: Some(0) });
    let is_right = matches!(
        &archived[..],
        [Event::Problem { what }, Event::Done { path, .. }]
            if what.contains("belongs to another user") && path == "own"
    );
    assert!(is_right, "{archived:?}");
    let scanned = bench.tier.scan(&own_request()).unwrap();
    assert_eq!((scanned.archived, scanned.unneeded, scanned.damaged.len()), (1, 0, 0));
    bench.tier.archive_tree(&own_request()).unwrap();
    assert_eq!(totals(&bench, "[[rule]]\naction = 'release'\n"), (0, 1));
    assert_eq!(permissions(&bench, own), 0);
    bench.client().unlink(Ino::ROOT, "own").unwrap();
    assert_eq!(expire(&bench).objects, 1);
}

/// A scan can't visit the files in this directory, but they may still exist.
#[test]
fn files_in_a_now_inaccessible_directory_keep_their_objects() {
    let (lower, bench) = Ordinary::bench();
    let directory = lower.directory("shared", (OWNER, 0o700));
    let data = noise(68, MIB);
    let ino = lower.file(directory, "file", &data, (OWNER, 0o600));
    bench.archive(ino, "shared/file").unwrap();
    bench.release(ino, "shared/file").unwrap();
    lower.let_have(directory, OTHER, 0o700);
    assert_eq!(bench.tier.scan(&own_request()).unwrap().unneeded, 0);
    assert_eq!(expire(&bench).objects, 0);
    lower.let_have(directory, OWNER, 0o700);
    assert!(bench.client().contents(ino).unwrap() == data);
}

/// No scan has seen the file at its new path.
#[test]
fn file_moved_into_a_now_inaccessible_directory_keeps_its_object() {
    let (lower, bench) = Ordinary::bench();
    let directory = lower.directory("shared", (OWNER, 0o700));
    let data = noise(71, MIB);
    let ino = lower.file(Ino::ROOT, "file", &data, (OWNER, 0o600));
    bench.archive(ino, "file").unwrap();
    bench.release(ino, "file").unwrap();
    bench.client().rename(Ino::ROOT, "file", directory, "file").unwrap();
    lower.let_have(directory, OTHER, 0o700);
    assert_eq!(bench.tier.scan(&own_request()).unwrap().unneeded, 0);
    assert_eq!(expire(&bench).objects, 0);
    lower.let_have(directory, OWNER, 0o700);
    assert!(bench.client().contents(ino).unwrap() == data);
}

/// The tier's user may be unable to read the residency of such a file, and its new owner can change
/// the residency. So any object that the file referred to is kept.
#[test]
fn a_file_that_was_given_to_another_user_keeps_its_object() {
    for mode in [0o600, 0o644] {
        let (lower, bench) = Ordinary::bench();
        let directory = lower.directory("shared", (OWNER, 0o755));
        let data = noise(69, MIB);
        let ino = lower.file(directory, "file", &data, (OWNER, mode));
        bench.archive(ino, "shared/file").unwrap();
        bench.release(ino, "shared/file").unwrap();
        lower.let_have(ino, OTHER, mode);
        let scanned = bench.tier.scan(&own_request()).unwrap();
        assert_eq!((scanned.unneeded, scanned.unknown), (0, 0), "{mode:o}: {scanned:?}");
        assert_eq!(expire(&bench).objects, 0, "{mode:o}");
        lower.let_have(ino, OWNER, mode);
        assert!(bench.client().contents(ino).unwrap() == data, "{mode:o}");
    }
}

#[test]
fn xattrs_on_files_of_other_users_do_not_prevent_expiry() {
    let (lower, bench) = Ordinary::bench();
    let theirs = lower.file(Ino::ROOT, "theirs", b"theirs", (OTHER, 0o644));
    let name = Marks::Own(OWNER).residency_name();
    Client::new(&lower.memory).setxattr(theirs, name, b"x").unwrap();
    let own = lower.file(Ino::ROOT, "own", &noise(70, MIB), (OWNER, 0o644));
    bench.archive(own, "own").unwrap();
    bench.client().unlink(Ino::ROOT, "own").unwrap();
    assert_eq!(expire(&bench).objects, 1);
}
