//! A lower file system that fails, or is slow, in one kind of call.

use std::ffi::OsStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use fslab_tier::home::{Home, TierDescription};
use fslab_tier::own_request;
use fslab_vfs::{
    Entry, Errno, FileSystem, Handle, Ino, MemFs, Name, OpenMode, Opened, Request, Result,
    XattrMode,
};
use fslab_vfs_testing::client::Client;
use parking_lot::Mutex;

use crate::parts::{fresh_over, rebuild_in};
use crate::support::{Bench, MIB, noise};

#[derive(Default)]
struct Hindered {
    memory: MemFs,
    /// The number of xattrs that can still be written; 0 for no limit.
    marks_left: AtomicUsize,
    is_read_only: AtomicBool,
    syncs: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Hindered {
    fn must_be_writable(&self) -> Result<()> {
        match self.is_read_only.load(Ordering::SeqCst) {
            true => Err(Errno::ROFS.into()),
            false => Ok(()),
        }
    }
}

impl FileSystem for Hindered {
    fn fallback(&self) -> Option<&dyn FileSystem> {
        Some(&self.memory)
    }

    fn lookup(&self, request: &Request, parent: Ino, name: Name<'_>) -> Result<Entry> {
        if name.as_os_str() == "bad" {
            return Err(Errno::IO.into());
        }
        self.memory.lookup(request, parent, name)
    }

    fn open(&self, request: &Request, ino: Ino, mode: OpenMode) -> Result<Opened> {
        if mode.writes() {
            self.must_be_writable()?;
        }
        self.memory.open(request, ino, mode)
    }

