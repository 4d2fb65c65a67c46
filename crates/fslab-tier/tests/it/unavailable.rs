//! Archives that are unavailable for a while, from the beginning or during use.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fslab_tier::archive::testing::MemoryArchive;
use fslab_tier::archive::unavailable::{LOOK_EVERY, Opener};
use fslab_tier::archive::{Archive, DirectoryArchive, ReconnectingArchive};
use fslab_tier::command::{Command, Event, execute};
use fslab_tier::home::{Home, TierDescription};
use fslab_tier::{Archived, Environment, Error, Id, Settings, Tier, TierFs, own_request};
use fslab_vfs::{Cancellation, Clock, Errno, FileSystem, Ino, MemFs, OpenMode, Request};
use fslab_vfs_testing::client::Client;

use crate::call_timeouts::Resumes;
use crate::support::{Bench, Hands, MIB, TIER, copied, noise, open_over, until};

/// A tier whose first archive is unavailable at the beginning, while the second one is available.
pub struct Late {
    pub bench: Bench,
    pub hands: Arc<Hands>,
    pub place: Arc<Place>,
    pub tier: Arc<Tier>,
    fs: Arc<TierFs>,
}

impl Late {
    /// Makes the tier. `fill` is called while both archives are available.
    pub fn new(settings: Settings, fill: impl FnOnce(&Bench)) -> Self {
        let hands = Arc::new(Hands::default());
        let bench = Bench::by_clock(Arc::new(MemFs::default()), settings, 2, hands.clone());
        fill(&bench);
        bench.tier.shutdown().unwrap();
        let place = Arc::new(Place::default());
        let opener = opener(&bench.archives[0], &place);
        let known = (Id([1; 16]), "a0".to_owned());
        let (late, problem) = ReconnectingArchive::new(known, opener, hands.clone());
        assert!(problem.is_some());
        let archives: Vec<Arc<dyn Archive>> = vec![Arc::new(late), bench.archives[1].clone()];
        let (settings, catalogue) = (bench.tier.settings(), copied(bench.tier.catalogue()));
        let (tier, fs) = open_over(&bench.lower, settings, archives, catalogue, &bench.around);
        Self { bench, hands, place, tier, fs }
    }

    /// Makes a tier with a `file` that only the first archive contains.
    fn with_a_file(settings: Settings) -> (Self, Ino) {
        let mut ino = Ino::ROOT;
        let late = Self::new(settings, |bench| {
            ino = bench.offline(&bench.client(), "file", &noise(1, 2 * MIB));
        });
        (late, ino)
    }

