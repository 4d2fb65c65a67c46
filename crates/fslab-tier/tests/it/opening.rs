//! Files that are changed, and engines that are killed, during an open or a recall.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use fslab_tier::command::{Command, Event, execute};
use fslab_tier::stored::Residency;
use fslab_tier::{Archived, Runs, own_request};
use fslab_vfs::{
    Attr, Cancellation, Entry, Errno, FileSystem, Handle, Ino, MemFs, Name, OpenMode, Opened,
    Request, Result, SetAttr, SetTime, Timestamp,
};
use fslab_vfs_testing::client::File;

use crate::support::{Bench, MIB, noise};

/// A time before any change made by the test.
const LONG_AGO: Timestamp = Timestamp { seconds: 1_000_000, nanoseconds: 1 };

fn set_time(bench: &Bench, ino: Ino, modified: Timestamp) {
    let modified = Some(SetTime::To(modified));
    bench.client().set(ino, &SetAttr { modified, ..SetAttr::default() }).unwrap();
}

fn archived(bench: &Bench, modified: Timestamp) -> Ino {
    let ino = bench.client().file(Ino::ROOT, "file", &noise(60, MIB)).unwrap();
    set_time(bench, ino, modified);
    assert!(matches!(bench.archive(ino, "file").unwrap(), Archived::Now { .. }));
    ino
}

#[test]
fn opening_for_writing_without_a_write_changes_nothing() {
    let bench = Bench::new();
    let ino = archived(&bench, LONG_AGO);
    let client = bench.client();
    let first = client.open(ino, OpenMode::READ_WRITE).unwrap();
    let second = client.open(ino, OpenMode::WRITE_ONLY).unwrap();
    first.read(0, 10).unwrap();
    first.close().unwrap();
    assert!(bench.is_changed(ino), "a writable open may write unnoticed");
    second.close().unwrap();
    assert!(!bench.is_changed(ino));
    assert_eq!(bench.archive(ino, "file").unwrap(), Archived::Before);
    assert!(bench.release(ino, "file").unwrap().bytes > 0);
}

