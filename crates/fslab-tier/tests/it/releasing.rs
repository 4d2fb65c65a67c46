//! Releases of files that are being used, and of files that consist mostly of holes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use fslab_tier::archive::testing::MemoryArchive;
use fslab_tier::catalogue::Catalogue;
use fslab_tier::{Archived, Error, Id, Released, Result, Settings, own_request};
use fslab_vfs::{FileSystem, Handle, Ino, MemFs, OpenMode, Request, SeekTo, SetAttr, SetTime};
use fslab_vfs_testing::client::Client;
use parking_lot::Mutex;

use crate::support::{Bench, MIB, TIER, noise, open};

/// Releases a file, and calls a function while the archive hangs.
fn release_beside(bench: &Bench, ino: Ino, deed: impl FnOnce() + Send) -> Result<Released> {
    let faults = bench.archives[0].faults();
    *faults.stalled.lock() = true;
    std::thread::scope(|scope| {
        let releasing = scope.spawn(|| bench.release(ino, "file"));
        while faults.blocked.load(Ordering::SeqCst) == 0 && !releasing.is_finished() {
            std::thread::yield_now();
        }
        let (done, is_done) = mpsc::channel();
        let using = scope.spawn(move || {
            deed();
            // The send fails only if the test no longer waits for the message.
            done.send(()).unwrap_or_default();
        });
        let waited = is_done.recv_timeout(Duration::from_secs(20));
        faults.resume();
        using.join().unwrap();
        assert!(waited.is_ok(), "a user of the file waits for the archive");
        releasing.join().unwrap()
    })
}

#[test]
fn release_that_queries_archives_does_not_block_users_of_the_file() {
    let (bench, data) = (Bench::new(), noise(90, 2 * MIB));
    let (fs, client) = (&*bench.fs, bench.client());
    let ino = client.file(Ino::ROOT, "file", &data).unwrap();
    bench.archive(ino, "file").unwrap();
    let handle = Mutex::new(Handle(0));
    let refused = release_beside(&bench, ino, || {
        *handle.lock() = fs.open(&Request::default(), ino, OpenMode::empty()).unwrap().handle;
    });
    assert_eq!(refused.unwrap_err().to_string(), "file: is in use");
    fs.release(&Request::default(), ino, *handle.lock()).unwrap();
    let modified = fslab_vfs::Timestamp { seconds: 1_000_000, nanoseconds: 5 };
    let released = release_beside(&bench, ino, || {
        let client = Client::new(fs);
        assert!(client.contents(ino).unwrap() == data);
        let to = SetAttr { modified: Some(SetTime::To(modified)), ..SetAttr::default() };
        client.set(ino, &to).unwrap();
    });
    assert_eq!(released.unwrap().bytes, 2 * MIB);
    assert_eq!(client.attr(ino).unwrap().modified, modified);
    assert!(client.contents(ino).unwrap() == data);
    let changed = release_beside(&bench, ino, || {
        let client = Client::new(fs);
        let file = client.open(ino, OpenMode::READ_WRITE).unwrap();
        file.write_all(0, b"new").unwrap();
        file.close().unwrap();
    });
    assert_eq!(changed.unwrap_err().to_string(), "file: was changed since it was archived");
    assert!(client.contents(ino).unwrap()[..4] == [b'n', b'e', b'w', data[3]]);
}

type Deed = Box<dyn FnOnce() + Send>;

/// A tree that counts the searches for data and holes, and calls a function at the first one.
#[derive(Default)]
struct Asked {
    memory: MemFs,
    seeks: AtomicU64,
    deed: Mutex<Option<Deed>>,
}

impl FileSystem for Asked {
    fn fallback(&self) -> Option<&dyn FileSystem> {
        Some(&self.memory)
    }

    fn lseek(
        &self,
        request: &Request,
        ino: Ino,
        handle: Handle,
        offset: u64,
        to: SeekTo,
    ) -> fslab_vfs::Result<u64> {
        self.seeks.fetch_add(1, Ordering::SeqCst);
        let deed = self.deed.lock().take();
        deed.into_iter().for_each(|deed| deed());
        self.memory.lseek(request, ino, handle, offset, to)
    }
}