    fn client(&self) -> Client<'_> {
        Client::new(&*self.fs)
    }

    pub fn comes(&self) {
        self.place.is_there.store(true, Ordering::SeqCst);
        self.hands.turn(LOOK_EVERY);
        // If the engine tried to open the archive just before, its next attempt is due later.
        while self.tier.archives().len() < 2 {
            self.hands.turn(Duration::from_secs(1));
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn archive(&self, ino: Ino) -> fslab_tier::Result<Archived> {
        self.tier.archive(ino, b"file", &own_request())
    }

    fn write(&self, ino: Ino, data: &[u8]) {
        let client = self.client();
        client.open(ino, OpenMode::WRITE_ONLY).unwrap().write_all(0, data).unwrap();
    }

    fn containers(&self) -> [usize; 2] {
        [0, 1].map(|number| self.bench.archives[number].containers())
    }
}

/// The location of an archive, which can be made unavailable.
#[derive(Default)]
pub struct Place {
    pub is_there: AtomicBool,
    /// The number of attempts to open the archive.
    looks: AtomicU64,
    /// Attempts hang until this is false.
    hangs: AtomicBool,
}

fn opener(archive: &Arc<MemoryArchive>, place: &Arc<Place>) -> Opener {
    let (archive, place) = (Arc::clone(archive), Arc::clone(place));
    Box::new(move || {
        place.looks.fetch_add(1, Ordering::SeqCst);
        while place.hangs.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
        if place.is_there.load(Ordering::SeqCst) {
            return Ok(archive.clone());
        }
        Err(Error::NoArchive { path: PathBuf::from("/a0"), what: "is not there".to_owned() })
    })
}

pub fn usual() -> Settings {
    Settings { ahead: 0, ..Settings::of(TIER) }
}

#[test]
fn archive_that_appears_later_is_used_without_remounting() {
    let (late, ino) = Late::with_a_file(usual());
    let states = late.tier.archive_states().unwrap();
    assert_eq!(states[0].away.as_deref(), Some("/a0: is not there"));
    assert_eq!((states[0].attached, states[1].attached), (false, true));
    late.place.is_there.store(true, Ordering::SeqCst);
    late.hands.turn(LOOK_EVERY.checked_sub(Duration::from_millis(1)).unwrap());
    assert_eq!(late.tier.archives().len(), 1, "not looked for at every call");
    late.hands.turn(Duration::from_millis(1));
    assert_eq!(late.client().contents(ino).unwrap(), noise(1, 2 * MIB));
    assert!(late.tier.archive_states().unwrap()[0].attached);
    // An open archive remains available, even if it could not be opened again.
    late.place.is_there.store(false, Ordering::SeqCst);
    late.hands.turn(LOOK_EVERY);
    assert_eq!(late.tier.archives().len(), 2);
}

#[test]
fn different_archive_at_the_path_of_an_unavailable_one_is_refused() {
    let hands = Arc::new(Hands::default());
    let (other, place) = (MemoryArchive::new(Id([9; 16]), "other"), Arc::default());
    let opener = opener(&Arc::new(other), &place);
    let known = (Id([1; 16]), "a0".to_owned());
    let (archive, _) = ReconnectingArchive::new(known, opener, hands.clone());
    place.is_there.store(true, Ordering::SeqCst);
    hands.turn(LOOK_EVERY);
    assert!(!archive.look());
    let why = archive.why_unavailable().unwrap();
    assert!(why.starts_with("a0 contains archive 0909"), "{why}");
}

#[test]
fn copies_go_to_the_next_archive_if_one_is_unavailable() {
    let late = Late::new(usual(), |_| {});
    let ino = late.client().file(Ino::ROOT, "file", &noise(1, MIB)).unwrap();
    assert!(matches!(late.archive(ino).unwrap(), Archived::Now { .. }));
    assert_eq!(late.containers(), [0, 1]);
    late.comes();
    late.write(ino, b"new");
    assert!(matches!(late.archive(ino).unwrap(), Archived::Now { .. }));
    assert_eq!(late.containers(), [1, 1]);
}

#[test]
fn archiving_needs_enough_available_archives() {
    let late = Late::new(Settings { copies: 2, ..usual() }, |_| {});
    let ino = late.client().file(Ino::ROOT, "file", &noise(1, MIB)).unwrap();
    let refused = late.archive(ino).unwrap_err().to_string();
    assert!(refused.contains("accept a copy: 1; unavailable for now: 0101"), "{refused}");
    assert_eq!(late.containers(), [0, 0]);
    assert!(late.tier.catalogue().pending().unwrap().is_empty());
    late.comes();
    assert!(matches!(late.archive(ino).unwrap(), Archived::Now { .. }));
    assert_eq!(late.containers(), [1, 1]);
}

#[test]
fn copies_on_an_unavailable_archive_are_neither_replaced_nor_counted() {
    let fill = |bench: &Bench| {
        let ino = bench.client().file(Ino::ROOT, "file", &noise(1, MIB)).unwrap();
        bench.archive(ino, "file").unwrap();
    };
    let late = Late::new(usual(), fill);
    let ino = late.client().lookup(Ino::ROOT, "file").unwrap().ino;
    let scanned = late.tier.scan(&own_request()).unwrap();
    assert_eq!((scanned.damaged.len(), scanned.unneeded, scanned.missing.len()), (0, 0, 1));
    assert_eq!(late.archive(ino).unwrap(), Archived::Before);
    let refused = late.tier.release(ino, b"file", 0).unwrap_err();
    assert!(matches!(refused, Error::TooFewCopies { found: 0, .. }), "{refused}");
    let scrubbed = late.tier.scrub(&own_request()).unwrap();
    assert_eq!((scrubbed.copies, scrubbed.damaged.len(), scrubbed.missing.len()), (0, 0, 1));
    assert_eq!(late.containers(), [1, 0]);
    late.comes();
    assert_eq!(late.tier.release(ino, b"file", 0).unwrap().bytes, MIB);
    assert_eq!(late.tier.scrub(&own_request()).unwrap().copies, 1);
}

#[test]
fn objects_on_an_unavailable_archive_stay_in_the_catalogue() {
    let (late, _) = Late::with_a_file(Settings { keep: Duration::ZERO, ..usual() });
    late.tier.scan(&own_request()).unwrap();
    late.client().unlink(Ino::ROOT, "file").unwrap();
    assert_eq!(late.tier.expire(&own_request()).unwrap().objects, 0);
    late.comes();
    assert_eq!(late.tier.expire(&own_request()).unwrap().objects, 1);
    assert_eq!(late.containers(), [0, 0]);
}

#[test]
fn archiving_fails_if_offline_blocks_of_a_file_are_unavailable() {
    let (late, ino) = Late::with_a_file(usual());
    late.write(ino, &noise(3, MIB));
    assert!(matches!(late.archive(ino), Err(Error::NoCopy { .. })));
}

/// Interrupts the reader if a test fails.
struct Signals<'a>(&'a AtomicU64);

