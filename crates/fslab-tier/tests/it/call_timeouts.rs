//! Unresponsive archives, and archives whose code panics.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use fslab_tier::archive::testing::MemoryArchive;
use fslab_tier::archive::{Archive, Container, ContainerKind, Deletion, Upload};
use fslab_tier::catalogue::Catalogue;
use fslab_tier::{Archived, Id, Settings, own_request};
use fslab_vfs::{Errno, Ino, MemFs};
use fslab_vfs_testing::client::Client;
use parking_lot::Mutex;

use crate::support::{Bench, Hands, MIB, PATIENCE, TIER, noise, open_over, until};

/// When dropped, makes an archive respond again, even after a failed test.
pub struct Resumes<'a>(pub &'a MemoryArchive);

impl Drop for Resumes<'_> {
    fn drop(&mut self) {
        self.0.faults().resume();
    }
}

/// Makes offline files: `slow0` to `slow7` in the first archive only, `fast` in the second only.
fn two_archives(clock: Arc<Hands>) -> (Bench, Vec<Ino>, Ino) {
    let settings = Settings { ahead: 0, bundled: 0, ..Settings::of(TIER) };
    let bench = Bench::by_clock(Arc::new(MemFs::default()), settings, 2, clock);
    let offline = |name: &str, seed| bench.offline(&bench.client(), name, &noise(seed, MIB));
    let slow = (0..8).map(|number| offline(&format!("slow{number}"), number)).collect();
    bench.archives[0].faults().full.store(true, Ordering::SeqCst);
    let fast = offline("fast", 50);
    bench.archives[0].faults().full.store(false, Ordering::SeqCst);
    (bench, slow, fast)
}

#[test]
fn hung_archive_delays_only_its_own_files() {
    let (bench, slow, fast) = two_archives(Arc::default());
    let faults = bench.archives[0].faults();
    *faults.stalled.lock() = true;
    std::thread::scope(|scope| {
        let resumes = Resumes(&bench.archives[0]);
        let (fs, bench) = (&*bench.fs, &bench);
        let readers = slow.iter().map(|ino| scope.spawn(|| Client::new(fs).contents(*ino)));
        let readers: Vec<_> = readers.collect();
        // All threads that may serve these files are busy.
        until(|| bench.archives[0].faults().blocked.load(Ordering::SeqCst) >= 3);
        let (done, is_done) = mpsc::channel();
        scope.spawn(move || done.send(Client::new(fs).contents(fast)).unwrap_or_default());
        let read = is_done.recv_timeout(PATIENCE);
        drop(resumes);
        assert!(read.expect("a file in another archive waits").unwrap() == noise(50, MIB));
        for (number, reader) in readers.into_iter().enumerate() {
            assert!(reader.join().unwrap().unwrap() == noise(number as u64, MIB));
        }
    });
}

/// Calls a function while the first archive hangs and the clock passes the limit of its calls.
fn while_it_hangs<T: Send>(bench: &Bench, hands: &Hands, work: impl FnOnce() -> T + Send) -> T {
    let faults = bench.archives[0].faults();
    *faults.stalled.lock() = true;
    std::thread::scope(|scope| {
        let _resumes = Resumes(&bench.archives[0]);
        let working = scope.spawn(work);
        until(|| faults.blocked.load(Ordering::SeqCst) > 0);
        hands.turn(bench.tier.settings().call_limit + Duration::from_secs(2));
        until(|| working.is_finished());
        working.join().unwrap()
    })
}

#[test]
fn another_copy_is_read_if_a_call_times_out() {
    let hands = Arc::new(Hands::default());
    let settings = Settings { copies: 2, ahead: 0, ..Settings::of(TIER) };
    let bench = Bench::by_clock(Arc::new(MemFs::default()), settings, 2, hands.clone());
    let ino = bench.offline(&bench.client(), "file", &noise(60, MIB));
    let is_available = || bench.tier.archives().len() == 2;
    let read = while_it_hangs(&bench, &hands, || Client::new(&*bench.fs).contents(ino));
    assert!(read.unwrap() == noise(60, MIB));
    until(is_available);
}