/// The archives also have the new version, but the release compared the old one.
#[test]
fn file_archived_again_during_its_release_is_not_released() {
    let lower = Arc::new(Asked::default());
    let bench = Bench::over(lower.clone());
    let ino = bench.client().file(Ino::ROOT, "file", &noise(91, MIB)).unwrap();
    bench.archive(ino, "file").unwrap();
    let (tier, fs) = (Arc::clone(&bench.tier), Arc::clone(&bench.fs));
    let deed = move || {
        let client = Client::new(&*fs);
        let file = client.open(ino, OpenMode::READ_WRITE).unwrap();
        file.write_all(0, b"new").unwrap();
        file.close().unwrap();
        tier.archive(ino, b"file", &own_request()).unwrap();
    };
    *lower.deed.lock() = Some(Box::new(deed));
    let refused = bench.release(ino, "file").unwrap_err().to_string();
    assert_eq!(refused, "file: was archived again while its copies were checked");
    assert_eq!(bench.offline_blocks(ino), Vec::<u64>::new());
    assert_eq!(bench.release(ino, "file").unwrap().bytes, MIB);
}

#[test]
fn release_skips_large_holes_with_few_seeks() {
    let lower = Arc::new(Asked::default());
    let bench = Bench::over(lower.clone());
    let client = bench.client();
    let ino = client.file(Ino::ROOT, "file", b"begin").unwrap();
    let file = client.open(ino, OpenMode::READ_WRITE).unwrap();
    // Writes two blocks of data, and then a few bytes across the border of two more blocks.
    file.write_all(1000 * MIB, &noise(92, 2 * MIB)).unwrap();
    file.write_all(1003 * MIB - 1, b"both").unwrap();
    file.truncate(4096 * MIB + 1).unwrap();
    file.close().unwrap();
    bench.archive(ino, "file").unwrap();
    lower.seeks.store(0, Ordering::SeqCst);
    assert_eq!(bench.release(ino, "file").unwrap().bytes, 5 * MIB);
    assert_eq!(bench.offline_blocks(ino), [0, 1000, 1001, 1002, 1003]);
    assert!(lower.seeks.load(Ordering::SeqCst) <= 8, "{:?}", lower.seeks);
    assert_eq!(bench.tier.release(ino, b"file", 0).unwrap().bytes, 0);
}

#[test]
fn release_frees_only_as_many_runs_as_a_residency_can_hold() {
    const PIECES: u64 = 140;
    let bench = Bench::new();
    let client = bench.client();
    let ino = client.file(Ino::ROOT, "file", &[]).unwrap();
    let file = client.open(ino, OpenMode::READ_WRITE).unwrap();
    for piece in 0..PIECES + 10 {
        file.write_all(2 * piece * MIB, b"piece").unwrap();
    }
    file.close().unwrap();
    bench.archive(ino, "file").unwrap();
    assert_eq!(bench.tier.release(ino, b"file", 1).unwrap().bytes, PIECES * MIB);
    let offline: Vec<_> = (1..=PIECES).map(|piece| 2 * piece).collect();
    assert_eq!(bench.offline_blocks(ino), offline);
    assert_eq!(bench.release(ino, "file").unwrap().bytes, 0);
}

/// Changes a lower file and restores its modification time, as `touch -r` does.
fn change_unseen(bench: &Bench, ino: Ino, offset: u64, data: &[u8]) {
    let below = bench.below();
    let modified = below.attr(ino).unwrap().modified;
    let file = below.open(ino, OpenMode::READ_WRITE).unwrap();
    file.write_all(offset, data).unwrap();
    file.close().unwrap();
    let back = SetAttr { modified: Some(SetTime::To(modified)), ..SetAttr::default() };
    below.set(ino, &back).unwrap();
}