impl Drop for Signals<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(1, Ordering::SeqCst);
        }
    }
}

/// Reads a file, and calls a function while the read waits. The function can interrupt the read by
/// storing 1.
pub fn while_it_waits(
    late: &Late,
    ino: Ino,
    during: impl FnOnce(&AtomicU64),
) -> Result<Vec<u8>, Errno> {
    let signal = Arc::new(AtomicU64::new(0));
    let cancellation = Cancellation::new(Arc::clone(&signal), 1);
    let request = Request { cancellation, ..own_request() };
    let opened = late.fs.open(&own_request(), ino, OpenMode::empty()).unwrap();
    let read = std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut buffer = vec![0; 2 * MIB as usize];
            let count = late.fs.read(&request, ino, opened.handle, 0, &mut buffer)?;
            buffer.truncate(count);
            Ok::<_, fslab_vfs::Error>(buffer)
        });
        while !waits(late) && !reader.is_finished() {
            std::thread::yield_now();
        }
        let _signals = Signals(&signal);
        during(&signal);
        reader.join().unwrap()
    });
    late.fs.release(&own_request(), ino, opened.handle).unwrap();
    read.map_err(|error| error.errno())
}

/// Returns whether a recall is reported as waiting for an unavailable archive.
pub fn waits(late: &Late) -> bool {
    told(late, &Command::Queue)
        .iter()
        .any(|event| matches!(event, Event::Waiting { away: true, begun: false, waiters: 1, .. }))
}

pub fn told(late: &Late, command: &Command) -> Vec<Event> {
    let mut told = Vec::new();
    let tell = &mut |event| {
        told.push(event);
        true
    };
    execute(&late.tier, command, &own_request(), tell).unwrap();
    told
}

#[test]
fn reader_waits_until_an_unavailable_archive_is_back() {
    let (late, ino) = Late::with_a_file(usual());
    let read = while_it_waits(&late, ino, |_| late.comes());
    assert!(read == Ok(noise(1, 2 * MIB)), "{:?}", read.err());
    assert_eq!(late.tier.counts()[1], ("tier_failed_recalls", "blocks whose recall failed", 0));
}