    fn setxattr(
        &self,
        request: &Request,
        ino: Ino,
        name: &OsStr,
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()> {
        self.must_be_writable()?;
        if self.marks_left.load(Ordering::SeqCst) == 1 {
            return Err(Errno::NOSPC.into());
        }
        self.marks_left.fetch_sub(1, Ordering::SeqCst);
        self.memory.setxattr(request, ino, name, value, mode)
    }

    fn fsync(&self, request: &Request, ino: Ino, handle: Handle, data_only: bool) -> Result<()> {
        let deed = self.syncs.lock().take();
        deed.into_iter().for_each(|deed| deed());
        self.memory.fsync(request, ino, handle, data_only)
    }
}

#[test]
fn fsync_of_a_never_archived_file_blocks_nobody() {
    let lower = Arc::new(Hindered::default());
    let bench = Bench::over(lower.clone());
    let client = bench.client();
    let ino = client.file(Ino::ROOT, "file", b"plain").unwrap();
    let file = client.open(ino, OpenMode::READ_WRITE).unwrap();
    let (fs, has_waited) = (Arc::clone(&bench.fs), Arc::new(Mutex::new(true)));
    let waited = Arc::clone(&has_waited);
    *lower.syncs.lock() = Some(Box::new(move || {
        let (done, is_done) = mpsc::channel();
        std::thread::spawn(move || {
            Client::new(&*fs).attr(ino).unwrap();
            // The send fails only if the test no longer waits for the message.
            done.send(()).unwrap_or_default();
        });
        *waited.lock() = is_done.recv_timeout(Duration::from_secs(5)).is_err();
    }));
    file.fsync(false).unwrap();
    file.close().unwrap();
    assert!(!*has_waited.lock());
}

/// An unreadable name does not end the survey of its directory. Otherwise the other files in the
/// directory would be made a second time.
#[test]
fn rebuild_finds_existing_files_beside_an_unreadable_name() {
    let bench = Bench::new();
    let client = bench.client();
    bench.offline(&client, "one", &noise(1, MIB));
    bench.tier.archive_tree(&own_request()).unwrap();
    let hindered = Arc::new(Hindered::default());
    let names = Client::new(&hindered.memory);
    let neighbours = || ('a'..='z').map(String::from);
    // Puts names before and after `bad`, for any order of the listing.
    for name in neighbours().chain(["bad".to_owned()]).chain(neighbours().map(|name| name + "2")) {
        names.file(Ino::ROOT, name, b"kept").unwrap();
    }
    let lower: Arc<dyn FileSystem> = hindered.clone();
    let report = rebuild_in(&bench, &lower);
    assert_eq!((report.files, report.kept), (1, 52), "{report:?}");
    assert_eq!(report.problems.len(), 1, "{report:?}");
    assert!(report.problems[0].starts_with("bad: "), "{report:?}");
}

/// A killed rebuild leaves a file without an xattr if the file system has no unnamed temporary
/// files.
#[test]
fn rebuild_reports_a_file_without_xattr_in_an_archived_files_place() {
    let bench = Bench::new();
    let client = bench.client();
    bench.offline(&client, "file", &noise(1, MIB));
    bench.offline(&client, "other", &noise(2, MIB));
    bench.tier.archive_tree(&own_request()).unwrap();
    let lower: Arc<dyn FileSystem> = Arc::new(MemFs::default());
    Client::new(&*lower).file(Ino::ROOT, "file", b"").unwrap();
    let report = rebuild_in(&bench, &lower);
    assert_eq!((report.files, report.kept), (1, 1), "{report:?}");
    let why =
        "file: already exists and differs from the archived file; remove it and rebuild again";
    assert_eq!(report.problems, [why]);
}

/// After the failure, the stub has the size of its version again. With the size of the later
/// version, it would be treated as changed.
#[test]
fn stub_keeps_its_version_if_updating_it_to_a_later_one_fails() {
    let bench = Bench::new();
    let client = bench.client();
    let ino = client.file(Ino::ROOT, "f", &noise(3, 2 * MIB)).unwrap();
    client.link(ino, Ino::ROOT, "g").unwrap();
    bench.archive(ino, "f").unwrap();
    bench.tier.archive_tree(&own_request()).unwrap();
    let file = client.open(ino, OpenMode::READ_WRITE).unwrap();
    file.write_all(2 * MIB, b"longer").unwrap();
    file.close().unwrap();
    bench.archive(ino, "f").unwrap();
    let hindered = Arc::new(Hindered::default());
    hindered.marks_left.store(2, Ordering::SeqCst);
    let lower: Arc<dyn FileSystem> = hindered.clone();
    let report = rebuild_in(&bench, &lower);
    assert_eq!(report.problems.len(), 1, "{report:?}");
    hindered.marks_left.store(0, Ordering::SeqCst);
    let fresh = fresh_over(&bench, lower);
    let client = fresh.client();
    let found = client.lookup(Ino::ROOT, "f").unwrap();
    assert_eq!(found.size, 2 * MIB);
    assert!(client.contents(found.ino).unwrap() == noise(3, 2 * MIB));
}

/// A failing disk often becomes read-only, and users then want to save their files.
#[test]
fn edit_below_a_mount_that_became_read_only_is_readable() {
    let lower = Arc::new(Hindered::default());
    let mut bench = Bench::over(lower.clone());
    let ino = bench.client().file(Ino::ROOT, "file", &noise(4, MIB)).unwrap();
    bench.archive(ino, "file").unwrap();
    let below = Client::new(&*lower);
    let file = below.open(ino, OpenMode::READ_WRITE).unwrap();
    file.write_all(0, b"changed").unwrap();
    file.close().unwrap();
    lower.is_read_only.store(true, Ordering::SeqCst);
    bench.restart();
    let expected = below.attr(ino).unwrap().modified;
    assert_eq!(bench.client().attr(ino).unwrap().modified, expected);
    assert!(bench.client().contents(ino).unwrap().starts_with(b"changed"));
}

/// If the tree can't store a new open epoch, its epoch must differ from that of the catalogue.
/// Otherwise the catalogue would match a snapshot from before the scan, to which the scan does not
/// apply.
#[test]
fn scan_is_not_trusted_if_the_tree_cannot_record_its_open_epoch() {
    let lower = Arc::new(Hindered::default());
    let bench = Bench::over(lower.clone());
    let ino = bench.client().file(Ino::ROOT, "file", &noise(5, MIB)).unwrap();
    bench.archive(ino, "file").unwrap();
    lower.is_read_only.store(true, Ordering::SeqCst);
    bench.tier.scan(&own_request()).unwrap();
    let said = bench.around.marks.read_open_epoch(&*bench.lower).unwrap();
    assert_ne!(bench.tier.catalogue().open_epoch().unwrap(), said);
}

#[test]
fn failed_init_leaves_no_files() {
    let scratch = tempfile::tempdir().unwrap();
    let of = |name: &str| scratch.path().join(name);
    std::fs::create_dir(of("empty")).unwrap();
    let lower = Hindered::default();
    lower.is_read_only.store(true, Ordering::SeqCst);
    let around = Bench::new().around;
    let wish = TierDescription::usual(vec![of("archive").into(), of("empty").into()], None);
    Home::init(&of("home"), &lower, &wish, &around).unwrap_err();
    let left: Vec<_> = std::fs::read_dir(scratch.path()).unwrap().collect();
    assert_eq!(left.len(), 1, "{left:?}");
    assert_eq!(std::fs::read_dir(of("empty")).unwrap().count(), 0);
    lower.is_read_only.store(false, Ordering::SeqCst);
    Home::init(&of("home"), &lower, &wish, &around).unwrap();
}

#[test]
fn failed_init_keeps_existing_files() {
    let scratch = tempfile::tempdir().unwrap();
    let of = |name: &str| scratch.path().join(name);
    let (around, lower) = (Bench::new().around, MemFs::default());
    Home::init(
        &of("home"),
        &lower,
        &TierDescription::usual(vec![of("archive").into()], None),
        &around,
    )
    .unwrap();
    let other = MemFs::default();
    let taken = TierDescription::usual(vec![of("new").into(), of("archive").into()], None);
    Home::init(&of("other"), &other, &taken, &around).unwrap_err();
    assert!(!of("new").exists() && !of("other").exists());
    Home::init(&of("home"), &other, &TierDescription::usual(vec![of("new").into()], None), &around)
        .unwrap_err();
    assert!(!of("new").exists());
    let tree: Arc<dyn FileSystem> = Arc::new(lower);
    let home = Home::read(&of("home")).unwrap();
    home.open(tree, home.settings(), around).unwrap().shutdown().unwrap();
}