#[test]
fn release_keeps_bytes_that_no_archive_has() {
    let bench = Bench::new();
    let client = bench.client();
    let mut data = noise(93, MIB);
    let ino = client.file(Ino::ROOT, "file", &data).unwrap();
    bench.archive(ino, "file").unwrap();
    change_unseen(&bench, ino, 77, b"later");
    data[77..82].copy_from_slice(b"later");
    let refused = bench.release(ino, "file").unwrap_err().to_string();
    assert_eq!(refused, "file: was changed in the lower directory after it was archived");
    assert!(bench.offline_blocks(ino).is_empty() && bench.is_changed(ino));
    bench.archive(ino, "file").unwrap();
    assert_eq!(bench.release(ino, "file").unwrap().bytes, MIB);
    assert!(client.contents(ino).unwrap() == data);
}

/// A large file is compared and released piece by piece. Pieces that differ from the archived ones
/// are kept.
#[test]
fn change_at_the_end_of_a_large_file_stays() {
    const BLOCKS: u64 = 70;
    let bench = Bench::new();
    let client = bench.client();
    let ino = client.file(Ino::ROOT, "file", &[]).unwrap();
    let file = client.open(ino, OpenMode::READ_WRITE).unwrap();
    for block in 0..BLOCKS {
        file.write_all(block * MIB, &[block as u8 + 1]).unwrap();
    }
    file.close().unwrap();
    bench.archive(ino, "file").unwrap();
    change_unseen(&bench, ino, (BLOCKS - 1) * MIB, b"c");
    assert!(bench.release(ino, "file").is_err());
    let offline = bench.offline_blocks(ino);
    assert!(!offline.contains(&(BLOCKS - 1)), "{offline:?}");
    bench.archive(ino, "file").unwrap();
    bench.release(ino, "file").unwrap();
    assert_eq!(bench.offline_blocks(ino).len() as u64, BLOCKS);
    let file = client.open(ino, OpenMode::empty()).unwrap();
    for block in 0..BLOCKS {
        let expected = if block == BLOCKS - 1 { b'c' } else { block as u8 + 1 };
        assert_eq!(file.read(block * MIB, 1).unwrap(), [expected], "block {block}");
    }
    file.close().unwrap();
}

#[test]
fn data_written_to_an_archived_hole_is_not_released() {
    let bench = Bench::new();
    let client = bench.client();
    let ino = client.file(Ino::ROOT, "file", &[]).unwrap();
    let file = client.open(ino, OpenMode::READ_WRITE).unwrap();
    file.write_all(MIB, b"second block").unwrap();
    file.close().unwrap();
    bench.archive(ino, "file").unwrap();
    change_unseen(&bench, ino, 5, b"first block");
    bench.release(ino, "file").unwrap_err();
    assert!(client.contents(ino).unwrap()[5..16] == *b"first block");
}

/// `Home::read` refuses a setting of 0 copies, but other callers may pass it to the engine.
#[test]
fn file_needs_a_copy_even_if_no_copies_are_asked_for() {
    let settings = Settings { copies: 0, ..Settings::of(TIER) };
    let bench = Bench::with(Arc::new(MemFs::default()), settings.clone(), 1);
    let ino = bench.client().file(Ino::ROOT, "file", &noise(92, MIB)).unwrap();
    bench.archive(ino, "file").unwrap();
    bench.tier.shutdown().unwrap();
    let other = Arc::new(MemoryArchive::new(Id([7; 16]), "other"));
    let catalogue = Catalogue::in_memory().unwrap();
    let (tier, _fs) = open(&bench.lower, &settings, &[other], catalogue, &bench.around);
    let refused = tier.release(ino, b"file", 0).unwrap_err();
    assert!(matches!(refused, Error::TooFewCopies { wanted: 1, found: 0, .. }), "{refused}");
    let archived = tier.archive(ino, b"file", &own_request()).unwrap();
    assert_eq!(archived, Archived::Now { bytes: MIB });
}