#[test]
fn reader_waits_until_a_hung_archive_answers_again() {
    let hands = Arc::new(Hands::default());
    let (bench, slow, _) = two_archives(hands.clone());
    let faults = bench.archives[0].faults();
    *faults.stalled.lock() = true;
    std::thread::scope(|scope| {
        let resumes = Resumes(&bench.archives[0]);
        let reader = scope.spawn(|| Client::new(&*bench.fs).contents(slow[0]));
        until(|| faults.blocked.load(Ordering::SeqCst) > 0);
        hands.turn(bench.tier.settings().call_limit + Duration::from_secs(2));
        until(|| bench.tier.archives().len() == 1);
        let states = bench.tier.archive_states().unwrap();
        let why = states[0].away.as_deref();
        assert_eq!(why, Some("it has not answered within 60 seconds"));
        // The recall is postponed, and no thread waits for it.
        until(|| bench.tier.queue().list().len() == 1);
        assert!(!reader.is_finished());
        drop(resumes);
        assert!(reader.join().unwrap().unwrap() == noise(0, MIB));
    });
}

#[test]
fn archiving_uses_another_archive_if_one_hangs() {
    let hands = Arc::new(Hands::default());
    let memory = Arc::new(MemFs::default());
    let bench = Bench::by_clock(memory, Settings::of(TIER), 2, hands.clone());
    let ino = bench.client().file(Ino::ROOT, "new", &noise(61, MIB)).unwrap();
    let archived = while_it_hangs(&bench, &hands, || bench.archive(ino, "new"));
    assert_eq!(archived.unwrap(), Archived::Now { bytes: MIB });
    assert_eq!(bench.archives[1].containers(), 1);
}

/// Waking up a thread for each call takes time, so a small file should need few calls.
#[test]
fn small_file_is_read_in_one_call() {
    let settings = Settings { bundled: 0, ..Settings::of(TIER) };
    let bench = Bench::with(Arc::new(MemFs::default()), settings, 1);
    let (client, data) = (bench.client(), noise(62, 5000));
    let reads = || bench.archives[0].faults().reads.load(Ordering::SeqCst);
    let ino = client.file(Ino::ROOT, "file", &data).unwrap();
    bench.archive(ino, "file").unwrap();
    assert_eq!(reads(), 1, "it is read back");
    bench.release(ino, "file").unwrap();
    assert_eq!(reads(), 2, "the release checks that the copy still exists");
    assert!(client.contents(ino).unwrap() == data);
    assert_eq!(reads(), 3);
}

/// An archive that panics on demand. It can also use a lock to block the creation of containers.
struct Panicking {
    archive: Arc<MemoryArchive>,
    panics: AtomicBool,
    begins: Mutex<()>,
    /// The containers whose creation is blocked.
    waiting: AtomicU64,
}

impl Panicking {
    fn over(archive: &Arc<MemoryArchive>) -> Arc<Self> {
        let (archive, panics, begins) =
            (Arc::clone(archive), AtomicBool::new(false), Mutex::new(()));
        Arc::new(Self { archive, panics, begins, waiting: AtomicU64::new(0) })
    }
}

impl Archive for Panicking {
    fn id(&self) -> Id {
        self.archive.id()
    }

    fn label(&self) -> &str {
        self.archive.label()
    }

    fn begin(&self, container: Container) -> io::Result<Box<dyn Upload>> {
        assert!(!self.panics.load(Ordering::SeqCst), "planted by a test");
        self.waiting.fetch_add(1, Ordering::SeqCst);
        drop(self.begins.lock());
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        self.archive.begin(container)
    }

    fn read(&self, container: Container, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        assert!(!self.panics.load(Ordering::SeqCst), "planted by a test");
        self.archive.read(container, offset, buffer)
    }

    fn length(&self, container: Container) -> io::Result<u64> {
        self.archive.length(container)
    }

    fn list(&self, kind: ContainerKind, visit: &mut dyn FnMut(Id, u64)) -> io::Result<()> {
        self.archive.list(kind, visit)
    }

    fn delete(&self, container: Container) -> io::Result<Deletion> {
        self.archive.delete(container)
    }

    fn position(&self, container: Id, offset: u64) -> (u64, u64) {
        self.archive.position(container, offset)
    }
}