/// An action of a program that has the file open for writing.
type Deed = fn(&Bench, Ino, &File<'_>);

#[test]
fn written_file_stays_changed_after_close() {
    let deeds: [(&str, Deed); 4] = [
        ("writes", |_, _, file| file.write_all(0, b"new").unwrap()),
        ("has the kernel write to the file that it was handed", |bench, ino, _| {
            let below = bench.below();
            let own = below.open(ino, OpenMode::READ_WRITE).unwrap();
            own.write_all(0, b"new").unwrap();
            own.close().unwrap();
        }),
        ("writes unheard and sets the time back", |bench, ino, _| {
            let below = bench.below();
            let own = below.open(ino, OpenMode::READ_WRITE).unwrap();
            own.write_all(0, b"new").unwrap();
            own.close().unwrap();
            set_time(bench, ino, LONG_AGO);
        }),
        ("makes it longer and shorter again", |bench, ino, file| {
            file.truncate(2 * MIB).unwrap();
            file.truncate(MIB).unwrap();
            set_time(bench, ino, LONG_AGO);
        }),
    ];
    for (what, deed) in deeds {
        let bench = Bench::new();
        let ino = archived(&bench, LONG_AGO);
        let client = bench.client();
        let file = client.open(ino, OpenMode::READ_WRITE).unwrap();
        deed(&bench, ino, &file);
        file.close().unwrap();
        assert!(bench.is_changed(ino), "{what}");
    }
}

/// A write within one tick of the clock would not change the time. The file's time is in the
/// future, so that it is recent even in a slow test.
#[test]
fn writable_open_of_a_recently_modified_file_marks_it_changed() {
    let bench = Bench::new();
    let soon = SystemTime::now() + Duration::from_secs(3600);
    let ino = archived(&bench, soon.into());
    bench.client().open(ino, OpenMode::READ_WRITE).unwrap().close().unwrap();
    assert!(bench.is_changed(ino));
}

/// Leaves a file in the state after a kill during the recall of block 1: resident, and still marked
/// as `moving`.
fn killed_in_a_recall(bench: &mut Bench, data: &[u8]) -> Ino {
    let ino = bench.offline(&bench.client(), "file", data);
    assert!(bench.client().contents(ino).unwrap() == data);
    let known = bench.residency(ino).unwrap();
    let killed = Residency { moving: true, offline: Runs::of(1..2), ..known };
    bench.write_residency(ino, killed);
    bench.restart();
    ino
}

#[test]
fn edit_below_the_mount_after_a_kill_is_kept() {
    let mut bench = Bench::new();
    let mut data = noise(69, 2 * MIB);
    let ino = killed_in_a_recall(&mut bench, &data);
    let below = bench.below();
    let file = below.open(ino, OpenMode::READ_WRITE).unwrap();
    file.write_all(10, b"behind").unwrap();
    file.close().unwrap();
    data[10..16].copy_from_slice(b"behind");
    assert!(bench.client().contents(ino).unwrap() == data);
    assert!(matches!(bench.archive(ino, "file").unwrap(), Archived::Now { .. }));
    assert!(bench.release(ino, "file").unwrap().bytes > 0);
    assert!(bench.client().contents(ino).unwrap() == data);
}

/// The engine is killed during the check for edits. The next engine repeats the check, and still
/// restores the time.
#[test]
fn check_repeated_after_a_kill_restores_mtime_and_stays_changed() {
    let mut bench = Bench::new();
    let data = noise(70, 2 * MIB);
    let ino = killed_in_a_recall(&mut bench, &data);
    let read = || bench.residency(ino).unwrap();
    let modified = read().version.modified;
    let found = Residency { changed: true, ..read() };
    bench.write_residency(ino, found);
    let changes = SetAttr { modified: Some(SetTime::To(LONG_AGO)), ..SetAttr::default() };
    bench.below().set(ino, &changes).unwrap();
    assert!(bench.client().contents(ino).unwrap() == data);
    assert_eq!(bench.below().attr(ino).unwrap().modified, modified);
    assert_eq!((read().changed, read().moving), (true, false));
}

#[test]
fn a_kill_in_a_recall_changes_nothing() {
    let mut bench = Bench::new();
    let data = noise(71, 2 * MIB);
    let ino = killed_in_a_recall(&mut bench, &data);
    assert!(bench.client().contents(ino).unwrap() == data);
    assert!(!bench.is_changed(ino));
    assert_eq!(bench.archive(ino, "file").unwrap(), Archived::Before);
}

/// The reader is interrupted and closes the file. Then another program overwrites the block that is
/// being recalled.
#[test]
fn a_recall_that_outlives_its_reader_overwrites_nothing() {
    let bench = Bench::new();
    let client = bench.client();
    let ino = bench.offline(&client, "file", &noise(62, 2 * MIB));
    let faults = bench.archives[0].faults();
    *faults.stalled.lock() = true;
    let cancelled = Arc::new(AtomicU64::new(0));
    let cancellation = Cancellation::new(Arc::clone(&cancelled), 7);
    let waiting = Request { cancellation, ..Request::default() };
    let handle = bench.fs.open(&waiting, ino, OpenMode::empty()).unwrap().handle;
    std::thread::scope(|scope| {
        let (fs, waiting) = (&bench.fs, &waiting);
        let reader = scope.spawn(move || fs.read(waiting, ino, handle, 0, &mut [0; 100]));
        while faults.blocked.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        cancelled.store(7, Ordering::SeqCst);
        assert_eq!(reader.join().unwrap().unwrap_err().errno(), Errno::INTR);
    });
    bench.fs.release(&Request::default(), ino, handle).unwrap();
    let newer = noise(63, 2 * MIB);
    let file = client.open(ino, OpenMode::READ_WRITE).unwrap();
    file.write_all(0, &newer).unwrap();
    file.close().unwrap();
    faults.resume();
    // Waits until the recalls, which are the last users of the file, have ended.
    while bench.tier.in_use(ino).is_some() {
        std::thread::yield_now();
    }
    assert!(client.contents(ino).unwrap() == newer);
    assert_eq!(bench.offline_blocks(ino), [0_u64; 0]);
}

/// A policy does not release a file until the time `stay` has passed since its last recall or
/// write, which its xattr records. A user may release the file earlier.
#[test]
fn recalled_file_stays_as_long_as_the_policy_says() {
    const HOUR: u64 = 3600;
    let mut bench = Bench::new();
    let data = noise(68, 2 * MIB);
    let rules = "stay = '1h'\n[[rule]]\naction = 'release'\n";
    bench.client().file(Ino::ROOT, "file", &data).unwrap();
    assert_eq!(totals(&bench, rules), (1, 0), "it was made just now");
    bench.dates.0.fetch_add(HOUR, Ordering::SeqCst);
    assert_eq!(totals(&bench, rules), (0, 1));
    bench.dates.0.fetch_add(HOUR, Ordering::SeqCst);
    let read = |bench: &Bench| {
        let ino = bench.client().lookup(Ino::ROOT, "file").unwrap().ino;
        assert!(bench.client().contents(ino).unwrap() == data);
        ino
    };
    read(&bench);
    // The xattr keeps the time of the recall even if the engine ends and the catalogue is lost. The
    // shutdown waits for the recall, which may not have ended yet.
    bench.tier.shutdown().unwrap();
    bench.restart();
    bench.dates.0.fetch_add(HOUR / 2, Ordering::SeqCst);
    assert_eq!(totals(&bench, rules), (0, 0));
    bench.dates.0.fetch_add(HOUR / 2, Ordering::SeqCst);
    assert_eq!(totals(&bench, rules), (0, 1));
    let ino = read(&bench);
    assert_eq!(totals(&bench, rules), (0, 0));
    assert!(bench.release(ino, "file").unwrap().bytes > 0, "a user asks for it");
}

/// Tools such as `rsync --times` set an old time on a file that they have just written.
#[test]
fn write_is_detected_if_the_time_is_then_set_back() {
    let bench = Bench::new();
    let ino = archived(&bench, LONG_AGO);
    bench.dates.0.fetch_add(3600, Ordering::SeqCst);
    let rules = "stay = '1h'\n[[rule]]\naction = 'release'\n";
    let client = bench.client();
    let file = client.open(ino, OpenMode::READ_WRITE).unwrap();
    file.write_all(0, b"new").unwrap();
    file.close().unwrap();
    set_time(&bench, ino, LONG_AGO);
    assert_eq!(totals(&bench, rules), (1, 0));
    assert_eq!(totals(&bench, "[[rule]]\naction = 'release'\n"), (0, 1));
}

/// Returns the numbers of files that a policy archives and releases.
pub fn totals(bench: &Bench, rules: &str) -> (u64, u64) {
    let rules = Some((rules.to_owned(), "test".to_owned()));
    let command = Command::Policy { rules, dry_run: false };
    let mut figures = Vec::new();
    let mut tell = |event| {
        if let Event::Total { figures: told } = event {
            figures = told;
        }
        true
    };
    execute(&bench.tier, &command, &own_request(), &mut tell).unwrap();
    let figure = |name: &str| figures.iter().find(|(found, _)| found == name).unwrap().1;
    (figure("archived"), figure("released"))
}

/// A policy archives in advance only while the file system is at least as full as `premigrate`.
#[test]
fn policy_archives_in_advance_above_the_premigrate_watermark() {
    let bench =
        Bench::over(Arc::new(MemFs::new(fslab_vfs::Capacity { bytes: 10 * MIB, inodes: 100 })));
    let client = bench.client();
    client.file(Ino::ROOT, "file", &noise(65, 3 * MIB)).unwrap();
    let archived = || {
        let rules = "[watermarks]\nhigh = 0.9\nlow = 0.8\npremigrate = 0.5\n\
                     [[rule]]\naction = 'release'\n";
        totals(&bench, rules)
    };
    assert_eq!(archived(), (0, 0));
    client.file(Ino::ROOT, "more", &noise(66, 3 * MIB)).unwrap();
    assert_eq!(archived(), (2, 0));
    client.file(Ino::ROOT, "most", &noise(67, 3 * MIB + MIB / 2)).unwrap();
    assert_eq!(archived(), (1, 1));
}

/// A file system that can refuse the attributes of open files. It counts open files and lookups.
#[derive(Default)]
struct Failing {
    memory: MemFs,
    fails: AtomicBool,
    open: AtomicI64,
    lookups: AtomicI64,
}

impl FileSystem for Failing {
    fn fallback(&self) -> Option<&dyn FileSystem> {
        Some(&self.memory)
    }

    fn lookup(&self, request: &Request, parent: Ino, name: Name<'_>) -> Result<Entry> {
        let entry = self.memory.lookup(request, parent, name)?;
        self.lookups.fetch_add(1, Ordering::SeqCst);
        Ok(entry)
    }

    fn forget(&self, ino: Ino, lookups: u64) {
        self.lookups.fetch_sub(lookups as i64, Ordering::SeqCst);
        self.memory.forget(ino, lookups);
    }

    fn getattr(&self, request: &Request, ino: Ino, handle: Option<Handle>) -> Result<Attr> {
        if handle.is_some() && self.fails.load(Ordering::SeqCst) {
            return Err(Errno::IO.into());
        }
        self.memory.getattr(request, ino, handle)
    }

    fn open(&self, request: &Request, ino: Ino, mode: OpenMode) -> Result<Opened> {
        let opened = self.memory.open(request, ino, mode)?;
        self.open.fetch_add(1, Ordering::SeqCst);
        Ok(opened)
    }

    fn release(&self, request: &Request, ino: Ino, handle: Handle) -> Result<()> {
        self.open.fetch_sub(1, Ordering::SeqCst);
        self.memory.release(request, ino, handle)
    }
}

#[test]
fn failed_open_leaks_no_handle_and_no_lookup_count() {
    let lower = Arc::new(Failing::default());
    let bench = Bench::over(lower.clone());
    let ino = archived(&bench, LONG_AGO);
    let counts = || [&lower.open, &lower.lookups].map(|count| count.load(Ordering::SeqCst));
    let before = counts();
    lower.fails.store(true, Ordering::SeqCst);
    let client = bench.client();
    let created = client.create(Ino::ROOT, "file", 0o644, OpenMode::empty());
    assert_eq!(created.map(drop).unwrap_err().errno(), Errno::IO);
    lower.fails.store(false, Ordering::SeqCst);
    assert_eq!(counts(), before);
    assert!(bench.release(ino, "file").unwrap().bytes > 0, "nobody uses it");
}
