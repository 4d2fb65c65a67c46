//! Changes during a repack or a scan, and files whose xattr can't be written meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use fslab_tier::archive::Archive;
use fslab_tier::catalogue::{ObjectRow, ObjectState};
use fslab_tier::command::{Command, execute};
use fslab_tier::{Error, Found, Id, WalkEntry, own_request, rebuild};
use fslab_vfs::{
    Cancellation, Errno, FileSystem, Handle, Ino, MemFs, OpenMode, Request, Timestamp, XattrMode,
};
use fslab_vfs_testing::client::Client;
use parking_lot::Mutex;

use crate::bundles::{all_are_right, bundled, contents, expire, ino_of, place_of, replace};
use crate::support::{Bench, MIB, noise};

type Deed = Box<dyn FnOnce() + Send>;

/// A tree that calls a function when one of its directories is listed, when the xattr of a file is
/// written, or after the xattr was read. It can also refuse xattrs of one file.
#[derive(Default)]
pub struct Meddled {
    memory: MemFs,
    /// Called once, when this directory is listed or an xattr of this file is written.
    deed: Mutex<Option<(Ino, Deed)>>,
    /// Called once, after an xattr of this file was read, and before its value is returned.
    read: Mutex<Option<(Ino, Deed)>>,
    refused: Mutex<Option<Ino>>,
}

impl Meddled {
    pub fn bench() -> (Arc<Self>, Bench) {
        let lower = Arc::new(Self::default());
        let bench = Bench::over(lower.clone());
        (lower, bench)
    }

    pub fn at(&self, ino: Ino, deed: impl FnOnce() + Send + 'static) {
        *self.deed.lock() = Some((ino, Box::new(deed)));
    }

    fn at_reading(&self, ino: Ino, deed: impl FnOnce() + Send + 'static) {
        *self.read.lock() = Some((ino, Box::new(deed)));
    }

    fn meddle(&self, ino: Ino) {
        do_once(&self.deed, ino);
    }
}

fn do_once(deed: &Mutex<Option<(Ino, Deed)>>, ino: Ino) {
    let due = deed.lock().take_if(|(wanted, _)| *wanted == ino);
    if let Some((_, deed)) = due {
        deed();
    }
}

impl FileSystem for Meddled {
    fn fallback(&self) -> Option<&dyn FileSystem> {
        Some(&self.memory)
    }

    fn opendir(&self, request: &Request, ino: Ino) -> fslab_vfs::Result<Handle> {
        self.meddle(ino);
        self.memory.opendir(request, ino)
    }

    fn getxattr(
        &self,
        request: &Request,
        ino: Ino,
        name: &std::ffi::OsStr,
    ) -> fslab_vfs::Result<Vec<u8>> {
        let value = self.memory.getxattr(request, ino, name);
        do_once(&self.read, ino);
        value
    }

    fn setxattr(
        &self,
        request: &Request,
        ino: Ino,
        name: &std::ffi::OsStr,
        value: &[u8],
        mode: XattrMode,
    ) -> fslab_vfs::Result<()> {
        if *self.refused.lock() == Some(ino) {
            return Err(Errno::NOSPC.into());
        }
        self.meddle(ino);
        self.memory.setxattr(request, ino, name, value, mode)
    }
}

/// Makes a bundle of ten files. Only the objects of files 7, 8 and 9 are needed, and these are
/// offline.
fn mostly_unneeded(bench: &Bench) {
    bundled(bench, 10);
    replace(bench, 0..7);
    for number in 7..10 {
        bench.release(ino_of(bench, number), &format!("file{number}")).unwrap();
    }
    // After this scan, the catalogue is no longer in doubt.
    bench.tier.scan(&own_request()).unwrap();
}

pub fn rows(bench: &Bench) -> Vec<ObjectRow> {
    let mut rows = Vec::new();
    let mut keep = |row| {
        rows.push(row);
        Ok(())
    };
    bench.tier.catalogue().for_each(&mut keep).unwrap();
    rows
}

fn states(bench: &Bench, path: &str) -> Vec<ObjectState> {
    let rows = rows(bench);
    rows.iter().filter(|row| row.path == path.as_bytes()).map(|row| row.state).collect()
}