#[test]
fn retry_pauses_grow_and_end_when_the_archive_is_found() {
    let mut ino = Ino::ROOT;
    // The file has one block, so only one recall attempts to open the archive.
    let late = Late::new(usual(), |bench| {
        ino = bench.offline(&bench.client(), "file", &noise(1, MIB));
    });
    let read = while_it_waits(&late, ino, |_| {
        let looks = || late.place.looks.load(Ordering::SeqCst);
        for _ in 0..8 {
            let before = looks();
            late.hands.turn(Duration::from_secs(30));
            while looks() == before || !waits(&late) {
                std::thread::yield_now();
            }
        }
        late.place.is_there.store(true, Ordering::SeqCst);
        late.hands.turn(LOOK_EVERY);
        std::thread::sleep(Duration::from_millis(100));
        assert!(waits(&late), "not at every look at the clock");
        assert_eq!(late.tier.archives().len(), 2, "somebody else finds it, and all go on");
    });
    assert!(read == Ok(noise(1, MIB)), "{:?}", read.err());
}

#[test]
fn wait_for_an_unavailable_archive_times_out() {
    let patience = Some(Duration::from_secs(60));
    for late_errno in [Errno::AGAIN, Errno::IO] {
        let settings = Settings { patience, late: late_errno, ..usual() };
        let (late, ino) = Late::with_a_file(settings);
        let read = while_it_waits(&late, ino, |_| {
            assert!(waits(&late));
            late.hands.turn(Duration::from_secs(60));
        });
        assert_eq!(read.err(), Some(late_errno));
        // No program waits for the request any longer, so the next read makes it again.
        let read = while_it_waits(&late, ino, |_| late.comes());
        assert!(read == Ok(noise(1, 2 * MIB)), "{:?}", read.err());
    }
}

#[test]
fn waiting_for_an_unavailable_archive_is_interruptible() {
    let (late, ino) = Late::with_a_file(usual());
    let read = while_it_waits(&late, ino, |signal| signal.store(1, Ordering::SeqCst));
    assert_eq!(read.err(), Some(Errno::INTR));
    let read = while_it_waits(&late, ino, |_| {
        // A recall that a thread is processing is not cancelled, so the command is repeated.
        while !told(&late, &Command::Queue).is_empty() {
            told(&late, &Command::Cancel { paths: vec![b"file".to_vec()] });
        }
    });
    assert_eq!(read.err(), Some(Errno::CANCELED));
    let read = while_it_waits(&late, ino, |_| late.tier.shutdown().unwrap());
    assert_eq!(read.err(), Some(Errno::INTR));
}

#[test]
fn unavailable_archive_delays_no_other_recalls() {
    let mut inos = [Ino::ROOT; 2];
    let late = Late::new(Settings { movers: 1, ..usual() }, |bench| {
        inos[0] = bench.offline(&bench.client(), "file", &noise(1, 2 * MIB));
        bench.archives[0].faults().full.store(true, Ordering::SeqCst);
        inos[1] = bench.offline(&bench.client(), "other", &noise(2, 2 * MIB));
    });
    assert_eq!(late.containers(), [1, 1]);
    let read = while_it_waits(&late, inos[0], |_| {
        assert!(waits(&late));
        assert!(late.client().contents(inos[1]).unwrap() == noise(2, 2 * MIB));
        assert!(waits(&late));
        late.comes();
    });
    assert!(read == Ok(noise(1, 2 * MIB)), "{:?}", read.err());
}

/// Another recall occupies the only thread that may serve the archive.
#[test]
fn postponed_recall_is_queued_again_once_its_archive_is_back() {
    let settings = Settings { call_limit: Duration::MAX, ..usual() };
    let mut inos = [Ino::ROOT; 2];
    let late = Late::new(Settings { movers: 1, ..settings }, |bench| {
        inos = [0, 1].map(|number| {
            bench.offline(&bench.client(), &format!("file{number}"), &noise(number, MIB))
        });
    });
    let recalls = |is_begun: bool, is_away: bool| {
        let events = told(&late, &Command::Queue);
        let is_it = |event: &&Event| {
            matches!(event, Event::Waiting { begun, away, .. }
                if (*begun, *away) == (is_begun, is_away))
        };
        events.iter().filter(is_it).count()
    };
    *late.bench.archives[0].faults().stalled.lock() = true;
    std::thread::scope(|scope| {
        let _resumes = Resumes(&late.bench.archives[0]);
        for ino in &inos {
            scope.spawn(|| late.client().contents(*ino).unwrap());
        }
        until(|| recalls(false, true) == 2);
        late.comes();
        until(|| recalls(true, false) == 1 && recalls(false, false) == 1);
    });
}