#[test]
fn panic_in_a_recall_thread_fails_its_recall_with_eio() {
    let bench = Bench::new();
    let inos: Vec<_> = (0..6)
        .map(|number| bench.offline(&bench.client(), &format!("f{number}"), &noise(number, MIB)))
        .collect();
    let (settings, around) = (bench.tier.settings().clone(), bench.around.clone());
    bench.tier.shutdown().unwrap();
    let archive = Panicking::over(&bench.archives[0]);
    archive.panics.store(true, Ordering::SeqCst);
    let catalogue = Catalogue::in_memory().unwrap();
    let (_tier, fs) = open_over(&bench.lower, &settings, vec![archive.clone()], catalogue, &around);
    // There are more files than recall threads.
    for ino in &inos {
        let (done, is_done) = mpsc::channel();
        let (fs, ino) = (Arc::clone(&fs), *ino);
        // The thread is not joined, because it would never end if the panic were not caught.
        std::thread::spawn(move || done.send(Client::new(&*fs).contents(ino)).unwrap_or_default());
        let read = is_done.recv_timeout(PATIENCE).expect("a reader waits forever");
        assert_eq!(read.unwrap_err().errno(), Errno::IO);
    }
    archive.panics.store(false, Ordering::SeqCst);
    for (number, ino) in inos.iter().enumerate() {
        assert!(Client::new(&*fs).contents(*ino).unwrap() == noise(number as u64, MIB));
    }
}

/// Reopens a tier over the same tree, with a misbehaving archive and an intact one.
fn over_one_that_misbehaves(bench: &Bench) -> (Arc<Panicking>, Arc<fslab_tier::Tier>) {
    bench.tier.shutdown().unwrap();
    let (settings, around) = (bench.tier.settings().clone(), bench.around.clone());
    let first = Panicking::over(&bench.archives[0]);
    let second = Arc::clone(&bench.archives[1]) as Arc<dyn Archive>;
    let archives = vec![first.clone() as Arc<dyn Archive>, second];
    let catalogue = Catalogue::in_memory().unwrap();
    (first, open_over(&bench.lower, &settings, archives, catalogue, &around).0)
}

#[test]
fn archiving_uses_another_archive_if_starting_a_container_hangs() {
    let hands = Arc::new(Hands::default());
    let settings = Settings { bundled: 0, ..Settings::of(TIER) };
    for size in [5000, 3 * MIB] {
        let memory = Arc::new(MemFs::default());
        let bench = Bench::by_clock(memory, settings.clone(), 2, hands.clone());
        let ino = bench.client().file(Ino::ROOT, "new", &noise(63, size)).unwrap();
        let (first, tier) = over_one_that_misbehaves(&bench);
        std::thread::scope(|scope| {
            let held = first.begins.lock();
            let archiving = scope.spawn(|| tier.archive(ino, b"new", &own_request()));
            until(|| first.waiting.load(Ordering::SeqCst) > 0);
            hands.turn(tier.settings().call_limit + Duration::from_secs(60));
            until(|| archiving.is_finished());
            assert_eq!(archiving.join().unwrap().unwrap(), Archived::Now { bytes: size });
            assert_eq!((bench.archives[0].containers(), bench.archives[1].containers()), (0, 1));
            assert_eq!(tier.archives().len(), 1);
            drop(held);
        });
        until(|| tier.archives().len() == 2);
        tier.shutdown().unwrap();
    }
}

#[test]
fn panic_when_starting_a_container_fails_over_to_another_archive() {
    let bench = Bench::with(Arc::new(MemFs::default()), Settings::of(TIER), 2);
    let ino = bench.client().file(Ino::ROOT, "new", &noise(64, MIB)).unwrap();
    let (first, tier) = over_one_that_misbehaves(&bench);
    first.panics.store(true, Ordering::SeqCst);
    let archived = tier.archive(ino, b"new", &own_request()).unwrap();
    assert_eq!(archived, Archived::Now { bytes: MIB });
    assert_eq!(tier.archives().len(), 2, "it does not hang");
    assert_eq!((bench.archives[0].containers(), bench.archives[1].containers()), (0, 1));
    tier.shutdown().unwrap();
}