#[test]
fn scan_during_a_repack_records_no_object_as_unneeded() {
    let (lower, bench) = Meddled::bench();
    let last = bench.client().mkdir(Ino::ROOT, "last").unwrap();
    mostly_unneeded(&bench);
    let old = place_of(&bench, 8).container;
    bench.dates.0.fetch_add(31 * 24 * 3600, Ordering::SeqCst);
    let (tier, repacking) = (Arc::clone(&bench.tier), Arc::new(Mutex::new(None)));
    let thread = Arc::clone(&repacking);
    lower.at(last, move || {
        let (done, is_done) = mpsc::channel();
        *thread.lock() = Some(std::thread::spawn(move || {
            let expired = tier.expire(&own_request()).unwrap();
            // The send fails only if the test no longer waits for the message.
            done.send(()).unwrap_or_default();
            expired
        }));
        let waited = is_done.recv_timeout(Duration::from_millis(500));
        assert!(waited.is_err(), "the repack did not wait for the running scan");
    });
    assert_eq!(bench.tier.scan(&own_request()).unwrap().unneeded, 0);
    let repacking = repacking.lock().take().unwrap();
    assert_eq!(repacking.join().unwrap().repacked, 1);
    assert_ne!(place_of(&bench, 8).container, old);
    for number in 0..10 {
        let states = states(&bench, &format!("file{number}"));
        assert_eq!(states, [ObjectState::Live], "file{number}");
    }
    bench.client().rename(Ino::ROOT, "file8", last, "file8").unwrap();
    expire(&bench);
    let moved = bench.client().lookup(last, "file8").unwrap().ino;
    assert!(bench.client().contents(moved).unwrap() == contents(8));
}

#[test]
fn waiting_for_a_scan_is_interruptible() {
    let (lower, bench) = Meddled::bench();
    let last = bench.client().mkdir(Ino::ROOT, "last").unwrap();
    let (tier, waiting) = (Arc::clone(&bench.tier), Arc::new(Mutex::new(None)));
    let thread = Arc::clone(&waiting);
    lower.at(last, move || {
        let (done, is_done) = mpsc::channel();
        let cancelled = Arc::new(AtomicU64::new(0));
        let cancellation = Cancellation::new(Arc::clone(&cancelled), 1);
        let undeleting = std::thread::spawn(move || {
            let request = Request { cancellation, ..own_request() };
            let command = Command::Undelete { object: Id([0x99; 16]), path: b"file".into() };
            let ended = execute(&tier, &command, &request, &mut |_| true);
            // The send fails only if the test no longer waits for the message.
            done.send(()).unwrap_or_default();
            ended
        });
        cancelled.store(1, Ordering::SeqCst);
        // If the command could not be interrupted, it would wait for the scan, and this receive
        // would time out.
        let is_first = is_done.recv_timeout(Duration::from_secs(20)).is_ok();
        *thread.lock() = Some((undeleting, is_first));
    });
    bench.tier.scan(&own_request()).unwrap();
    let (undeleting, is_first) = waiting.lock().take().unwrap();
    let ended = undeleting.join().unwrap();
    assert!(is_first && matches!(ended, Err(Error::Interrupted)), "{is_first}, {ended:?}");
}