/// When dropped, ends a hang, even after a failed test.
struct Hang<'a>(&'a Place);

impl<'a> Hang<'a> {
    fn new(place: &'a Place) -> Self {
        place.hangs.store(true, Ordering::SeqCst);
        Self(place)
    }
}

impl Drop for Hang<'_> {
    fn drop(&mut self) {
        self.0.hangs.store(false, Ordering::SeqCst);
    }
}

#[test]
fn archive_that_hangs_while_being_opened_delays_nobody() {
    let mut ino = Ino::ROOT;
    let late = Late::new(Settings { movers: 1, ..usual() }, |bench| {
        bench.offline(&bench.client(), "file", &noise(1, MIB));
        bench.archives[0].faults().full.store(true, Ordering::SeqCst);
        ino = bench.offline(&bench.client(), "other", &noise(2, 2 * MIB));
        bench.archives[0].faults().full.store(false, Ordering::SeqCst);
    });
    let hang = Hang::new(&late.place);
    let before = late.place.looks.load(Ordering::SeqCst);
    late.hands.turn(LOOK_EVERY);
    let other = std::thread::scope(|scope| {
        let reader = scope.spawn(|| late.client().contents(ino).unwrap());
        let begun = Instant::now();
        while !reader.is_finished() && begun.elapsed() < Duration::from_secs(10) {
            std::thread::sleep(Duration::from_millis(1));
        }
        let is_held_up = !reader.is_finished();
        if is_held_up {
            late.place.hangs.store(false, Ordering::SeqCst);
        }
        assert!(!is_held_up, "it is read meanwhile");
        reader.join().unwrap()
    });
    assert!(other == noise(2, 2 * MIB));
    // One thread tries to open the archive, and no caller waits for it again.
    late.hands.turn(LOOK_EVERY * 2);
    let begun = Instant::now();
    for _ in 0..1000 {
        assert_eq!(late.tier.archives().len(), 1);
    }
    assert!(begun.elapsed() < Duration::from_secs(10), "not 200 ms each");
    assert_eq!(late.place.looks.load(Ordering::SeqCst), before + 1);
    // The shutdown of the tier is not delayed either.
    late.tier.shutdown().unwrap();
    late.place.is_there.store(true, Ordering::SeqCst);
    drop(hang);
    while late.tier.archives().len() < 2 {
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn available_archive_is_used_at_once_and_its_errors_reported() {
    let mut ino = Ino::ROOT;
    let late = Late::new(Settings { copies: 2, ..usual() }, |bench| {
        ino = bench.offline(&bench.client(), "file", &noise(1, 2 * MIB));
    });
    let faults = late.bench.archives[1].faults();
    faults.reads_fail.store(true, Ordering::SeqCst);
    let failed = while_it_waits(&late, ino, |_| assert!(!waits(&late)));
    assert_eq!(failed.err(), Some(Errno::IO));
    faults.reads_fail.store(false, Ordering::SeqCst);
    let read = while_it_waits(&late, ino, |_| assert!(!waits(&late)));
    assert!(read == Ok(noise(1, 2 * MIB)), "{:?}", read.err());
}

/// A tier that keeps one copy of each file, with two archives in directories. The first archive
/// becomes unavailable during use.
struct Going {
    scratch: tempfile::TempDir,
    hands: Arc<Hands>,
    tier: Arc<Tier>,
    fs: Arc<TierFs>,
}

impl Going {
    fn new() -> Self {
        let (scratch, hands) = (tempfile::tempdir().unwrap(), Arc::new(Hands::default()));
        let clock: Arc<dyn Clock> = hands.clone();
        let around = Environment { clock, ..Bench::new().around };
        let lower: Arc<dyn FileSystem> = Arc::new(MemFs::default());
        let archives = ["first", "second"].map(|name| scratch.path().join(name).into());
        let wish =
            TierDescription { keep_seconds: 0, ..TierDescription::usual(archives.into(), None) };
        let home = Home::init(&scratch.path().join("home"), &*lower, &wish, &around).unwrap();
        let settings = Settings { ahead: 0, ..home.settings() };
        let tier = home.open(lower, settings, around).unwrap();
        let fs = Arc::new(TierFs::new(Arc::clone(&tier)));
        Self { scratch, hands, tier, fs }
    }

    fn offline(&self, name: &str) -> Ino {
        let ino = Client::new(&*self.fs).file(Ino::ROOT, name, &noise(1, MIB)).unwrap();
        self.tier.archive(ino, name.as_bytes(), &own_request()).unwrap();
        assert_eq!(self.tier.release(ino, name.as_bytes(), 0).unwrap().bytes, MIB);
        ino
    }

    /// Makes the archive unavailable, as if its disk were unmounted: the directory exists and is
    /// empty.
    fn goes(&self) {
        let first = self.scratch.path().join("first");
        fs::rename(&first, self.scratch.path().join("aside")).unwrap();
        fs::create_dir(first).unwrap();
    }

    pub fn comes(&self) {
        let first = self.scratch.path().join("first");
        fs::remove_dir(&first).unwrap();
        fs::rename(self.scratch.path().join("aside"), first).unwrap();
        while self.is_unavailable() {
            self.hands.turn(Duration::from_secs(1));
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn read(&self, ino: Ino) -> Result<usize, Errno> {
        let opened = self.fs.open(&own_request(), ino, OpenMode::empty()).unwrap();
        let mut buffer = vec![0; MIB as usize];
        let read = self.fs.read(&own_request(), ino, opened.handle, 0, &mut buffer);
        self.fs.release(&own_request(), ino, opened.handle).unwrap();
        assert!(read.is_err() || buffer == noise(1, MIB));
        read.map_err(|error| error.errno())
    }

    fn is_unavailable(&self) -> bool {
        self.tier.archive_states().unwrap()[0].away.is_some()
    }
}

/// Calls a function that must not wait. If it waits, it is interrupted and the test fails.
fn at_once<T: Send>(work: impl FnOnce(&Request) -> T + Send) -> T {
    let signal = Arc::new(AtomicU64::new(0));
    let cancellation = Cancellation::new(Arc::clone(&signal), 1);
    let request = Request { cancellation, ..own_request() };
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| work(&request));
        let begun = Instant::now();
        while !worker.is_finished() && begun.elapsed() < Duration::from_secs(10) {
            std::thread::sleep(Duration::from_millis(1));
        }
        let waits = !worker.is_finished();
        signal.store(1, Ordering::SeqCst);
        assert!(!waits, "it waits");
        worker.join().unwrap()
    })
}

#[test]
fn archiving_fails_at_once_if_an_archive_disappeared_unnoticed() {
    let going = Going::new();
    let client = Client::new(&*going.fs);
    let ino = client.file(Ino::ROOT, "file", &noise(1, 2 * MIB)).unwrap();
    going.tier.archive(ino, b"file", &own_request()).unwrap();
    going.tier.release(ino, b"file", 0).unwrap();
    client.open(ino, OpenMode::WRITE_ONLY).unwrap().write_all(0, &noise(2, MIB)).unwrap();
    going.goes();
    let refused = at_once(|request| going.tier.archive(ino, b"file", request)).unwrap_err();
    assert!(matches!(refused, Error::NoCopy { .. }), "{refused}");
    assert!(going.tier.queue().list().is_empty(), "nobody waits for it");
    going.comes();
    at_once(|request| going.tier.archive(ino, b"file", request)).unwrap();
}

#[test]
fn recall_command_reports_unavailable_files_and_continues() {
    let going = Going::new();
    going.offline("file");
    going.goes();
    let other = going.offline("other");
    for rate in [0, u64::MAX] {
        going.comes();
        going.goes();
        let paths = vec![b"file".to_vec(), b"other".to_vec()];
        let command = Command::Recall { paths, range: None, rate };
        let mut told = Vec::new();
        let tell = &mut |event| {
            told.push(event);
            true
        };
        at_once(|request| execute(&going.tier, &command, request, tell)).unwrap();
        let Event::Problem { what } = &told[0] else { panic!("{told:?}") };
        assert!(
            what.starts_with("file: no attached archive contains this version, because archive"),
            "{what}"
        );
        assert!(matches!(&told[1..], [Event::Done { .. }]), "{told:?}");
        going.tier.release(other, b"other", 0).unwrap();
    }
}

#[test]
fn archive_lost_during_use_is_awaited_and_leased_again() {
    let going = Going::new();
    let ino = going.offline("file");
    going.goes();
    let read = std::thread::scope(|scope| {
        let reader = scope.spawn(|| going.read(ino));
        while !going.is_unavailable() && !reader.is_finished() {
            std::thread::yield_now();
        }
        let aside = going.scratch.path().join("aside");
        let owner = going.tier.settings().tier;
        // The thread that noticed the loss may hold the archive open for a moment. Opening the
        // archive fails until then.
        while DirectoryArchive::open(&aside, owner).is_err() {
            assert!(!reader.is_finished(), "the reader returned the bytes of a lost copy");
            std::thread::yield_now();
        }
        going.comes();
        reader.join().unwrap()
    });
    assert_eq!(read, Ok(MIB as usize));
    let first = going.scratch.path().join("first");
    let other = DirectoryArchive::open(&first, going.tier.settings().tier).unwrap_err();
    assert!(other.to_string().contains("is being written by"), "{other}");
}

#[test]
fn archive_lost_during_use_counts_no_copies_as_damaged_or_unneeded() {
    let going = Going::new();
    let client = Client::new(&*going.fs);
    let [kept, _] = ["kept", "gone"].map(|name| going.offline(name));
    going.tier.archive_tree(&own_request()).unwrap();
    going.goes();
    let scrubbed = going.tier.scrub(&own_request()).unwrap();
    assert_eq!((scrubbed.copies, &scrubbed.damaged[..]), (0, &[][..]), "{scrubbed:?}");
    assert_eq!(scrubbed.missing.len(), 1, "{scrubbed:?}");
    going.comes();

    client.unlink(Ino::ROOT, "gone").unwrap();
    going.goes();
    let refused = going.tier.release(kept, b"kept", 0).unwrap_err();
    assert!(refused.to_string().contains("is unavailable"), "{refused}");
    going.comes();
    going.tier.scan(&own_request()).unwrap();
    going.goes();
    assert_eq!(going.tier.expire(&own_request()).unwrap().objects, 0);
    going.comes();
    assert_eq!(going.tier.expire(&own_request()).unwrap().objects, 1);
    assert_eq!(going.tier.scan(&own_request()).unwrap().unneeded, 0);
    assert_eq!(going.tier.scrub(&own_request()).unwrap().copies, 2, "a file and the tree");
}

#[test]
fn copies_go_to_another_archive_until_the_first_is_back() {
    let going = Going::new();
    let client = Client::new(&*going.fs);
    let archive = |name: &str| {
        let ino = client.file(Ino::ROOT, name, &noise(1, MIB)).unwrap();
        going.tier.archive(ino, name.as_bytes(), &own_request()).unwrap();
        let states = going.tier.archive_states().unwrap();
        [states[0].objects, states[1].objects]
    };
    assert_eq!(archive("one"), [1, 0]);
    going.goes();
    assert_eq!(archive("two"), [1, 1]);
    going.comes();
    assert_eq!(archive("three"), [2, 1]);
}
