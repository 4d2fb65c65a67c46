//! The shutdown of an engine while it is in use.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use fslab_tier::archive::testing::Faults;
use fslab_tier::command::{Command, execute};
use fslab_tier::{Error, Settings, own_request};
use fslab_vfs::{Ino, MemFs, OpenMode};

use crate::concurrency::rows;
use crate::support::{Bench, MIB, TIER, noise};

/// Shuts the engine down while a function waits for an archive. The archive responds afterwards.
fn end_beside<T: Send>(bench: &Bench, faults: &Faults, work: impl FnOnce() -> T + Send) -> T {
    *faults.stalled.lock() = true;
    std::thread::scope(|scope| {
        let working = scope.spawn(work);
        while faults.blocked.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        bench.tier.shutdown().unwrap();
        faults.resume();
        working.join().unwrap()
    })
}

/// If the block were written, the process could exit before the time is restored, and the next
/// engine would not notice.
#[test]
fn block_that_arrives_after_shutdown_is_discarded() {
    let mut bench = Bench::new();
    let data = noise(100, 2 * MIB);
    let ino = bench.offline(&bench.client(), "file", &data);
    let before = bench.below().attr(ino).unwrap();
    let faults = bench.archives[0].faults();
    end_beside(&bench, &faults, || bench.client().contents(ino).unwrap_err());
    assert_eq!(bench.offline_blocks(ino), [0, 1]);
    let known = bench.residency(ino).unwrap();
    assert!(!known.moving && bench.below().attr(ino).unwrap().modified == before.modified);
    bench.restart();
    assert!(bench.client().contents(ino).unwrap() == data);
}

#[test]
fn release_after_shutdown_frees_nothing() {
    let bench = Bench::new();
    let ino = bench.client().file(Ino::ROOT, "file", &noise(101, MIB)).unwrap();
    bench.archive(ino, "file").unwrap();
    let faults = bench.archives[0].faults();
    let released = end_beside(&bench, &faults, || bench.release(ino, "file"));
    assert!(matches!(released, Err(Error::Interrupted)), "{released:?}");
    assert_eq!(bench.offline_blocks(ino), [0_u64; 0]);
}

#[test]
fn archiving_after_shutdown_leaves_no_object() {
    let bench = Bench::new();
    let ino = bench.client().file(Ino::ROOT, "file", &noise(102, MIB)).unwrap();
    let faults = bench.archives[0].faults();
    let archived = end_beside(&bench, &faults, || bench.archive(ino, "file"));
    assert!(matches!(archived, Err(Error::Interrupted)), "{archived:?}");
    assert_eq!(bench.residency(ino), None);
    assert_eq!((rows(&bench), bench.archives[0].containers()), (vec![], 0));
}

/// If the file were created, the shutdown would be clean, but the file's name would not be durable.
#[test]
fn undelete_after_shutdown_creates_no_file() {
    let bench = Bench::new();
    bench.offline(&bench.client(), "file", &noise(103, MIB));
    bench.client().unlink(Ino::ROOT, "file").unwrap();
    let object = rows(&bench).remove(0).version.object;
    bench.tier.shutdown().unwrap();
    let command = Command::Undelete { object, path: b"again".into() };
    let ended = execute(&bench.tier, &command, &own_request(), &mut |_| true);
    assert!(matches!(ended, Err(Error::Interrupted)), "{ended:?}");
    assert!(!bench.below().exists(Ino::ROOT, "again").unwrap());
}

/// The file has more runs than its xattr can record. Recalled blocks are dropped, and the shutdown
/// is clean.
#[test]
fn shutdown_is_clean_for_a_changed_file_with_too_many_runs() {
    const PIECES: u64 = 150;
    let settings = Settings { ahead: 0, ..Settings::of(TIER) };
    let mut bench = Bench::with(Arc::new(MemFs::default()), settings, 1);
    let ino = {
        let client = bench.client();
        let ino = client.file(Ino::ROOT, "file", &[]).unwrap();
        let file = client.open(ino, OpenMode::READ_WRITE).unwrap();
        for block in 0..2 * PIECES {
            file.write_all(block * MIB, b"block").unwrap();
        }
        file.close().unwrap();
        bench.archive(ino, "file").unwrap();
        bench.release(ino, "file").unwrap();
        assert_eq!(bench.offline_blocks(ino).len() as u64, 2 * PIECES);
        let file = client.open(ino, OpenMode::READ_WRITE).unwrap();
        file.write_all(0, b"later").unwrap();
        for piece in 0..PIECES {
            assert_eq!(file.read(2 * piece * MIB + 1, 4).unwrap().len(), 4);
        }
        bench.tier.shutdown().unwrap();
        assert_eq!(bench.offline_blocks(ino).len() as u64, 2 * PIECES - 1);
        file.close().unwrap();
        ino
    };
    bench.restart();
    let client = bench.client();
    let file = client.open(ino, OpenMode::empty()).unwrap();
    assert_eq!(file.read(0, 5).unwrap(), b"later");
    for block in [1, 2, PIECES, 2 * PIECES - 2, 2 * PIECES - 1] {
        assert_eq!(file.read(block * MIB, 5).unwrap(), b"block", "block {block}");
    }
    file.close().unwrap();
}