/// Returns a function that changes and archives a file of [`bundled`], as programs and users do.
fn replace_one(bench: &Bench, name: &'static str) -> impl FnOnce() + Send + 'static {
    let (tier, fs) = (Arc::clone(&bench.tier), Arc::clone(&bench.fs));
    move || {
        let client = Client::new(&*fs);
        let ino = client.lookup(Ino::ROOT, name).unwrap().ino;
        let file = client.open(ino, OpenMode::READ_WRITE).unwrap();
        file.write_all(0, b"later").unwrap();
        file.close().unwrap();
        tier.archive(ino, name.as_bytes(), &own_request()).unwrap();
    }
}

#[track_caller]
fn has_an_earlier_version(bench: &Bench, path: &str) {
    let mut found = states(bench, path);
    found.sort_by_key(|state| *state as u8);
    assert_eq!(found, [ObjectState::Live, ObjectState::Replaced], "{path}");
}

/// The files change after the scan has visited them, and before it records its results.
#[test]
fn replacement_or_removal_after_a_file_was_scanned_is_kept() {
    let (lower, bench) = Meddled::bench();
    let last = bench.client().mkdir(Ino::ROOT, "last").unwrap();
    bundled(&bench, 3);
    let (replace_one, fs) = (replace_one(&bench, "file0"), Arc::clone(&bench.fs));
    lower.at(last, move || {
        replace_one();
        Client::new(&*fs).unlink(Ino::ROOT, "file1").unwrap();
        Client::new(&*fs).rename(Ino::ROOT, "file2", Ino::ROOT, "moved").unwrap();
    });
    bench.tier.scan(&own_request()).unwrap();
    has_an_earlier_version(&bench, "file0");
    assert_eq!(states(&bench, "file1"), [ObjectState::Removed]);
    // The file system in memory can't return the new path, so the row has an empty one.
    assert_eq!((states(&bench, "file2"), states(&bench, "")), (vec![], vec![ObjectState::Live]));
    let again = bench.tier.scan(&own_request()).unwrap();
    assert_eq!((again.repaired, again.unneeded), (0, 0));
}

/// The change happens after the scan reads the file, and before it reads the catalogue.
#[test]
fn replacement_or_removal_while_a_file_is_scanned_is_kept() {
    let (lower, bench) = Meddled::bench();
    bundled(&bench, 2);
    let fs = Arc::clone(&bench.fs);
    lower.at_reading(ino_of(&bench, 0), replace_one(&bench, "file0"));
    bench.tier.scan(&own_request()).unwrap();
    has_an_earlier_version(&bench, "file0");
    lower.at_reading(ino_of(&bench, 1), move || {
        Client::new(&*fs).unlink(Ino::ROOT, "file1").unwrap();
    });
    bench.tier.scan(&own_request()).unwrap();
    assert_eq!(states(&bench, "file1"), [ObjectState::Removed]);
}

#[test]
fn repack_leaves_a_member_whose_xattr_cannot_be_written() {
    let (lower, bench) = Meddled::bench();
    mostly_unneeded(&bench);
    let old = place_of(&bench, 8);
    *lower.refused.lock() = Some(ino_of(&bench, 8));
    assert_eq!(expire(&bench).repacked, 1);
    assert_eq!(place_of(&bench, 8), old);
    assert_ne!(place_of(&bench, 7).container, old.container);
    assert_eq!(place_of(&bench, 7).container, place_of(&bench, 9).container);
    let is_settled = |row: &ObjectRow| row.state == ObjectState::Live;
    assert!(rows(&bench).iter().all(is_settled), "{:?}", rows(&bench));
    let containers = bench.archives[0].containers();
    for _ in 0..2 {
        assert_eq!(expire(&bench).repacked, 0, "nothing can be moved");
        assert_eq!(bench.archives[0].containers(), containers);
    }
    *lower.refused.lock() = None;
    assert_eq!(expire(&bench).repacked, 1);
    assert_ne!(place_of(&bench, 8).container, old.container);
    assert_eq!(bench.archives[0].containers(), containers, "one bundle for another");
    all_are_right(&bench, 0..10);
}

#[test]
fn file_removed_during_a_repack_is_recorded_as_removed() {
    let (lower, bench) = Meddled::bench();
    mostly_unneeded(&bench);
    let fs = Arc::clone(&bench.fs);
    // At this moment file 7 refers to its new object, and file 9 still to the old one.
    lower.at(ino_of(&bench, 8), move || {
        let client = Client::new(&*fs);
        client.unlink(Ino::ROOT, "file7").unwrap();
        client.unlink(Ino::ROOT, "file9").unwrap();
    });
    assert_eq!(expire(&bench).repacked, 1);
    for (number, state) in
        [(7, ObjectState::Removed), (8, ObjectState::Live), (9, ObjectState::Removed)]
    {
        assert_eq!(states(&bench, &format!("file{number}")), [state], "file{number}");
    }
    assert_eq!(expire(&bench).objects, 2);
    all_are_right(&bench, (0..7).chain([8]));
}

#[test]
fn tree_archived_during_an_upload_is_the_newest() {
    let bench = Bench::new();
    bench.offline(&bench.client(), "file", &noise(61, MIB));
    let request = own_request();
    for _ in 0..3 {
        bench.tier.archive_tree(&request).unwrap();
    }
    let archive = Arc::clone(&bench.archives[0]) as Arc<dyn Archive>;
    let sequences = || -> Vec<u64> {
        let trees = rebuild::trees(&archive).unwrap();
        trees.iter().map(|(_, tree)| tree.sequence).collect()
    };
    let latest = sequences().into_iter().max().unwrap();
    let mut row = rows(&bench).remove(0);
    row.version.object = Id([0x99; 16]);
    row.version.location.container = Id([0x98; 16]);
    row.state = ObjectState::Pending;
    bench.tier.catalogue().put(&[row]).unwrap();
    bench.tier.archive_tree(&request).unwrap();
    assert!(sequences().into_iter().max().unwrap() > latest, "{:?} {latest}", sequences());
    assert_eq!(sequences().len(), 3);
}

/// The clock was set back, and the catalogue with the earlier sequence numbers was lost. A new
/// archived tree must nevertheless get a greater number than the earlier ones.
#[test]
fn newly_archived_tree_is_kept_if_the_clock_was_set_back() {
    let bench = Bench::new();
    bench.offline(&bench.client(), "file", &noise(62, MIB));
    let request = own_request();
    bench.dates.0.store(1_000_000, Ordering::SeqCst);
    for _ in 0..3 {
        bench.tier.archive_tree(&request).unwrap();
    }
    let archive = Arc::clone(&bench.archives[0]) as Arc<dyn Archive>;
    let containers = || -> Vec<Id> {
        let trees = rebuild::trees(&archive).unwrap();
        trees.iter().map(|(container, _)| *container).collect()
    };
    let before = containers();
    let mut bench = bench;
    bench.dates.0.store(0, Ordering::SeqCst);
    bench.restart();
    bench.tier.archive_tree(&request).unwrap();
    let after = containers();
    assert_eq!((before.len(), after.len()), (3, 3));
    assert!(after.iter().any(|container| !before.contains(container)));
}

#[test]
fn scan_spares_pending_objects_but_finds_removed_files() {
    let bench = Bench::new();
    let client = bench.client();
    let gone = client.file(Ino::ROOT, "gone", &contents(1)).unwrap();
    bench.archive(gone, "gone").unwrap();
    bench.below().unlink(Ino::ROOT, "gone").unwrap();
    client.file(Ino::ROOT, "file", &contents(2)).unwrap();
    let request = own_request();
    let mut archiver = bench.tier.archiver(&request, None, None);
    let found = Found::at(&bench.lower, b"file").unwrap();
    let mut told = |_: &[u8], outcome: fslab_tier::Result<_>| outcome.map(drop);
    archiver.archive(&WalkEntry { path: b"file", found: &found }, &mut told).unwrap();
    // The row of an object that is being written, as recorded before the scan began.
    let mut row = rows(&bench).remove(0);
    row.version.object = Id([0x99; 16]);
    row.version.location.container = Id([0x98; 16]);
    let inode = (bench.around.inode_identity)(&found.attr);
    let since = Timestamp::default();
    let row = ObjectRow { state: ObjectState::Pending, since, inode, path: b"file".into(), ..row };
    bench.tier.catalogue().put(&[row]).unwrap();
    assert_eq!(bench.tier.scan(&request).unwrap().unneeded, 1);
    assert_eq!(states(&bench, "gone"), [ObjectState::Removed]);
    assert_eq!(states(&bench, "file"), [ObjectState::Pending]);
    archiver.finish(&mut told).unwrap();
}

#[test]
fn gathered_files_do_not_wait_for_a_large_file() {
    let bench = Bench::new();
    let client = bench.client();
    client.file(Ino::ROOT, "small", &contents(1)).unwrap();
    client.file(Ino::ROOT, "large", &noise(2, 8 * MIB)).unwrap();
    let request = own_request();
    let mut archiver = bench.tier.archiver(&request, None, None);
    let mut order = Vec::new();
    let mut told = |path: &[u8], outcome: fslab_tier::Result<_>| {
        order.push(String::from_utf8_lossy(path).into_owned());
        outcome.map(drop)
    };
    for name in ["small", "large"] {
        let found = Found::at(&bench.lower, name.as_bytes()).unwrap();
        archiver.archive(&WalkEntry { path: name.as_bytes(), found: &found }, &mut told).unwrap();
    }
    archiver.finish(&mut told).unwrap();
    assert_eq!(order, ["small", "large"]);
}

/// If a file is archived during a scan, a row may remain live although no file refers to its
/// object. Its bundle is repacked once, not at every expiry.
#[test]
fn unreferenced_live_row_does_not_repack_its_bundle_repeatedly() {
    let bench = Bench::new();
    bundled(&bench, 10);
    let before = bench.residency(ino_of(&bench, 7)).unwrap().version;
    replace(&bench, 0..8);
    bench.tier.scan(&own_request()).unwrap();
    let row = bench.tier.catalogue().get(before.object).unwrap().unwrap();
    assert_eq!(row.state, ObjectState::Replaced);
    bench.tier.catalogue().put(&[ObjectRow { state: ObjectState::Live, ..row }]).unwrap();
    let expired = expire(&bench);
    assert_eq!((expired.objects, expired.repacked), (7, 1));
    let row = bench.tier.catalogue().get(before.object).unwrap().unwrap();
    assert_eq!(row.state, ObjectState::Replaced, "it stays until its time has come");
    let expired = expire(&bench);
    assert_eq!((expired.objects, expired.containers, expired.repacked), (1, 1, 0));
    assert_eq!(expire(&bench).repacked, 0);
    all_are_right(&bench, 0..10);
}
